"""From what the user named to a folder with that tinygrad in it."""

from __future__ import annotations

import functools

from vmapdbg.install.checkout import describe_state, find_revision
from vmapdbg.install.release import find_release
from vmapdbg.install.tree import Tree, check_version, find_package, find_version, parse_name


@functools.cache
def find_tree(text: str) -> Tree:
    """Returns the tree that a name means; a release or a revision is fetched into the cache on first use. Raises
    TreeError.

    A process asks once for each name: what it looks at is one tree from its start to its end.
    """
    name = parse_name(text)
    if name.release is not None:
        return Tree(text, find_release(name.release), name.release)
    if name.revision is not None:
        return find_revision(text, name.path, name.revision)
    folder = find_package(name.path, text)
    version = find_version(folder)
    check_version(version, text)
    return Tree(text, folder, version, describe_state(folder))
