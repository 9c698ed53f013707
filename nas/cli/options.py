"""Options and arguments that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

MOST_TOKENS: Final = 2**20
MOST_SIZE: Final = 65_536
_FORMS: Final = "A genome file, a mechanism, an exported .py file, or RUN/ID"
_TRAINABLE: Final = f"{_FORMS}, or FILE.py:CLASS, a torch module of yours, which is executed."

Source: TypeAlias = Annotated[str, typer.Argument(help=f"{_FORMS}.")]
Trainable: TypeAlias = Annotated[str, typer.Argument(help=_TRAINABLE)]
Sources: TypeAlias = Annotated[list[str], typer.Argument(help=_TRAINABLE)]
RunName: TypeAlias = Annotated[str, typer.Argument(help="A run's name or path, or latest.")]
Task: TypeAlias = Annotated[str | None, typer.Option(help="A task, by name or path.")]
TaskOfRun: TypeAlias = Annotated[
    str | None, typer.Option(help="A task, by name or path; default: RUN/ID's, or vit-cifar10.")
]
Against: TypeAlias = Annotated[
    str | None, typer.Option(help="The reference, a SOURCE; default: that of the task.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the JSON answer.")]
Dim: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=MOST_SIZE, help="Model width; default: RUN/ID's, or 64.")
]
Heads: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=MOST_SIZE, help="Heads; default: RUN/ID's, or 4.")
]
Tokens: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_TOKENS, help="Sequence length; default: RUN/ID's, or 65."),
]
Policy: TypeAlias = Annotated[
    str | None,
    typer.Option(help="A policy, by name or path; default: RUN/ID's, or the built-in one."),
]
Data: TypeAlias = Annotated[
    str | None, typer.Option(help="Training data, as the task's family names them.")
]
Seeds: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Trainings of each mechanism.")]
StudySeed: TypeAlias = Annotated[int, typer.Option(min=0, help="Seed of all trainings.")]
Record: TypeAlias = Annotated[
    Path | None, typer.Option(help="A file of finished trainings, which are not repeated.")
]
Rates: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        help="Choose each mechanism's learning rate; default: if the seeds suffice for a claim."
    ),
]
Track: TypeAlias = Annotated[
    str | None, typer.Option(help="Also send numbers to wandb, mlflow or tensorboard.")
]
Runs: TypeAlias = Annotated[Path, typer.Option(help="The folder of runs.")]


def picture(subject: str) -> Any:
    """Return the option ``--plot``, whose suffix is checked before anything is computed."""

    def check(path: Path | None) -> Path | None:
        if path is not None:
            from nas.report.charts import check_picture

            check_picture(path)
        return path

    return typer.Option(
        "--plot", help=f"Also draw {subject} into this .png, .svg or .pdf.", callback=check
    )


def _workers(
    workers: Annotated[
        str | None,
        typer.Option(help="Parallel trainings; default: one a core. MIN:MAX on a cluster."),
    ] = None,
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs of a worker; a fraction shares one.")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster to join; default: start one.")
    ] = None,
    backend: Annotated[str, typer.Option(help="ray, or local: in this process.")] = "ray",
    time_limit: Annotated[float, typer.Option(help="Seconds after which a training fails.")] = 1800,
    start_seconds: Annotated[float, typer.Option(help="Seconds to wait for a busy cluster.")] = 300,
) -> None:
    """Declare, as parameters, the options that set the workers of a command that trains."""


def with_workers(command: Callable[..., None]) -> Callable[..., None]:
    """Declare the parameters of ``_workers`` in place of a command's ``**execution``."""
    *parameters, _ = inspect.signature(command, eval_str=True).parameters.values()
    parameters += inspect.signature(_workers, eval_str=True).parameters.values()
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return command


def arguments(context: typer.Context, *omitted: str) -> dict[str, Any]:
    """Return a command's options as keyword arguments of the API function of the same name.

    An option without a value is left to the function's default.
    """
    options = context.params.items()
    return {name: value for name, value in options if value is not None and name not in omitted}


def data_of(specs: Sequence[str], tasks: Sequence[str]) -> str | dict[str, str] | None:
    """Return the option ``--data`` of a command with several tasks: SPEC, or TASK=SPEC for each."""
    if len(specs) == 1 and specs[0].partition("=")[0] not in tasks:
        return specs[0]
    return {name: spec for name, _, spec in (text.partition("=") for text in specs)} or None


def names(text: str) -> list[str]:
    """Return the names in a text with commas between them."""
    return [name.strip() for name in text.split(",")]


def lengths(text: str) -> list[int]:
    """Return sequence lengths, sorted, of a text such as "64,256"."""
    return sorted({int(word) for word in text.split(",")})


def numbers(text: str) -> list[float]:
    """Return the numbers in a text such as "1/25,0.2,1"."""
    try:
        return [float(Fraction(word)) for word in names(text)]
    except (ValueError, ZeroDivisionError):
        raise typer.BadParameter("expected NUMBER,..., such as 1/25,0.2,1") from None


def limits(text: str) -> dict[str, str]:
    """Return limits by name of a text such as "quality=0.7,time_ms=1.5"; "none" for no limits."""
    parts = [part.partition("=") for part in text.split(",")] if text != "none" else []
    found = {name.strip(): limit for name, _, limit in parts}
    if len(found) < len(parts) or not all(found.values()):
        raise typer.BadParameter("expected NAME=LIMIT,... with each name once, such as quality=0.7")
    return found
