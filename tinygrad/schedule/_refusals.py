"""Why a realize point stays although a fusion, or stock's removal of buffers, would remove it: a rule and its numbers.

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
| fusion-guard | more-memory | peak, stock_peak | fused, its buffers would take {peak:,} bytes at the peak instead of {stock_peak:,}, and it saves too little time for that |
| realize-reused | stored-once | evaluations, elements, kernels, bytes, ns, stock_ns, target | REUSED: stored once, PREDICTED |
| realize-reused | not-paid | as stored-once | REUSED; stored once, PREDICTED, which is too little |
| realize-reused | over-memory | as stored-once, and peak, stock_peak | REUSED; stored once, PREDICTED, but {peak:,} bytes for {stock_peak:,} at the peak |

REUSED is "computed {evaluations:,} times for {elements:,} elements", followed by "in {kernels} kernels" if there are several. PREDICTED is
"predicted {stock_ns/1000:,.1f} -> {ns/1000:,.1f} us on {target}": first all kernels that compute the value, then these and the kernel that stores it;
of not-paid, the kernels as they were made.
FUSED is "fused: {kernels} kernel for {stock_kernels} kernels", in the plural if needed ("fused: 1 kernel for 2 kernels").
Numbers without `stock_` are sums over the fused kernels, numbers with it are sums over the kernels that the fusion replaces. `ops`, `reads`, `nodes`
and `attempts` are counts, `ns` is the predicted time in nanoseconds (a float), `target` the name of the renderer without "Renderer", `error`
codegen's error. `limit` is the rule's limit: bytes, reads, factor of work (2.0), share of threads (0.25: a quarter). If stock_ops is 0, the ratio is
computed with 1.
"""
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass(frozen=True)
class Refusal:
  """Why a node keeps its realize point: `patch` decided it, by `rule`, because of `numbers` (see the table above)."""
  patch: str
  rule: str
  numbers: dict[str, int|float|str] = field(default_factory=dict)
