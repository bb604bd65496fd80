# A Jacobian by an outer vmap around a vmap scope, with a JVP written by hand.
#
# What to see: it is right in every state of the patches; samples/nested_jvp.py shows what nested-ranges repairs. It goes
# wrong on a tinygrad that has VMAPIN and VMAPOUT in its own source, if the first source of a node decides its ambient
# ranges. There the terms of the product rule that read a buffer of another scope are lost:
# column gamma is half of what it must be, [0.27, 0.315], and `vmapdbg check --tinygrad THAT_TREE` finds it.
#
#   vmapdbg show samples/product_rule.py --only vmap,bufferize
#   vmapdbg check samples/product_rule.py --tinygrad YOUR_TREE
#
# expect: prints "gamma [0.54, 0.63]"
# expect[all,-nested-ranges]: prints "gamma [0.54, 0.63]"
# expect[all,-ambient-ranges]: prints "gamma [0.54, 0.63]"
# expect[none]: prints "gamma [0.54, 0.63]"
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType, Ops


def jvp(out, x, tangent):
    """Pushes a tangent of `x` forward, node by node: the product rule for MUL; any other op here is linear."""
    pushed = {x.uop: tangent.uop}
    for u in out.uop.toposort():
        if u in pushed or not any(s in pushed for s in u.src):
            continue
        if u.op is Ops.MUL:
            a, b = u.src
            terms = [pushed[a] * b] if a in pushed else []
            terms += [a * pushed[b]] if b in pushed else []
            pushed[u] = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        else:
            pushed[u] = u.replace(src=tuple(pushed.get(s, s) for s in u.src))
    return Tensor(pushed[out.uop], device=out.device)


z = Tensor([0.6, 0.7, 0.45], dtype=dtypes.float64).realize()  # x0, x1, gamma
keep = UOp.const(dtypes.index, 0)
inner = (keep, UOp.range(1, -1, AxisType.LOOP))
xv = z[:2].reshape(2, 1).vmapin(inner)  # (2,)
g = z[2:]
y = xv * g
output = (g * Tensor.stack(y[0], y[1])).vmapout(inner).flatten()  # gamma**2 * x

outer = (keep, UOp.range(3, -2, AxisType.LOOP))
directions = Tensor.eye(3, dtype=dtypes.float64).vmapin(outer)
jacobian = jvp(output, z, directions).vmapout(outer)  # (2, 3)
print("gamma", [round(row[2], 9) for row in jacobian.tolist()])
