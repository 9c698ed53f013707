"""Tokens on a device: whole rows with their targets, or windows of one long text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int
    from numpy.typing import NDArray
    from torch import Tensor

    from nas.tasks.base import Batch


class Rows:
    """Sequences with their targets: batches of (tokens, targets)."""

    def __init__(
        self,
        tokens: NDArray[np.generic],
        targets: NDArray[np.generic],
        device: torch.device,
    ) -> None:
        self.tokens = torch.tensor(tokens, device=device).long()
        self.targets = torch.tensor(targets, device=device).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """The chosen sequences."""
        return self.tokens.index_select(0, chosen), self.targets.index_select(0, chosen)


class Windows:
    """Windows of a text, each by the place where it starts: batches of (tokens, next tokens)."""

    def __init__(self, text: NDArray[np.generic], length: int, device: torch.device) -> None:
        self.text = torch.tensor(text, device=device)
        self.offsets = torch.arange(length + 1, device=device)

    def __len__(self) -> int:
        return len(self.text) - len(self.offsets) + 1

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """The windows that start at the chosen places."""
        rows = self.text[chosen.unsqueeze(1) + self.offsets].long()
        return rows[:, :-1], rows[:, 1:]
