# tinygrad: 8c9e8d38a9~1
# fixed by 8c9e8d38a9 (2026-06-26): fix permute copy
# bisect: --by values --commits 8c9e8d38a9~8..afe9fcaec8
# a flipped value is copied to another device: the copy is not flipped
# right: [3, 2, 1, 0]
from tinygrad import Tensor

print(Tensor([0, 1, 2, 3], device="CPU").flip(0).to("PYTHON").tolist())
