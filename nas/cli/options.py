"""Options and arguments that several commands have, each declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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
_POLICY: Final = typer.Option(
    help="What genomes must obey: a policy, by name or path.", autocompletion=completion.policies
)
_DATA: Final = typer.Option(help="What to train on, as the task's family reads it.")

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
StudySeed: TypeAlias = Annotated[
    int, typer.Option(min=0, help="What the training seeds derive from.")
]
Record: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="A file that keeps finished trainings; what it holds is not repeated."),
]
OnTest: TypeAlias = Annotated[
    bool, typer.Option("--test", help="Judge on the test set, not on what is held out of training.")
]
EventFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option("--tensorboard", help="Also write event files for TensorBoard into this folder."),
]
Runs: TypeAlias = Annotated[Path, typer.Option(help="The folder that runs are in.")]


def pairs(given: Sequence[str]) -> dict[str, str]:
    """TASK=SPEC options as a mapping.

    Raises:
        BadParameter: one is nothing of the kind, or a task has two.
    """
    found = {}
    for text in given:
        name, _, value = text.partition("=")
        if not name or not value or name in found:
            raise typer.BadParameter(f"found {text!r}; expected TASK=SPEC, once a task")
        found[name] = value
    return found


def trains(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that trains: the options of ``_execution`` are its ``**execution``."""
    del command.__annotations__["execution"]  # typer knows no TypedDict
    own, *_ = signatures = [inspect.signature(f, eval_str=True) for f in (command, _execution)]
    options = [p for s in signatures for p in s.parameters.values() if p.kind != p.VAR_KEYWORD]
    changed: Any = command
    changed.__signature__ = own.replace(parameters=options)
    return command


def _execution(
    workers: Annotated[
        str | None,
        typer.Option(help="Trainings at once; one a core. MIN:MAX lets a cluster grow."),
    ] = None,
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs a worker; fractions share one.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster to join; else one is started.")
    ] = None,
    backend: Annotated[str, typer.Option(help="ray, or local: in this process.")] = "ray",
    time_limit: Annotated[float, typer.Option(help="Seconds that one training may take.")] = 1800,
    start_seconds: Annotated[float, typer.Option(help="Seconds to wait for a busy cluster.")] = 300,
) -> None:
    """Who trains, and on what: ``nas.api.execution.Executing`` as options."""
