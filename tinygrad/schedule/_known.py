"""Keeps the decisions for a graph in tinygrad's cache on disk (CACHEDB), where it keeps compiled kernels: to decide takes as long as several schedules, and
another process schedules the same graph once (patches fusion-guard, realize-reused).

A key has everything that decisions depend on: the graph, the patches, these files, tinygrad's settings and the target. If an observer watches the
process, the decisions are made again, so that it can report them. With CACHELEVEL=0 nothing is cached, no compiled kernels either."""
from __future__ import annotations
import contextlib, functools, hashlib, pickle, sqlite3
from pathlib import Path
from typing import NamedTuple
from tinygrad.device import Device
from tinygrad.helpers import ContextVar, diskcache_get, diskcache_put
from tinygrad.uop.ops import UOp
from tinygrad_overlay import _state
from tinygrad_overlay.codegen._work import find_machine, find_renderer
from tinygrad_overlay.schedule._pass import Attempt
from tinygrad_overlay.schedule._refusals import Refusal

TABLE = "vmapdbg_decisions"
# a cache that cannot be read or written, such as that of a read-only home, knows nothing
no_cache = contextlib.suppress(OSError, sqlite3.Error, pickle.UnpicklingError)

class Known(NamedTuple):
  """The decisions of an Attempt. Nodes are positions in its toposort."""
  realize_points: dict[int, Refusal]
  reused: dict[int, Refusal]
  keeps_all: bool

@functools.cache
def digest_code() -> str:
  files = sorted(Path(__file__).parent.parent.rglob("*.py"))
  return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

def make_key(sink:UOp) -> str:
  ren, settings = find_renderer(Device.DEFAULT), sorted((name, v.value) for name,v in ContextVar._cache.items())
  target = type(ren).__name__, ren.device, find_machine(ren), ren.global_max, ren.shared_max, len(ren.tensor_cores)
  return hashlib.sha256(repr((sink.key, sorted(_state.patches), digest_code(), settings, target)).encode()).hexdigest()

def recall(attempt:Attempt, sink:UOp) -> bool:
  """Gives the attempt the decisions that are known for its graph, if there are any."""
  if not _state.process.keeps_decisions or _state.observer.listens: return False
  attempt.known_as, known = make_key(sink), None
  with no_cache: known = diskcache_get(TABLE, attempt.known_as)
  if known is None: return False
  nodes, (points, reused, attempt.keeps_all) = list(attempt.toposort), known
  attempt.is_recalled = True
  attempt.realize_points, attempt.reused = ({nodes[i]:refusal for i,refusal in found.items()} for found in (points, reused))
  return True

def keep(key:str, made:Attempt) -> None:
  """Keeps the decisions of the attempt that is the result for the graph with this key."""
  places = {x:i for i,x in enumerate(made.toposort)}
  points, reused = ({places[x]:refusal for x,refusal in found.items()} for found in (made.realize_points, made.reused))
  with no_cache: diskcache_put(TABLE, key, Known(points, reused, made.keeps_all))
