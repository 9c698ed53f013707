"""Trained weights beside an exported module: copied from those that a run keeps of its front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from nas.canonical import digest
from nas.errors import ExportError
from nas.exporting.formats import write_export

if TYPE_CHECKING:
    from pathlib import Path

    from nas.genome import Genome


def export_weights(kept: Path, layer: int, genome: Genome, path: Path) -> None:
    """Write one layer's tensors under the names of the exported class, as safetensors.

    Args:
        kept: the run's ``weights/<key>.safetensors``, with keys "layers.<i>.<name>".
        genome: goes into the metadata with its digest, beside what the kept file says.

    Raises:
        ExportError: there are no such weights, or the place cannot be written.
    """
    prefix = f"layers.{layer}."
    try:
        with safe_open(kept, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
            tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
            about = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ExportError(
            f"{kept}: no weights are kept there ({error}); a run keeps those of its front alone."
        ) from None
    if not tensors:
        raise ExportError(f"{kept}: holds no weights of layer {layer}.")
    about |= {"genome": genome.to_json(), "digest": digest(genome), "layer": str(layer)}
    write_export(save(tensors, metadata=about), path)
