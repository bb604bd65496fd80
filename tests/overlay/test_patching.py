"""tinygrad is changed by one declared mechanism: what is not as in 0.12.0 is refused before anything is rebound."""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tinygrad
import tinygrad.codegen.opt.heuristic
import tinygrad.engine.jit
import tinygrad.tensor
import tinygrad.uop.upat
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat
from tinygrad_overlay import _patching
from tinygrad_overlay._patching import Change, Changes, UnknownShape
from tinygrad_overlay.uop import ops as overlay_ops

from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.values_and_times import note_values
from vmapdbg.install import overlay
from vmapdbg.install.overlay import OverlayError

README = Path(__file__).parents[2] / "tinygrad" / "README.md"


def old_rule(x: UOp) -> UOp | None:
    return None


def new_rule(x: UOp) -> UOp | None:
    return x


class Thing:
    def method(self, a: int) -> str:
        return f"stock {a}"

    @staticmethod
    def make(b: int) -> str:
        return f"stock {b}"


@pytest.fixture
def upstream() -> Any:
    """A module as tinygrad might have it."""
    module = types.ModuleType("tinygrad.fake")
    exec("def function(a, b=1): return a + b", module.__dict__)
    rules = [(UPat(Ops.CONST, name="x"), old_rule), (UPat(Ops.ADD, name="x"), lambda x: old_rule(x))]
    fields = {"cache": {}, "matcher": PatternMatcher(rules), "Thing": type("Thing", (Thing,), dict(vars(Thing)))}
    module.__dict__.update(fields)
    return module


# what is found instead of what a patch expects -> the patch
WRONG: dict[str, Callable[[Changes, Any], Any]] = {
    "function: expected parameters (a, c), found parameters (a, b)": lambda changes, module: changes.replace(
        module, "function", print, "a", "c"
    ),
    "other: expected parameters (a), found nothing": lambda changes, module: changes.replace(
        module, "other", print, "a"
    ),
    "cache: expected parameters (a), found dict": lambda changes, module: changes.expect(module, "cache", "a"),
    "Thing.run: expected parameters (self), found nothing": lambda changes, module: changes.wrap(
        module.Thing, "run", print, "self"
    ),
    "matcher: expected a PatternMatcher with a rule that calls new_rule, found one with no such rule": (
        lambda changes, module: changes.replace_rule(module, "matcher", new_rule, old_rule)
    ),
    "cache: expected a PatternMatcher, found dict": lambda changes, module: changes.add_rules(
        module, "cache", PatternMatcher([]), at=0
    ),
    "cache: expected list, found dict": lambda changes, module: changes.replace_value(module, "cache", list, list),
    "cache: expected nothing, found dict": lambda changes, module: changes.add(module, "cache", {}),
    "matcher: expected dict without key, found PatternMatcher": lambda changes, module: changes.add_entry(
        module, "matcher", "key", 1
    ),
}


@pytest.mark.parametrize("found", WRONG)
def test_unknown_shape_is_one_sentence_and_leaves_all_as_it_was(found: str, upstream: Any) -> None:
    before, made = dict(vars(upstream)), dict(_patching.made)

    def patch() -> None:
        with Changes("test") as changes:
            changes.replace(upstream, "function", print, "a", "b")
            changes.add(upstream, "added", 1)
            WRONG[found](changes, upstream)

    with pytest.raises(UnknownShape) as raised:
        patch()
    assert str(raised.value).endswith(found.replace(":", " is not what tinygrad 0.12.0 has there:", 1))
    assert dict(vars(upstream)) == before
    assert dict(_patching.made) == made


def test_all_is_rebound_at_the_end_of_the_block(upstream: Any) -> None:
    stock = upstream.function
    with Changes("test") as changes:
        old = changes.replace(upstream, "function", new_rule, "a", "b")
        changes.add_entry(upstream, "cache", "key", 1)
        assert upstream.function is stock
        assert not upstream.cache
    assert old is stock
    assert upstream.function is new_rule
    assert upstream.cache == {"key": 1}
    assert Change("test", "tinygrad.fake", "function", "replaced", "parameters (a, b)") in _patching.made
    changes.undo()


def test_rules_of_one_matcher_change_together(upstream: Any) -> None:
    """A function that a lambda calls is replaced, too, and rules that are added later keep those changes."""
    stock = upstream.matcher
    added = PatternMatcher([(UPat(Ops.MUL, name="x"), new_rule)])
    with Changes("test") as changes:
        changes.replace_rule(upstream, "matcher", old_rule, new_rule)
        changes.add_rules(upstream, "matcher", added, at=1)
    assert [function for _, function in upstream.matcher.patterns] == [new_rule] * 3
    assert [pattern.op for pattern, _ in upstream.matcher.patterns] == [(Ops.CONST,), (Ops.MUL,), (Ops.ADD,)]
    changes.undo()
    assert upstream.matcher is stock


def test_a_wrapped_function_calls_the_original_and_can_be_restored(upstream: Any) -> None:
    seen = []

    def around(stock: Callable[..., str], *arguments: Any) -> str:
        seen.append(arguments[-1])
        return stock(*arguments)

    heir = upstream.Heir = type("Heir", (upstream.Thing,), {})
    before = dict(vars(upstream.Thing)), dict(vars(heir))
    with Changes("test") as changes:
        changes.wrap(upstream.Thing, "method", around, "self", "a")
        # inherited, and static
        changes.wrap(heir, "make", around, "b")
    # who comes later finds the parameters that were there
    with Changes("test") as later:
        later.expect(upstream.Thing, "method", "self", "a")
    assert upstream.Thing().method(3) == "stock 3"
    assert seen == [3]
    changes.undo()
    assert (dict(vars(upstream.Thing)), dict(vars(heir))) == before


def test_undo_leaves_names_that_other_code_has_rebound_since(upstream: Any) -> None:
    with Changes("test") as changes:
        changes.replace(upstream, "function", new_rule, "a", "b")
    upstream.function = old_rule
    changes.undo()
    assert upstream.function is old_rule


def test_parameters_are_seen_through_decorators() -> None:
    """tinygrad's own decorators take `*args, **kwargs` and do not name the function inside."""
    from tinygrad.schedule.indexing import run_rangeify
    from tinygrad.uop.ops import profile_matches, track_rewrites

    def plain(a: UOp, b: int) -> UOp:
        return a

    for decorated in (profile_matches(plain), track_rewrites(lambda _, ret: "name")(plain), run_rangeify):
        assert _patching.find_parameters(decorated) in (("a", "b"), ("tsink", "debug"))


# *** what the overlay changes


def list_rows() -> Iterator[tuple[list[str], str]]:
    """Yields the files and the patches of each row of the README's table."""
    for line in README.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield re.findall(r"`([^`]+\.py)`", cells[0]), cells[2]


def test_readme_names_the_patches_of_each_file() -> None:
    """The table has, for each file that changes something, just the patches that the file declares it for."""
    described = {file: patches.split(", ") for files, patches in list_rows() for file in files}
    declared: dict[str, set[str]] = {}
    for name, overlay_name in overlay.patched_modules(overlay.overlay_dir()).items():
        file = Path(str(sys.modules[overlay_name].__file__)).relative_to(overlay.overlay_dir()).as_posix()
        owners = [name, *(f"{name}.{owner}" for owner in vars(sys.modules[name]))]
        changes = [change for change in _patching.made if change.where in owners and "test" not in change.by]
        declared[file] = {patch for change in changes for patch in change.by.split(", ")}
        assert changes, f"{file} declares nothing"
    assert {file: sorted(patches) for file, patches in declared.items()} == {
        file: sorted(described[file]) for file in declared
    }


# *** what observers change


class Broken(types.ModuleType):
    """A module of tinygrad with some things of another shape."""

    def __init__(self, stock: Any, **changed: Any) -> None:
        super().__init__(stock.__name__)
        self.__dict__.update({**vars(stock), **changed})


def other(x: Any) -> Any:
    return x


def broken_tensor(**changed: Any) -> Any:
    stock = tinygrad.tensor.Tensor
    return Broken(tinygrad.tensor, Tensor=type("Tensor", (stock,), changed))


def test_observers_refuse_another_shape(tmp_path: Path) -> None:
    before, broken = dict(vars(tinygrad.Tensor)), broken_tensor(realize=other)
    for watch in (lambda: note_values(broken, Recorder()), lambda: Collector(tmp_path, Recorder()).watch(broken)):
        with pytest.raises(UnknownShape, match=r"Tensor\.realize is not what tinygrad 0.12.0 has there: .*, found"):
            watch()
    assert dict(vars(tinygrad.Tensor)) == before


@pytest.fixture(params=["realize.ExecItem.run", "jit.CapturedJit.__call__"])
def changed_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A method of another shape than in tinygrad 0.12.0; only launches or replays need it."""
    module, owner, method = request.param.split(".")
    monkeypatch.setattr(getattr(importlib.import_module(f"tinygrad.engine.{module}"), owner), method, other)
    return f"{owner}.{method}"


def test_evidence_goes_without_what_has_another_shape(changed_name: str, tmp_path: Path) -> None:
    """Calls of `Tensor.realize` are watched all the same, and the tool says what it did not see."""
    recorder = Recorder()
    Collector(tmp_path, recorder).watch(broken_tensor(realize=tinygrad.Tensor.realize))
    assert any(f"{changed_name} is not what tinygrad 0.12.0 has there" in line for line in recorder.missing)


def test_evidence_on_the_overlay_refuses_another_shape(changed_name: str, tmp_path: Path) -> None:
    """The overlay knows its release, so `check` never compares less than it says."""
    recorder = Recorder()
    recorder.is_strict = True
    with pytest.raises(OverlayError, match=f"{re.escape(changed_name)} is not what"):
        Collector(tmp_path, recorder).watch(broken_tensor(realize=tinygrad.Tensor.realize))


def test_a_rule_is_compiled_when_it_is_often_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each run compiles hundreds of rules that it hardly tries. A rule keeps the globals of the time when its
    matcher was built: what a patch replaces later must not change it."""
    compiled: list[UPat] = []
    stock = tinygrad.uop.upat.upat_compile

    def note_compiled(pattern: UPat, function: Callable[..., Any]) -> Any:
        compiled.append(pattern)
        return stock(pattern, function)

    monkeypatch.setattr(tinygrad.uop.upat, "upat_compile", note_compiled)
    names: dict[str, Any] = {"answer": lambda: 1}
    exec("rule = lambda x: answer()", names)
    pattern, other = UPat(Ops.CONST, name="x"), UPat(Ops.ADD, name="x")
    matcher = PatternMatcher([(pattern, names["rule"]), (other, names["rule"])])
    names["answer"] = lambda: 2
    tries = overlay_ops.COMPILED_AFTER
    assert [matcher.rewrite(UOp.const(dtypes.int, 3)) for _ in range(tries - 1)] == [1] * (tries - 1)
    assert compiled == []
    assert [matcher.rewrite(UOp.const(dtypes.int, 3)) for _ in range(2)] == [1, 1]
    assert compiled == [pattern]
