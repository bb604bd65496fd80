"""An account of a run: what happened, counted apart from what was recorded, and how much of it was compared or shown.

Only a balanced account, with nothing left over, lets the tool say that all is right."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vmapdbg.model.wording import format_plural

Counted = str
"""What is counted:

- `outputs`: tensors that `Tensor.realize` was asked for. What TinyJit only captures is counted as the replays of it.
- `buffers`: buffers of the snippet that these tensors assign to.
- `gradients`: tensors for which autograd was asked for a gradient, under `check --gradients`.
- `replays`, `calls`: runs of what TinyJit captured; calls of its functions.
- `schedules`, `launches`: schedules created; kernels and copies that ran, without those of replays.
- `other schedules`, `other launches`: those by other means than `Tensor.realize` and TinyJit.
- `kernels`: different kernels of a program.
- `elements`, `passes`: elements of an output that was compared otherwise; passes after which its value is unknown.
- `processes`: processes of a program whose counts are not complete."""

UNKNOWN = "no reason is known"
OTHER = "scheduled by other means than Tensor.realize"


@dataclass(frozen=True)
class Left:
    """`count` of the things `what` were not compared or not shown, for a `reason`. `number`: only the output or the
    buffer with this number. A count of 0 is a remark: the reason does not change what was compared."""

    what: Counted
    count: int
    reason: str
    number: int | None = None

    @property
    def sentence(self) -> str:
        """The reason with what it is about: `output 3: ...`, `3 replays of it by TinyJit: ...`."""
        if self.number is not None:
            about = {"outputs": f"output {self.number}", "buffers": f"buffer {self.number} that it writes"}
            return f"{about.get(self.what, self.what)}: {self.reason}"
        replays = f"{format_plural(self.count, 'replay')} of it by TinyJit: "
        elements = f"{format_plural(self.count, 'element')}: "
        kernels = f"{format_plural(self.count, 'kernel')}: "
        return {"replays": replays, "elements": elements, "kernels": kernels}.get(self.what, "") + self.reason


@dataclass(frozen=True)
class Account:
    """What was `seen`, how much of it was `compared` (by a command that compares nothing: shown), and what is `left`,
    by reason. A name that `seen` lacks was not counted."""

    seen: dict[Counted, int] = field(default_factory=dict[str, int])
    compared: dict[Counted, int] = field(default_factory=dict[str, int])
    left: tuple[Left, ...] = ()

    def part(self, *names: Counted) -> "Account":
        """Returns the account of some of the counts."""
        seen = {what: count for what, count in self.seen.items() if what in names}
        compared = {what: count for what, count in self.compared.items() if what in names}
        return Account(seen, compared, tuple(left for left in self.left if left.what in names))

    @property
    def of_launches(self) -> "Account":
        """The launches of a run, and how many of them a capture shows."""
        part = self.part("launches", "other launches", "processes")
        return settle(part.seen, part.compared, part.left, "no schedule that was recorded has them")

    @property
    def is_balanced(self) -> bool:
        """Whether something was counted, and nothing is left over."""
        return bool(self.seen) and not self.left


def settle(
    seen: Mapping[Counted, int], compared: Mapping[Counted, int], reasons: Iterable[Left], rest: str = UNKNOWN
) -> Account:
    """Returns the account. Each thing that was seen is compared, or left over for the first of the `reasons` that is
    about it, else for the reason `rest`, or because it is `other`. Reasons about what is not in `seen` stay as they
    are."""
    left: Counter[tuple[Counted, str]] = Counter()
    open_counts = {what: max(count - compared.get(what, 0), 0) for what, count in seen.items()}
    for one in reasons:
        count = min(one.count, open_counts.get(one.what, one.count))
        if one.what in open_counts:
            open_counts[one.what] -= count
        left[one.what, one.reason] += count
    for what, count in open_counts.items():
        left[what, OTHER if what.startswith("other") and rest == UNKNOWN else rest] += count
    found = tuple(Left(what, count, reason) for (what, reason), count in left.items() if count)
    return Account(dict(seen), {what: min(compared.get(what, 0), count) for what, count in seen.items()}, found)


def add_accounts(accounts: Iterable[Account]) -> Account:
    """Returns one account of several runs or parts of a run."""
    seen: Counter[Counted] = Counter()
    compared: Counter[Counted] = Counter()
    merged: dict[tuple[Counted, str], Left] = {}
    for one in accounts:
        seen.update(one.seen)
        compared.update(one.compared)
        for left in one.left:
            known = merged.setdefault((left.what, left.reason), replace(left, count=0))
            merged[left.what, left.reason] = replace(known, count=known.count + left.count)
    return Account(dict(seen), dict(compared), tuple(merged.values()))
