"""The targets that kernels are rendered for. Nothing of tinygrad is imported here: the command line has the names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """The renderer of tinygrad 0.12.0 for a target: its module in `tinygrad.renderer`, its class, and the architecture
    that its constructor wants, None where it wants none."""

    module: str
    renderer: str
    arch: str | None = None


# the architectures stand for the current common ones: tensor cores depend on them
TARGETS = {
    "c": Target("cstyle", "ClangRenderer"),
    "metal": Target("cstyle", "MetalRenderer"),
    "cuda": Target("cstyle", "CUDARenderer", "sm_80"),
    "opencl": Target("cstyle", "OpenCLRenderer"),
    "hip": Target("cstyle", "AMDHIPRenderer", "gfx1100"),
    "wgsl": Target("wgsl", "WGSLRenderer"),
    "llvm": Target("llvmir", "LLVMRenderer"),
}
DEFAULT_TARGET = "c"
