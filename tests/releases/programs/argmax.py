from tinygrad import Tensor

scores = Tensor.empty(6, 48)
best = scores.argmax(1)
