from tinygrad import Tensor

image = Tensor.empty(1, 4, 12, 12)
first, second = Tensor.empty(6, 4, 3, 3), Tensor.empty(6, 6, 3, 3)
out = image.conv2d(first, padding=1).relu().conv2d(second, padding=1).relu()
