# A JVP under an outer vmap: a node that depends on two RANGEs must keep both (seed 001).
#
# What to see: `output` has a vmap scope of its own (rm1), and the Jacobian puts a scope (rm2) around its JVP. The ambient
# ranges of the nodes in the tangent graph are the union over their sources: rm1 and rm2. Without nested-ranges the first
# source decides, the buffer of the inner VMAPOUT has no place for rm2, and the gamma column is that of the last x.
#
#   vmapdbg show samples/nested_jvp.py --only vmap,bufferize
#   vmapdbg show samples/nested_jvp.py --patches all,-nested-ranges
#
# expect: prints "direct JVP for gamma [3.0, 9.0, 9.0, 21.0]"
# expect: prints "vmapped JVP, column  [3.0, 9.0, 9.0, 21.0]"
# expect[all,-nested-ranges]: prints "vmapped JVP, column  [0.0, 0.0, 0.0, 2.25]"
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType, GroupOp, Ops

keep = UOp.const(dtypes.index, 0)


def jvp(output: Tensor, inputs: Tensor, tangents: Tensor) -> Tensor:
    """The derivative of `output` along `tangents`, for a graph of +, *, where, sums, movement ops and vmap scopes."""
    tangent = {inputs.uop: tangents.uop}
    for u in output.uop.toposort():
        moving = [s for s in u.src if s in tangent]
        if u in tangent or not moving:
            continue
        if u.op is Ops.MUL:
            a, b = u.src
            terms = [tangent[s] * other for s, other in ((a, b), (b, a)) if s in tangent]
            tangent[u] = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        elif u.op is Ops.ADD:
            tangent[u] = tangent[moving[0]] if len(moving) == 1 else tangent[u.src[0]] + tangent[u.src[1]]
        elif u.op is Ops.WHERE:
            tangent[u] = u.src[0].where(*[tangent.get(s, s.const_like(0)) for s in u.src[1:]])
        elif u.op in LINEAR or u.arg[0] is Ops.ADD:
            tangent[u] = u.replace(src=(tangent[u.src[0]], *u.src[1:]))
        else:
            raise NotImplementedError(f"no JVP rule for {u.op}")
    return Tensor(tangent[output.uop], device=output.device)


LINEAR = GroupOp.Movement | GroupOp.VMap | {Ops.CONTIGUOUS, Ops.CAST}

z = Tensor([1.5, 1.0, 2.0, 3.0, 4.0], dtype=dtypes.float64).realize()  # gamma, and four x
inner = UOp.range(2, -1, AxisType.LOOP)
x = z[1:].reshape(2, 2).vmapin((inner, keep))
gamma = z[:1]
y = x * gamma
stacked = Tensor.stack(y[0], y[0] + y[1])[[0, 1]]  # depends on gamma, and is read more than once
output = (gamma * stacked).vmapout((inner, keep)).flatten()  # gamma**2 * (x0, x0+x1), for each row

direct = jvp(output, z, Tensor([1.0, 0.0, 0.0, 0.0, 0.0], dtype=dtypes.float64))
print("direct JVP for gamma", direct.tolist())

outer = UOp.range(5, -2, AxisType.LOOP)
directions = Tensor.eye(5, dtype=dtypes.float64).vmapin((keep, outer))
jacobian = jvp(output, z, directions).vmapout((keep, outer))  # (4, 5)
print("vmapped JVP, column ", [row[0] for row in jacobian.tolist()])
