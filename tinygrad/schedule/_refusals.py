"""Why a realize point stands where a fusion, or stock's own removal of buffers, would take it away: a rule, and the numbers that it was decided by.

| patch | rule | numbers | as a sentence |
|---|---|---|---|
| local-budget | local-too-large | bytes, limit | its LOCAL buffer needs {bytes:,} bytes, the target has {limit:,} |
| local-budget | local-over-budget | buffers, bytes, limit | the {buffers} LOCAL buffers of its kernel need {bytes:,} bytes, the target has {limit:,} |
| fusion-guard | local-read-often | reads, limit | its LOCAL buffer would be read {reads:,} times, in a kernel that gets no opts ({limit:,} reads are allowed) |
| fuse-broadcast | reduce-at-two-places | | its kernel would run the loop of one reduce at two places |
| fusion-guard | not-settled | attempts | not settled after {attempts} attempts |
| fusion-guard | not-tried | nodes, limit | not tried: it is in a part of {nodes:,} nodes, and parts of {limit:,} nodes are tried in one graph |
| fusion-guard | codegen-fails | kernels, stock_kernels, error | FUSED, but codegen fails on it ({error}) |
| fusion-guard | no-kernel-saved | kernels, stock_kernels | FUSED: it saves no kernel |
| fusion-guard | more-work | kernels, stock_kernels, ops, stock_ops, limit | FUSED, but {ops/stock_ops:.1f} times the work ({stock_ops:,} -> {ops:,} ops; {limit:.0f} times is allowed) |
| fusion-guard | fewer-threads | kernels, stock_kernels, threads, stock_threads, limit | FUSED, but {stock_threads:,} -> {threads:,} threads in the least parallel one (a quarter is allowed) |
| fusion-guard | slower | kernels, stock_kernels, ns, stock_ns, target | FUSED, but predicted slower on {target}: {stock_ns/1000:,.1f} -> {ns/1000:,.1f} us |
| fusion-guard | no-faster | as slower | FUSED, but predicted no faster on {target}: {stock_ns/1000:,.1f} -> {ns/1000:,.1f} us |
| realize-reused | stored-once | evaluations, elements, kernels, bytes, ns, stock_ns, target | REUSED: stored once, PREDICTED |
| realize-reused | over-memory | as stored-once, and limit | REUSED; stored once, PREDICTED, but {bytes:,} bytes are over {limit:,} |

REUSED is "computed {evaluations:,} times for {elements:,} elements", with "in {kernels} kernels" after it where these are more than one, PREDICTED
"predicted {stock_ns/1000:,.1f} -> {ns/1000:,.1f} us on {target}": all kernels that compute the value, and then those and the one that stores it.
FUSED is "fused: {kernels} kernel for {stock_kernels} kernels", each with the s where it is not one ("fused: 1 kernel for 2 kernels").
The numbers without `stock_` are those of the fused kernels, together; those with it are of the kernels that the fusion replaces. `ops`, `reads`, `nodes`
and `attempts` are counts, `ns` is the predicted time in nanoseconds (a float), `target` the name of the renderer without "Renderer", `error` what codegen
raised. `limit` is what the rule allows: bytes, reads, how many times the work (2.0), the part of the threads (0.25: a quarter). A work of no ops counts
as one (stock_ops is 0 then, and the ratio is that to 1).
"""
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass(frozen=True)
class Refusal:
  """Why a realize point stands at a node: `patch` asked for it, by `rule`, because of `numbers` (see the table above)."""
  patch: str
  rule: str
  numbers: dict[str, int|float|str] = field(default_factory=dict)
