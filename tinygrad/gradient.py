"""Gradients through a vmap scope (patch vmap-ops)."""
from __future__ import annotations
import dataclasses
from types import ModuleType
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat, all_metadata
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.schedule._scopes import collect_batch, vmap_ranges

def only_first(node:UOp, grad:UOp) -> tuple: return (grad,)+(None,)*(len(node.src)-1)

# each step of the RANGE read one slice: collect the slices of the gradient
def leave_scope(ctx:UOp, ret:UOp) -> tuple: return only_first(ret, UOp(Ops.VMAPOUT, ctx.dtype, (ctx,)+ret.src[1:]))
def enter_scope(ctx:UOp, ret:UOp) -> tuple: return only_first(ret, UOp(Ops.VMAPIN, ctx.dtype, (ctx,)+ret.src[1:]))
# stock never uses the gradient of an ASSIGN
def pass_to_value(ctx:UOp, ret:UOp) -> tuple: return (None, ctx)+(None,)*(len(ret.src)-2)

def put_slice_back(grad:UOp, vmapin:UOp, around:dict) -> UOp:
  """Returns the gradient of a VMAPIN's source if the whole gradient is inside that scope: this step's slice in its place, zero elsewhere."""
  varg = vmapin.src[1:]
  if left:=tuple(a for a in varg if a not in around):
    grad = UOp(Ops.VMAPOUT, grad.dtype, (grad,)+left) if any(a.op is Ops.RANGE for a in left) else grad
  shape = vmapin.src[0].shape
  grad = grad.reshape(tuple(1 if a in around else s for a,s in zip(varg, shape)))
  # a buffer, because codegen wrongly folds a reduce over offsets that depend on a RANGE
  return grad.pad(tuple((a, s-1-a) if a in around else (0, 0) for a,s in zip(varg, shape))).contiguous()

vmap_gradient = PatternMatcher([(UPat(Ops.VMAPIN, name="ret"), leave_scope), (UPat(Ops.VMAPOUT, name="ret"), enter_scope),
                                (UPat(Ops.ASSIGN, name="ret"), pass_to_value),
                                # floor, ceil, round and trunc are step functions: stock has no rule, jax has zero
                                (UPat(Ops.TRUNC), lambda: (None,))])

def find_path(root:UOp, targets:set[UOp], named:frozenset[UOp]) -> list[UOp]:
  """Returns the nodes between the targets and root, sources first. Stock ends at each ASSIGN; inside a scope the path goes to the written value."""
  on_path: dict[UOp, None] = {}
  for u in root.toposort():
    if u.op is Ops.DETACH or (u.op is Ops.ASSIGN and not any(r in named for r in u.ranges)): continue
    if any(s in targets or s in on_path for s in u.src): on_path[u] = None
  return list(on_path)

def compute_gradient(root:UOp, root_grad:UOp, targets:set[UOp]) -> dict[UOp, UOp]:
  """Returns node -> gradient like stock, also for graphs with vmap scopes. Every step of a scope uses a value from outside, so its gradient is summed
  over the RANGE at the edge of the scope, before it meets gradients from outside. Ranges open in root or root_grad belong to a scope around the whole
  gradient: each of its steps has a separate gradient."""
  named = vmap_ranges(UOp.sink(root, root_grad).toposort())
  if not named: return stock_compute_gradient(root, root_grad, targets)
  around = {**root.ranges, **root_grad.ranges}
  grads = {root: root_grad}
  for node in reversed(find_path(root, targets, named)):
    if node not in grads: continue
    if node.op is Ops.VMAPIN and any(a in around for a in node.src[1:]): of_srcs = only_first(node, put_slice_back(grads[node], node, around))
    elif (of_srcs:=pm_gradient.rewrite(node, ctx=grads[node])) is None: raise RuntimeError(f"failed to compute gradient for {node.op}: there is no rule for it")
    for src,grad in zip(node.src, of_srcs, strict=True):
      if grad is None: continue
      # (4,) inside a scope of size 3 is (3, 4) after VMAPOUT, and (4,) summed
      if ranges:=[r for r in grad.ranges if r in named and r not in src.ranges and r not in around]:
        grad = collect_batch(grad, ranges).r(Ops.ADD, tuple(range(len(ranges)))).reshape(grad.shape)
      mark_backward(node, grad, grads[node])
      grads[src] = grads[src]+grad if src in grads else grad
  # like stock, for ranges that belong to no vmap scope
  others = {node:[r for r in grad.ranges if r not in named and r not in around] for node,grad in grads.items()}
  return {node:grad.reduce(*others[node], arg=Ops.ADD) if others[node] else grad for node,grad in grads.items()}

def mark_backward(node:UOp, grad:UOp, upstream_grad:UOp) -> None:
  if not (forward:=all_metadata.get(node, ())): return
  backward = tuple(dataclasses.replace(m, backward=True) for m in forward)
  known = {node, upstream_grad, *node.src}
  for u in grad.toposort(lambda u: u not in known): all_metadata[u] = all_metadata.get(u, ())+backward

def patch(module:ModuleType) -> None:
  global pm_gradient, stock_compute_gradient
  with Changes("vmap-ops") as changes:
    pm_gradient = changes.add_rules(module, "pm_gradient", vmap_gradient, at=0)
    stock_compute_gradient = changes.replace(module, "compute_gradient", compute_gradient)
