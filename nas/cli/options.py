"""Options and arguments of several commands, each declared once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from nas.cli import completion

MOST_TOKENS: Final = 2**20
MOST_SIZE: Final = 65_536
_SOURCE: Final = typer.Argument(
    help="A genome file, a mechanism, an exported .py file, or RUN/ID.",
    autocompletion=completion.sources,
)
_DIM: Final = typer.Option("--dim", min=1, max=MOST_SIZE, help="Model width.")
_HEADS: Final = typer.Option("--heads", min=1, max=MOST_SIZE, help="Backbone's heads.")
_TOKENS: Final = typer.Option("--tokens", min=1, max=MOST_TOKENS, help="Sequence length.")
_POLICY: Final = typer.Option(help="A policy, by name or path.", autocompletion=completion.policies)
_DATA: Final = typer.Option(help="Training data, as the task's family names them.")

Source: TypeAlias = Annotated[str, _SOURCE]
Sources: TypeAlias = Annotated[list[str], _SOURCE]
RunName: TypeAlias = Annotated[
    str,
    typer.Argument(help="A run's name or path, or latest.", autocompletion=completion.runs),
]
Space: TypeAlias = Annotated[
    str,
    typer.Option(help="A search space, by name or path.", autocompletion=completion.spaces),
]
Task: TypeAlias = Annotated[
    str | None,
    typer.Option(help="A task, by name or path.", autocompletion=completion.tasks),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the JSON answer.")]
Dim: TypeAlias = Annotated[int, _DIM]
AnyDim: TypeAlias = Annotated[int | None, _DIM]
Heads: TypeAlias = Annotated[int, _HEADS]
AnyHeads: TypeAlias = Annotated[int | None, _HEADS]
Tokens: TypeAlias = Annotated[int, _TOKENS]
AnyTokens: TypeAlias = Annotated[int | None, _TOKENS]
Policy: TypeAlias = Annotated[str, _POLICY]
Data: TypeAlias = Annotated[str | None, _DATA]
StudySeed: TypeAlias = Annotated[int, typer.Option(min=0, help="Seed of all trainings.")]
Record: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="A file of finished trainings, which are not repeated."),
]
OnTest: TypeAlias = Annotated[
    bool, typer.Option("--test", help="Evaluate on the test set, not on held-out training data.")
]
EventFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option("--tensorboard", help="Also write event files for TensorBoard into this folder."),
]
Runs: TypeAlias = Annotated[Path, typer.Option(help="The folder of runs.")]

# Options of the workers: the fields of nas.api.execution.Executing.
Workers: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Parallel trainings; default: one a core. MIN:MAX on a cluster."),
]
GpusPerWorker: TypeAlias = Annotated[
    float | None, typer.Option(min=0, help="GPUs of a worker; a fraction shares one.")
]
RayAddress: TypeAlias = Annotated[
    str | None, typer.Option(help="A Ray cluster to join; default: start one.")
]
Backend: TypeAlias = Annotated[str, typer.Option(help="ray, or local: in this process.")]
TimeLimit: TypeAlias = Annotated[float, typer.Option(help="Seconds after which a training fails.")]
StartSeconds: TypeAlias = Annotated[float, typer.Option(help="Seconds to wait for a busy cluster.")]


def arguments(context: typer.Context, *omitted: str) -> dict[str, Any]:
    """A command's options as keyword arguments of the API function of the same name.

    Options have the names of the function's parameters, so that each is declared once here. An
    option without a value is left to the function's default.

    Args:
        omitted: options that are not parameters of the function.
    """
    options = context.params.items()
    return {name: value for name, value in options if value is not None and name not in omitted}


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """TASK=SPEC options as a mapping.

    Raises:
        BadParameter: a text has another form, or a task occurs twice.
    """
    specs: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or name in specs:
            raise typer.BadParameter(f"found {text!r}; expected TASK=SPEC, once a task")
        specs[name] = value
    return specs
