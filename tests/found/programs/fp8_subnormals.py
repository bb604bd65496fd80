# cause: where tinygrad computes fp8 in half, it takes the subnormal numbers of fp8 for zero
# found by: upstream's test_dtype.py under `run --check`
# on 0.12.0: crash: compiler: type name requires a specifier or qualifier
# on 0.13.0: wrong: program.py:10: output 0: 3 of 4 elements of float (4,) are wrong, at (0,) it is 0.0 and not 0.001953125
# on 0.14.0: wrong: program.py:10: output 0: 3 of 4 elements of float (4,) are wrong, at (0,) it is 0.0 and not 0.001953125
# on patches: crash: compiler: type name requires a specifier or qualifier
from tinygrad import Tensor, dtypes

x = Tensor([1, 7, 8, 130], dtype=dtypes.uchar).realize()
print(x.bitcast(dtypes.fp8e4m3).cast(dtypes.float).numpy())
