"""Two training steps of a small GPT: dropout, embeddings, AdamW."""

from tinygrad import Tensor, nn
from tinygrad.nn.optim import AdamW

BATCH, TOKENS, WIDTH, HEADS, LAYERS, WORDS = 2, 16, 32, 4, 2, 64


class Block:
    def __init__(self):
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def __call__(self, x):
        heads = self.qkv(self.norm(x)).reshape(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True, dropout_p=0.1)
        x = x + self.out(mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu()).dropout(0.1)


class GPT:
    def __init__(self):
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks, self.head = [Block() for _ in range(LAYERS)], nn.Linear(WIDTH, WORDS)

    def __call__(self, tokens):
        x = self.words(tokens) + self.places(Tensor.arange(TOKENS).reshape(1, TOKENS))
        return self.head(x.sequential(self.blocks))


model = GPT()
optimizer = AdamW(nn.state.get_parameters(model), lr=1e-3)
tokens, labels = Tensor.randint(BATCH, TOKENS, high=WORDS), Tensor.randint(BATCH, TOKENS, high=WORDS)
# from 0.14 on it is the environment variable TRAINING
Tensor.training = True
for _ in range(2):
    optimizer.zero_grad()
    loss = model(tokens).sparse_categorical_crossentropy(labels)
    loss.backward()
    optimizer.step()
