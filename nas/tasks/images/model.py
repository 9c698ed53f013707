"""A small vision transformer with a slot for attention in each layer.

    tokens = [class; W · patch_1; ...; W · patch_n] + positions
    logits = W · norm(x_class)        after the layers

(Dosovitskiy et al. 2021, eqs. 1 to 4.)
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.tasks.base import MakeAttention, ModelTask
from nas.tasks.layers import Transformer, derive_seed, seeded


class VisionTransformer(Transformer):
    """A classifier of images that are cut into ``patches``.

    Args:
        task, attention, seed: see ``Transformer``.
        patch_width: number of values in a patch.
        num_classes: width of the output.
        sines_of: number of patches along an edge, if positions start as sines of row and column.
    """

    def __init__(
        self,
        task: ModelTask,
        attention: MakeAttention,
        seed: int,
        patch_width: int,
        num_classes: int,
        *,
        sines_of: int | None = None,
    ) -> None:
        super().__init__(task, attention, seed)
        dim, _, _, tokens = task.sizes
        with seeded(derive_seed(seed, "ends")):
            self.embed = nn.Linear(patch_width, dim)
            self.class_token = nn.Parameter(torch.randn(1, 1, dim) * task.init_std)
            self.positions = nn.Parameter(torch.randn(1, tokens, dim) * task.init_std)
            self.head = nn.Linear(dim, num_classes)
        if sines_of is not None:
            with torch.no_grad():
                self.positions[0, 1:] = sines(sines_of, dim)

    def forward(self, cut: Float[Tensor, "b n cpp"]) -> Float[Tensor, "b classes"]:
        """Logits of normalised patches."""
        tokens = self.embed(cut)
        start = self.class_token.expand(len(cut), -1, -1).to(tokens.dtype)
        x = torch.cat([start, tokens], dim=1) + self.positions
        logits: Tensor = self.head(self.transform(x, slice(0, 1)).squeeze(1))
        return logits


def sines(side: int, dim: int) -> Float[Tensor, "n dim"]:
    """Sines and cosines of row and column, of wavelengths from 2 pi up, for side x side patches.

    As in Vaswani et al. 2017, 3.5, half of the width for each axis; ``dim`` is a multiple of 4.
    """
    speeds = 10_000.0 ** (-torch.arange(dim // 4) / (dim // 4))
    rows, columns = torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij")
    turns = [axis.reshape(-1, 1) * speeds for axis in (rows, columns)]
    return torch.cat([wave(turn) for turn in turns for wave in (torch.sin, torch.cos)], dim=1)
