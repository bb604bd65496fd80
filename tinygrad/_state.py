"""The overlay's state in this process. Patches and observer are set before tinygrad is imported and never change: tinygrad's schedule cache
does not know about patches, so another set of patches needs another process."""
from __future__ import annotations
import itertools
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator
from weakref import WeakKeyDictionary, ref

patches: frozenset[str] = frozenset()
patches_spec: str = ""

class Nobody:
  """The observer of a process that nothing observes: each report does nothing. An observer receives what only the overlay knows, from within
  tinygrad's passes, and never answers: the kernels are the same with every observer. vmapdbg/child/listen/recorder.py has the reports. If the observer
  `listens`, the scheduler does not reuse a result in place of making it again for the reports."""
  listens = is_paused = False
  def __getattr__(self, report:str) -> Callable[..., None]: return lambda *args: None

nobody = Nobody()
observer: Any = nobody

@contextmanager
def unwatched() -> Iterator[None]:
  """The observer hears nothing in this block: its stages only try something, and the schedule does not use their result."""
  global observer
  before, observer = observer, nobody
  was_paused, before.is_paused = before.is_paused, True
  try: yield
  finally: observer, before.is_paused = before, was_paused

# returns the renderer whose limits the scheduler respects; None: the device's renderer. The tool also renders for targets that are not installed
find_renderer: Callable[[], Any]|None = None

@dataclass
class Process:
  """State that outlives every pass; each comment says why. The state of one run of the scheduler's stages is an Attempt (schedule/_pass.py)."""
  # unique ids and numbers: a graph may hold RANGEs and marks from any earlier time
  generated_ids: Iterator[int]
  padded_ids: Iterator[int]
  mark_numbers: Iterator[int] = field(default_factory=itertools.count)
  # tinygrad.func's RANGEs and marked inputs that are still alive: if there are none, no graph is searched for them
  generated_ranges: set[ref] = field(default_factory=set)
  marks: set[ref] = field(default_factory=set)
  # names of the variables that OUTER scopes gave to kernels: the schedule cache and a JIT run kernels of earlier passes
  outer_variables: set[str] = field(default_factory=set)
  # results for kernels, by AST: most kernels of an attempt were in the attempt before, and the layers of a model share kernels
  kernel_works: dict[tuple, Any] = field(default_factory=dict)
  kernel_verdicts: dict[tuple, Any] = field(default_factory=dict)
  kernel_reduces: dict[bytes, Any] = field(default_factory=dict)
  parts: dict[tuple, Any] = field(default_factory=dict)  # part of a graph -> its decisions, by the positions of its nodes
  keeps_decisions: bool = True  # on disk, for other processes
  op_weights: dict[tuple, int] = field(default_factory=dict)  # (op, dtype, target) -> number of the target's ops that it becomes
  # SparsityPattern or Coloring -> its tensors: another call, or a replay of TinyJit, copies nothing to the device again
  made_of_pattern: WeakKeyDictionary[Any, dict] = field(default_factory=WeakKeyDictionary)

# The ids of tinygrad.func's RANGEs are below all ids that a user writes. The first KEY_IDS ids of each kind appear only in the keys of the schedule
# cache (engine/schedule.py); make_range uses the others. The scheduler renames them all (name_generated_ranges in schedule/_scopes.py)
FIRST_GENERATED_ID, FIRST_PADDED_ID, KEY_IDS = -(1<<20), -(1<<40), 1<<20

# faster than a WeakSet, which needs several Python calls for each element
def remember(kept:set[ref], u:Any) -> None: kept.add(ref(u, kept.discard))

process = Process(itertools.count(FIRST_GENERATED_ID-KEY_IDS, -1), itertools.count(FIRST_PADDED_ID-KEY_IDS, -1))

# *** the user's functions that tinygrad.func runs now, in this thread

# not frozen: each call of a function makes one, and a frozen dataclass takes three times as long to make
@dataclass(eq=False, slots=True)
class Running:
  inputs: tuple[Any, ...]  # the RANGE of a mapped function, or the marked inputs of a differentiated function
  first: Any  # the first Tensor made for this function: older Tensors are from outside. None: the function has no inputs
  size: Any = None  # size of the mapped batch, an int or a Variable; None: the function is differentiated
  # what a random call does in a mapped function, and the function that brings the slices of a batch's first axis into its scope
  randomness: str = "error"
  enter: Callable[[Any], Any] = lambda x: x

  @property
  def is_differentiated(self) -> bool: return self.size is None

running: ContextVar[tuple[Running, ...]] = ContextVar("running", default=())

class Within:
  """Appends a value to the tuple of a context variable while a block runs."""
  def __init__(self, others:ContextVar[tuple], last:Any): self.others, self.last = others, last
  def __enter__(self) -> None: self.token = self.others.set((*self.others.get(), self.last))
  def __exit__(self, *error) -> None: self.others.reset(self.token)

# *** the modules that tinygrad.func.functional_call calls now, in this thread

@dataclass
class StateCall:
  """A module that is called with other values: its Tensors by id, and the ids of the Tensors it wrote to. A write makes a new value."""
  tensors: dict[int, Any]
  written: set[int] = field(default_factory=set)

state_calls: ContextVar[tuple[StateCall, ...]] = ContextVar("state_calls", default=())

def find_state_call(x:Any) -> StateCall|None:
  """Returns the innermost call whose state includes `x`."""
  return next((call for call in reversed(state_calls.get()) if id(x) in call.tensors), None)

def start(spec:str) -> None:
  global patches, patches_spec
  patches, patches_spec = frozenset(name for name in spec.split(",") if name not in ("", "none")), spec
