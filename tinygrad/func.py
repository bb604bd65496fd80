"""`tinygrad.func`: functions of functions, in the manner of jax and torch.func.

 - `vmap` maps a function of one element over a batch
 - `jvp`, `jvp_of` and `linearize` push a derivative forward, `grad`, `value_and_grad` and `vjp` pull one back
 - `jacfwd`, `jacrev`, `hessian` and `jacobian` are dense derivatives
 - `jacobian_sparsity`, `color` and `sparse_jacobian` are sparse ones: which elements can be nonzero, which can be computed together, their values
 - `functional_call` and `stack_module_state` make a module a function of its state
 - `register_pytree` lets all of them see into objects of a class

All are lazy: they build a graph, and work under each other, under TinyJit and with `Tensor.gradient`.
"""
from tinygrad_overlay._func.derivatives import grad, hessian, jacfwd, jacobian, jacrev, jvp, jvp_of, linearize, value_and_grad, vjp
from tinygrad_overlay._func.pattern import Coloring, SparsityPattern, color
from tinygrad_overlay._func.sparse import SparseCOO, SparseCSR, jacobian_sparsity, sparse_jacobian
from tinygrad_overlay._func.state import functional_call, stack_module_state
from tinygrad_overlay._func.tree import register_pytree
from tinygrad_overlay._func.vmap import vmap

__all__ = ["Coloring", "SparseCOO", "SparseCSR", "SparsityPattern", "color", "functional_call", "grad", "hessian", "jacfwd", "jacobian",
           "jacobian_sparsity", "jacrev", "jvp", "jvp_of", "linearize", "register_pytree", "sparse_jacobian", "stack_module_state", "value_and_grad",
           "vjp", "vmap"]
