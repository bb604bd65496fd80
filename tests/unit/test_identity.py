"""If an identity map is wrong, `check` compares a Tensor with the meaning of another one."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field

from vmapdbg.child.identity import IdentityMap


@dataclass
class Unhashable:
    """Equal to each other one, and with nothing to add to."""

    others: list[Unhashable] = field(default_factory=list["Unhashable"], compare=False)


def test_equal_objects_have_values_of_their_own() -> None:
    one, other = Unhashable(), Unhashable()
    known: IdentityMap[str] = IdentityMap()
    known[one] = "one"
    assert one == other
    assert other not in known
    assert known.setdefault(other, "other") == "other"
    assert [(key is one, value) for key, value in known.items()] == [(True, "one"), (False, "other")]
    assert vars(one) == {"others": []}, "nothing is added to the object"


def test_an_object_is_forgotten_when_it_is_gone() -> None:
    known: IdentityMap[int] = IdentityMap()

    def note(number: int) -> None:
        # an object in a cycle goes when Python collects it; the others' memory is used again
        thing = Unhashable()
        thing.others = [thing] if number == 1 else []
        assert thing not in known
        known[thing] = known[thing] = number

    for number in range(3):
        note(number)
    gc.collect()
    assert not known
    assert not list(known)


def test_a_map_changes_while_it_is_read() -> None:
    things = [Unhashable() for _ in range(4)]
    known: IdentityMap[int] = IdentityMap()
    known.update((thing, number) for number, thing in enumerate(things))
    seen: list[int] = []

    def read() -> None:
        for thing in known:
            seen.append(known[thing])
            things.clear()

    read()
    assert seen == [0]
    assert not known
