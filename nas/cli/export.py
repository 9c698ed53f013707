"""``nas export``: a mechanism as a file to take away."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AnyDim, AnyHeads, Source


@app.command()
def export(
    source: Source,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    format_: Annotated[
        str, typer.Option("--format", help="py (or module): one readable torch-only file.")
    ] = "py",
    dim: AnyDim = None,
    heads: AnyHeads = None,
    fast: Annotated[
        bool, typer.Option(help="Write the form that trains fastest, not the plainest.")
    ] = False,
    weights: Annotated[
        bool, typer.Option(help="Also write trained weights of a run's member, as safetensors.")
    ] = False,
    layer: Annotated[int, typer.Option(min=0, help="Whose weights: a layer of the backbone.")] = 0,
) -> None:
    """Write a mechanism as one readable Python file whose only import is torch.

    Sizes default to those of the run's task, or to 64 and 4.
    """
    from nas import api
    from nas.cli.console import tell

    write = partial(api.export, source, output, format=format_, dim=dim, heads=heads, fast=fast)
    written = write(weights=weights, layer=layer)
    tell(f"{output}: Attention(dim={written.dim}, heads={written.heads}).")
    for remark in written.remarks:
        tell(remark)
    if output.suffix == ".py":
        tell(f"`python {output}` tests it.")
    if written.weights is not None:
        tell(f"{written.weights}: the weights of layer {layer}.")
