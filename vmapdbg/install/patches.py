"""What each patch does, and how a `--patches` value is read. The overlay gets names, in an environment variable."""

from dataclasses import dataclass

from vmapdbg.model.failure import Failure

Patches = frozenset[str]  # the names of the switchable patches that are on


class PatchError(Failure, ValueError):
    """A `--patches` value that names no patch."""


@dataclass(frozen=True)
class Patch:
    """One patch of the overlay."""

    name: str
    summary: str
    switchable: bool = True


PATCHES = (
    Patch(
        "vmap-ops", "VMAPIN and VMAPOUT: shape rules, spec, Tensor and UOp methods, range assignment", switchable=False
    ),
    Patch("ambient-ranges", "ambient ranges (vmap_map) in BUFFERIZE and INDEX of nodes realized inside a scope"),
    Patch("nested-ranges", "a node's ambient ranges are the union over its sources, less what a VMAPOUT ends"),
    Patch("close-ranges", "a global store closes every open range of its value"),
    Patch("fuse-broadcast", "a range that ends makes a realize point only where ranges are out of order"),
    Patch("local-budget", "LOCAL buffers of one kernel, with GROUP memory, stay within the target's limit"),
    Patch("fusion-guard", "a fusion that costs redundant work or parallelism is refused, with its numbers"),
    Patch("realize-reused", "a value that its readers compute again gets a buffer where storing it is cheaper"),
    Patch("whole-gathers", "an index by tensors is one load: its reduce is not split, and goes"),
    Patch("short-scans", "a cumsum or logcumsumexp takes a few ops for each element, if that pays"),
)

SWITCHABLE = tuple(patch.name for patch in PATCHES if patch.switchable)
ALL = frozenset(SWITCHABLE)


def parse_patches(spec: str) -> Patches:
    """Returns the switchable patches that `spec` turns on: `all`, `none`, or a list of names, where `-name` turns a
    patch off and a leading `-` starts with all (`all,-close-ranges`, `-close-ranges`). Raises PatchError."""
    chosen = set(ALL) if spec.lstrip().startswith("-") else set[str]()
    for item in (part.strip() for part in spec.split(",")):
        off, name = item.startswith("-"), item.lstrip("-+")
        if name in ("all", "none") and not off:
            chosen = set(ALL) if name == "all" else set[str]()
        elif name not in {patch.name for patch in PATCHES}:
            raise PatchError(f"unknown patch {item!r}: choose from all, none, {', '.join(SWITCHABLE)}")
        elif off and name not in ALL:
            raise PatchError(f"patch {name!r} is always on: it only adds the ops")
        elif off:
            chosen.discard(name)
        else:
            chosen.add(name)
    return frozenset(chosen & ALL)


def format_patches(chosen: Patches) -> str:
    """Returns the names in table order, comma separated, or `none`: the environment variable's value."""
    return ",".join(name for name in SWITCHABLE if name in chosen) or "none"


def spell_patches(chosen: Patches) -> str:
    """Returns the shortest value of --patches that turns on exactly these patches."""
    off = [name for name in SWITCHABLE if name not in chosen]
    return ",".join(["all", *(f"-{name}" for name in off)]) if len(off) < len(chosen) else format_patches(chosen)


def patch_states(chosen: Patches) -> dict[str, bool]:
    """Returns every patch of the table with its state, in table order."""
    return {patch.name: not patch.switchable or patch.name in chosen for patch in PATCHES}
