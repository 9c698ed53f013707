"""Train a language model of bytes with a find: python train.py FIND.py TEXT [STEPS]."""

import runpy
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

DIM, HEADS, DEPTH, LENGTH = 64, 4, 2, 64
find, text = runpy.run_path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
attention = find.get("attention_of_layer", lambda layer, dim, heads: find["Attention"](dim, heads))


class Layer(nn.Module):
    """Attention and a network of two layers, each after a norm and beside its input."""

    def __init__(self, number):
        super().__init__()
        self.attention, self.norm = attention(number, DIM, HEADS), nn.LayerNorm(DIM)
        mlp = nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM)
        self.mlp = nn.Sequential(nn.LayerNorm(DIM), *mlp)

    def forward(self, x):  # noqa: D102
        x = x + self.attention(self.norm(x), is_causal=True)
        return x + self.mlp(x)


torch.set_flush_denormal(True)  # with denormal weights of attention a processor is slow
torch.manual_seed(0)
layers = [Layer(number) for number in range(DEPTH)]
model = nn.Sequential(nn.Embedding(256, DIM), *layers, nn.LayerNorm(DIM), nn.Linear(DIM, 256))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
data = torch.tensor(list(text)).unfold(0, LENGTH + 1, LENGTH)
for step in range(1, int(sys.argv[3]) + 1 if len(sys.argv) > 3 else 501):
    batch = data[torch.randint(len(data), (16,))]
    loss = F.cross_entropy(model(batch[:, :-1]).transpose(1, 2), batch[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: {loss.item() / 0.6931:.2f} bits a byte", flush=True)
