"""The exception that ends the tool with one line on stderr instead of a traceback."""

EXIT_USAGE, EXIT_SNIPPET, EXIT_CHILD = 2, 3, 4


class Failure(Exception):
    """A problem that the user can solve: the message is one line, `exit_code` is the tool's."""

    exit_code = EXIT_USAGE
