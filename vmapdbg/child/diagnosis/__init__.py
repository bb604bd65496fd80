"""Where tinygrad itself fails or does not end, and what it was busy with. Runs in the child."""

from vmapdbg.child.diagnosis.diagnose import diagnose, explain_error, explain_stopped
from vmapdbg.child.diagnosis.endless import EndlessRewrite
from vmapdbg.child.diagnosis.known_nodes import KnownNodes
from vmapdbg.child.diagnosis.watcher import Watcher

__all__ = ["EndlessRewrite", "KnownNodes", "Watcher", "diagnose", "explain_error", "explain_stopped"]
