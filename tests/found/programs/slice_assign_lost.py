# cause: an assign to a view that is a slice of a realized value is lost: the value does not know of it
# found by: hunt, seed 1 number 21 (the releases print different numbers)
# on 0.12.0: differs: Not equal to tolerance rtol=1e-07, atol=0 Mismatched elements: 1 / 2 (50%) Mismatch at index: [1, 0]: 2.0 (ACTUAL), 4.0 (DESIRED) Max absolute differe
# on 0.13.0: ok
# on 0.14.0: ok
# on patches: differs: Not equal to tolerance rtol=1e-07, atol=0 Mismatched elements: 1 / 2 (50%) Mismatch at index: [1, 0]: 2.0 (ACTUAL), 4.0 (DESIRED) Max absolute differe
import numpy as np
from tinygrad import Tensor

x = Tensor(np.array([[1.0], [2.0]], dtype="float32")).realize()
x[1:3].assign(x[1:3] * 2)
np.testing.assert_allclose(x.numpy(), [[1.0], [4.0]])
