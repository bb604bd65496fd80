"""The overlay's state in this process: which patches are on, who watches, and what lives longer than a pass.

The first two are set before tinygrad is imported and not changed after that: tinygrad's schedule cache does not know
about patches, so another state is another process.
"""
from __future__ import annotations
import itertools
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator
from weakref import WeakKeyDictionary, ref

patches: frozenset[str] = frozenset()
patches_spec: str = ""

# Hears what the overlay alone knows; see vmapdbg/install/observer.py. The overlay calls it and never needs an answer: the decisions are the same
# with `nobody`, whose methods do nothing. The installer sets both.
nobody: Any = None
observer: Any = None

@contextmanager
def unwatched() -> Iterator[None]:
  """The stages that run in this block only try something out: they are not what the schedule is made of."""
  global observer
  before, observer = observer, nobody
  before.pause()
  try: yield
  finally:
    observer = before
    before.resume()

# returns the renderer whose limits the scheduler keeps to. None: that of the device; the tool renders for a target that need not be there.
find_renderer: Callable[[], Any]|None = None

# *** what lives as long as the process. What belongs to one run of the scheduler's stages is in its Pass (schedule/_pass.py)

@dataclass
class Process:
  """What outlives every pass, each with the reason."""
  # ids and numbers that no two things share: a graph may hold what was made at any time before
  own_ids: Iterator[int]
  padded_ids: Iterator[int]
  mark_numbers: Iterator[int] = field(default_factory=itertools.count)
  # the RANGEs that tinygrad.func made and the inputs that it marked, as long as any graph has them: without any, no graph is searched for them
  own_ranges: set[ref] = field(default_factory=set)
  marks: set[ref] = field(default_factory=set)
  # the variables that OUTER scopes gave to their kernels, by name: the schedule cache and a JIT run kernels of passes that are long over
  outer_variables: set[str] = field(default_factory=set)
  # what was found out about kernels, by their ASTs: an attempt has most of its kernels from the one before, and a model its layers from each other
  kernel_works: dict[tuple, Any] = field(default_factory=dict)
  kernel_verdicts: dict[tuple, Any] = field(default_factory=dict)
  kernel_reduces: dict[bytes, Any] = field(default_factory=dict)
  # part of a graph -> what was decided in it, by the places of its nodes
  parts: dict[tuple, Any] = field(default_factory=dict)
  # how many ops of a target an op becomes
  op_weights: dict[tuple, int] = field(default_factory=dict)
  # SparsityPattern or Coloring -> what was made of it: a call that uses it again copies nothing to the device, and so does a replay of TinyJit
  made_of_pattern: WeakKeyDictionary[Any, dict] = field(default_factory=WeakKeyDictionary)

# The ids of the RANGEs that tinygrad.func makes: below those that anyone writes by hand. The first of each kind stand for them in the key of the
# schedule cache (engine/schedule.py), the others are given out. A schedule that is made renames them (name_own_ranges in schedule/_scopes.py)
FIRST_OWN_ID, FIRST_PADDED_ID, KEY_IDS = -(1<<20), -(1<<40), 1<<20

# a WeakSet, but for the calls of Python that one takes for each
def remember(kept:set[ref], u:Any) -> None: kept.add(ref(u, kept.discard))

process = Process(itertools.count(FIRST_OWN_ID-KEY_IDS, -1), itertools.count(FIRST_PADDED_ID-KEY_IDS, -1))

# *** the functions of the user's that tinygrad.func runs now, in this thread

# not frozen: there is one for each call of a function, and that takes three times as long to make
@dataclass(eq=False, slots=True)
class Running:
  # the RANGE that a mapped function is mapped over, or the marks of the inputs of one that is differentiated
  inputs: tuple[Any, ...]
  # the first Tensor made for it: the Tensors that are older are from outside of it. None: it was given nothing
  first: Any
  # of the mapped batch, an int or a Variable; None: it is differentiated
  size: Any = None
  # what a random call does in a mapped function, and what takes the slices of a batch's first axis into its scope
  randomness: str = "error"
  enter: Callable[[Any], Any] = lambda x: x

  @property
  def is_differentiated(self) -> bool: return self.size is None

running: ContextVar[tuple[Running, ...]] = ContextVar("running", default=())

class Within:
  """Something stands behind the others of a context variable while a block runs."""
  def __init__(self, others:ContextVar[tuple], last:Any): self.others, self.last = others, last
  def __enter__(self) -> None: self.token = self.others.set((*self.others.get(), self.last))
  def __exit__(self, *error) -> None: self.others.reset(self.token)

def run_function(function:Running) -> Within: return Within(running, function)

# *** the modules that tinygrad.func.functional_call calls now, in this thread

@dataclass
class StateCall:
  """The Tensors of a module that is called with other values, by their ids, and those that it wrote to. A write to one of them makes its new value."""
  tensors: dict[int, Any]
  written: set[int] = field(default_factory=set)

state_calls: ContextVar[tuple[StateCall, ...]] = ContextVar("state_calls", default=())

def run_state_call(call:StateCall) -> Within: return Within(state_calls, call)

def find_state_call(x:Any) -> StateCall|None:
  """The innermost one that `x` is the state of."""
  return next((call for call in reversed(state_calls.get()) if id(x) in call.tensors), None)

def start(spec:str, nobody_there:Any) -> None:
  global patches, patches_spec, nobody, observer
  nobody = observer = nobody_there
  patches, patches_spec = frozenset(name for name in spec.split(",") if name not in ("", "none")), spec
