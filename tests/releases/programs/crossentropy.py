from tinygrad import Tensor, dtypes

logits = Tensor.empty(8, 50)
labels = Tensor.empty(8, dtype=dtypes.int)
loss = logits.sparse_categorical_crossentropy(labels)
