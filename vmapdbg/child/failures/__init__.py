"""Where tinygrad itself fails or does not end, and what it was busy with. Runs in the child."""

from vmapdbg.child.failures.diagnose import diagnose, explain_error, explain_stopped
from vmapdbg.child.failures.endless import EndlessRewrite
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.failures.watcher import Watcher

__all__ = ["EndlessRewrite", "KnownNodes", "Watcher", "diagnose", "explain_error", "explain_stopped"]
