"""Lets the tests of this folder import `captures`, which importlib mode would not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
