"""Save and load models whose attention was replaced: the state dict, and the genome of each module.

nas.save_swapped(model, "model.pt")
model = nas.load_swapped(make_model(), "model.pt")     # the model as before the swap
"""

from __future__ import annotations

import glob
from pathlib import Path

import torch
from torch import nn

from nas.common.errors import NasError
from nas.genome import Genome
from nas.surgery.core import AttentionCore
from nas.surgery.hosts import CORE
from nas.surgery.swap import swap_attention


def save_swapped(model: nn.Module, file: str | Path) -> None:
    """Save the weights of a model, and the genomes that ``nas.swap_attention`` put into it.

    Raises:
        NasError: no attention of the model was replaced.
    """
    genomes = {
        name.removesuffix(CORE).removesuffix("."): core.genome.to_dict()
        for name, core in model.named_modules()
        if isinstance(core, AttentionCore)
    }
    if not genomes:
        raise NasError(f"save_swapped: {type(model).__name__} holds no swapped attention.")
    torch.save({"attention": genomes, "state_dict": model.state_dict()}, file)


def load_swapped(model: nn.Module, file: str | Path) -> nn.Module:
    """Replace the attention of a model as in the saved model, load the weights, return the model.

    Args:
        model: a model like the saved one before the swap; it is changed in place.
        file: a file of ``save_swapped``. Loading it runs no code from it.

    Raises:
        NasError: the file was not written by ``save_swapped``, or the model has other attention.
        RuntimeError: the weights do not fit the model.
    """
    saved = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or saved.keys() != {"attention", "state_dict"}:
        raise NasError(f"{file}: expected a file that nas.save_swapped wrote.")
    for name, document in saved["attention"].items():
        genome = Genome.from_dict(document, f"{file}, {name}")
        swap_attention(model, genome, where=[glob.escape(name)], preserve=False)
    model.load_state_dict(saved["state_dict"])
    return model
