"""Options and arguments that several commands have, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

MOST_TOKENS: Final = 2**20
MOST_SIZE: Final = 65_536
SOURCE_HELP: Final = "A genome file, a mechanism, an exported .py file, or RUN/ID."

Source: TypeAlias = Annotated[str, typer.Argument(help=SOURCE_HELP)]
Sources: TypeAlias = Annotated[list[str], typer.Argument(help=SOURCE_HELP)]
RunName: TypeAlias = Annotated[str, typer.Argument(help="A run's name or path, or latest.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the JSON answer.")]
Dim: TypeAlias = Annotated[int, typer.Option(min=1, max=MOST_SIZE, help="Model width.")]
Heads: TypeAlias = Annotated[int, typer.Option(min=1, max=MOST_SIZE, help="Backbone's heads.")]
Tokens: TypeAlias = Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="Sequence length.")]
AnyDim: TypeAlias = Annotated[
    int | None, typer.Option("--dim", min=1, max=MOST_SIZE, help="Model width.")
]
AnyHeads: TypeAlias = Annotated[
    int | None, typer.Option("--heads", min=1, max=MOST_SIZE, help="Backbone's heads.")
]
Policy: TypeAlias = Annotated[
    str, typer.Option(help="What genomes must obey: a policy, by name or path.")
]

Workers: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Trainings at once; one a core.")
]
Gpus: TypeAlias = Annotated[
    float | None, typer.Option(min=0, help="GPUs a worker; fractions share one.")
]
Address: TypeAlias = Annotated[
    str | None, typer.Option(help="A Ray cluster to join; else one is started.")
]
Backend: TypeAlias = Annotated[str, typer.Option(help="ray, or local: in this process.")]
Limit: TypeAlias = Annotated[float, typer.Option(help="Seconds that one training may take.")]
Wait: TypeAlias = Annotated[float, typer.Option(help="Seconds to wait for a busy cluster.")]
Task: TypeAlias = Annotated[str | None, typer.Option(help="A task, by name or path.")]
Data: TypeAlias = Annotated[
    str | None, typer.Option(help="What to train on, as the task's family reads it.")
]
Runs: TypeAlias = Annotated[Path, typer.Option(help="The folder that runs are in.")]
