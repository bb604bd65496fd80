"""The targets that kernels are rendered for. Nothing here imports tinygrad: the command line needs the names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """What differs between targets. `renderers` are its renderer's names over the releases (the first that exists is
    used). `device` is tinygrad's, `arch` a common one: tensor cores depend on it. `language` is a Pygments lexer."""

    module: str
    renderers: tuple[str, ...]
    device: str
    arch: str
    language: str


TARGETS = {
    "c": Target("cstyle", ("ClangRenderer",), "CPU", "x86_64", "c"),
    "metal": Target("cstyle", ("MetalRenderer",), "METAL", "Apple9", "c++"),
    "cuda": Target("cstyle", ("CUDARenderer",), "CUDA", "sm_80", "cuda"),
    "opencl": Target("cstyle", ("OpenCLRenderer",), "CL", "", "c"),
    "hip": Target("cstyle", ("AMDHIPRenderer", "HIPRenderer"), "AMD", "gfx1100", "cuda"),
    "wgsl": Target("wgsl", ("WGSLRenderer",), "WEBGPU", "", "wgsl"),
    "llvm": Target("llvmir", ("CPULLVMRenderer", "LLVMRenderer"), "CPU", "x86_64", "llvm"),
}
DEFAULT_TARGET = "c"


def language_of(target: str) -> str | None:
    """Returns the language of the source for a target, None if the target is unknown."""
    return None if target not in TARGETS else TARGETS[target].language
