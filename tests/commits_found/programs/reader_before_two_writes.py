# tinygrad: c8aed121cf~1
# fixed by c8aed121cf (2026-07-01): fix WAR in create_schedule
# bisect: --by values --commits c8aed121cf~8..682b098542
# a value that reads a buffer, then two writes to the buffer, realized together: the value is read after the first write
# right: [11.0] [5.0]
from tinygrad import Tensor

x = Tensor([1.0]).realize()
reader = x + 10
x.assign(x * 2)
x.assign(x + 3)
Tensor.realize(x, reader)
print(reader.tolist(), x.tolist())
