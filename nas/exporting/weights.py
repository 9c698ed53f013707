"""Trained weights, copied from those that a run keeps: of each layer's attention, no others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from nas.common.errors import ExportError
from nas.exporting.formats import write_export
from nas.genome.canonical import digest

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from nas.genome import Genome

METADATA: Final = "__metadata__"  # of the header's entries, the one that is no tensor


def read_weights(kept: Path) -> tuple[dict[int, dict[str, Tensor]], dict[str, str]]:
    """The tensors of each layer's block by its names, and what the file says of itself.

    Args:
        kept: the run's ``weights/<key>.safetensors``, with keys "layers.<i>.<name>".

    Raises:
        ExportError: there are no such weights.
    """
    layers: dict[int, dict[str, Tensor]] = {}
    try:
        if not kept.is_file():  # a pipe, which would never end
            raise FileNotFoundError
        with safe_open(kept, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                if found := re.fullmatch(r"layers\.(\d{1,9})\.(.+)", name):
                    layers.setdefault(int(found[1]), {})[found[2]] = file.get_tensor(name)
            about = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ExportError(
            f"{kept}: no weights are kept there ({type(error).__name__}); a run keeps those of "
            "mechanisms that are likely in its front."
        ) from None
    return layers, about


def export_weights(kept: Path, layer: int, genome: Genome, path: Path) -> None:
    """Write one layer's tensors under the names of the exported class, as safetensors.

    Args:
        kept: the run's ``weights/<key>.safetensors``, with keys "layers.<i>.<name>".
        genome: goes into the metadata with its digest, beside what the kept file says.

    Raises:
        ExportError: there are no such weights, or the place cannot be written.
    """
    layers, about = read_weights(kept)
    if layer not in layers:
        raise ExportError(f"{kept}: holds no weights of layer {layer}.")
    about |= {"genome": genome.to_json(), "digest": digest(genome), "layer": str(layer)}
    write_export(_ordered(save(dict(layers[layer]), metadata=about)), path)


def _ordered(content: bytes) -> bytes:
    """A safetensors file with its metadata in order, which the library writes in a random one."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header[METADATA] = dict(sorted(header[METADATA].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[end:]
