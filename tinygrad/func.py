"""`tinygrad.func`: functions of functions, in the manner of jax and torch.func.

 - `vmap` maps a function of one element over a batch
 - `jvp` and `jvp_of` push a derivative forward
 - `jacfwd`, `jacrev`, `hessian` and `jacobian` are dense derivatives

All are lazy: they build a graph, and work under each other, under TinyJit and with `Tensor.gradient`.
"""
from tinygrad_overlay._func.jacobian import hessian, jacfwd, jacobian, jacrev
from tinygrad_overlay._func.jvp import jvp, jvp_of
from tinygrad_overlay._func.vmap import vmap

__all__ = ["hessian", "jacfwd", "jacobian", "jacrev", "jvp", "jvp_of", "vmap"]
