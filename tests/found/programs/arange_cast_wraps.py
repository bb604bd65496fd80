# cause: an arange that is cast to a smaller integer and compared with an index is taken for a gather, as if the cast did not wrap around
# found by: hand
# on 0.12.0: wrong: program.py:8: output 0: 2 of 4 elements of float (4,) are wrong, at (0,) it is 1.0 and not 258.0
# on 0.13.0: wrong: program.py:8: output 0: 2 of 4 elements of float (4,) are wrong, at (0,) it is 1.0 and not 258.0
# on 0.14.0: wrong: program.py:8: output 0: 2 of 4 elements of float (4,) are wrong, at (0,) it is 1.0 and not 258.0
# on patches: wrong: program.py:8: output 0: 2 of 4 elements of float (4,) are wrong, at (0,) it is 1.0 and not 258.0
from tinygrad import Tensor, dtypes

y = Tensor.arange(1, 301).float().contiguous().realize()
i = Tensor([[0], [43], [44], [255]], dtype=dtypes.uint8).contiguous().realize()
picked = (Tensor.arange(300).cast(dtypes.uint8) == i).where(y, 0).sum(-1)
print(picked.numpy())
