# A JVP under an outer vmap: a node that depends on two RANGEs must keep both.
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
from tinygrad import Tensor, dtypes
from tinygrad.func import jvp_of, vmap

z = Tensor([1.5, 1.0, 2.0, 3.0, 4.0], dtype=dtypes.float64).realize()  # gamma, and four x
gamma = z[:1]


def row(x: Tensor) -> Tensor:
    y = x * gamma
    stacked = Tensor.stack(y[0], y[0] + y[1])[[0, 1]]  # depends on gamma, and is read more than once
    return gamma * stacked  # gamma**2 * (x0, x0+x1)


output = vmap(row)(z[1:].reshape(2, 2)).flatten()

direct = jvp_of(output, z, Tensor([1.0, 0.0, 0.0, 0.0, 0.0], dtype=dtypes.float64))
print("direct JVP for gamma", direct.tolist())

directions = Tensor.eye(5, dtype=dtypes.float64)  # one column each
jacobian = vmap(lambda direction: jvp_of(output, z, direction), in_axes=1, out_axes=1)(directions)  # (4, 5)
print("vmapped JVP, column ", [row[0] for row in jacobian.tolist()])
