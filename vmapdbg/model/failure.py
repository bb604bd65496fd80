"""What ends the tool with one line on stderr, in place of a traceback."""

from __future__ import annotations

EXIT_USAGE, EXIT_SNIPPET, EXIT_CHILD = 2, 3, 4


class Failure(Exception):
    """Something that the user can mend: the message is one line, `exit_code` what the tool ends with."""

    exit_code = EXIT_USAGE
