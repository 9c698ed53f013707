"""What a program calls. The command line calls the same functions.

Search, resume and evaluate train; the others look at runs and genomes, and answer with the plain
data that the commands of the same names print as JSON. A SOURCE is a string (see ``nas.sources``)
or a genome. What is heavy is imported where it is used: a front is read without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nas.errors import ConfigError, ExportError, ViolationError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.share import Execution
from nas.store import RUNS, find_run, open_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import nn

    from nas.exporting import Origin
    from nas.genome import Genome
    from nas.report.show import Shown
    from nas.report.trials import Training
    from nas.searching.listener import Ended, Listener
    from nas.sources import Source
    from nas.space import SearchSpace
    from nas.tasks import Task
    from nas.validation import Policy

    Given: TypeAlias = str | Path | Genome


@dataclass(frozen=True)
class Exported:
    """What was written: a file, its class's default sizes, weights beside it, what to know."""

    path: Path
    dim: int
    heads: int
    weights: Path | None = None
    remarks: tuple[str, ...] = ()


TIME_LIMIT: Final = 1800.0
POLICY: Final = "score_normalize_aggregate"


def search(
    space: str,
    *,
    generations: int = 50,
    population: int = 50,
    task: str | None = None,
    data: str | None = None,
    algorithm: str = "nsga2",
    lag: int | None = None,
    seed: int = 0,
    repeats: int = 1,
    run: str | None = None,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    command: str = "nas.search",
    **execution: Any,
) -> Ended:
    """Search a space for mechanisms; returns how the run ended and where its folder is.

    Args:
        space: a search space, by name or path.
        task: a task, by name or path; the space's own by default.
        data: what to train on, as the task's family reads it; the task's own by default.
        algorithm: ``nsga2``, ``random``, ``regularized-evolution``, or a plug-in's.
        lag: proposal t is computed from the results up to t - lag, so that no worker waits for a
            generation's last training; by default from those of whole generations.
        repeats: trainings of each mechanism, each with its own seed.
        run: the run's name; by default date, space and seed.
        runs: the folder that the run's folder goes into.
        listener: hears what happens; see ``nas.searching.listener``.
        command: what a person typed, for the record.
        execution: who trains, and on what: fields of ``nas.evaluation.share.Execution``, such
            as ``backend="local"``, ``workers`` or ``time_limit``, which is half an hour by default.

    Raises:
        NasError: something given cannot be used; the message says what and why.
    """
    from nas.searching.driver import run_search
    from nas.searching.setup import Settings
    from nas.space import load_space

    chosen = load_space(space)
    return run_search(
        chosen,
        _task_of(chosen, task, data),
        Settings(algorithm, population, generations, seed, repeats, lag),
        make_evaluator=partial(make_evaluator, _execution(execution)),
        root=Path(runs),
        name=run,
        command=command,
        listener=listener,
    )


def resume(
    run: str = "latest",
    *,
    generations: int | None = None,
    data: str | None = None,
    runs: str | Path = RUNS,
    listener: Listener | None = None,
    command: str = "nas.resume",
    **execution: Any,
) -> Ended:
    """Go on with a run, or add generations to it; arguments as for ``search``.

    Args:
        data: where the run's data are now, if they have moved; other data are refused.
    """
    from nas.searching.driver import resume_search

    return resume_search(
        find_run(run, Path(runs)),
        make_evaluator=partial(make_evaluator, _execution(execution)),
        generations=generations,
        data=data,
        listener=listener,
        command=command,
    )


def evaluate(
    sources: Sequence[Given],
    *,
    task: str = "vit-cifar10",
    data: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: int = 1,
    seed: int = 0,
    policy: str = POLICY,
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    **execution: Any,
) -> Iterator[Training]:
    """Train mechanisms without a search; trainings come as they finish.

    Args:
        sources: SOURCE strings or genomes.
        overrides: fields of the task to set.
        seeds: trainings of each.
        seed: what the training seeds derive from.
        policy: what genomes must obey; members of a run have passed that run's own.
        record: a file that every finished training is written to; those that it holds already
            are not repeated.

    Raises:
        ViolationError: a genome is not legal.
        NasError: something given cannot be used; the message says what and why.
    """
    from nas.searching.setup import check_count
    from nas.sources import resolve
    from nas.tasks import load_task
    from nas.validation import load_policy

    check_count("seeds", seeds)
    rules, given = load_policy(policy), _execution(execution)
    resolved = [resolve(source, Path(runs)) for source in dict.fromkeys(sources)]
    for one in resolved:
        _check_legal(one, rules)
    chosen = load_task(task, data=data, overrides=overrides)
    return _trainings(resolved, chosen, given, seeds, seed, record)


def front(run: str = "latest", *, runs: str | Path = RUNS) -> dict[str, Any]:
    """A run's front: the answer of ``nas front --json``.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    from nas.report.facts import gather
    from nas.report.front import answer

    with open_run(find_run(run, Path(runs))) as opened, opened.snapshot():
        return answer(opened, gather(opened))


def cost(
    sources: Given | Sequence[Given],
    *,
    dim: int = 64,
    heads: int = 4,
    tokens: int | Sequence[int] = 65,
) -> Any:
    """What one attention block costs: a dict for one source and length, else a list of them.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    from nas.genome import Genome
    from nas.report.costs import Block, cost_answer, costed
    from nas.sources import resolve

    given = [sources] if isinstance(sources, str | Path | Genome) else sources
    lengths = (tokens,) if isinstance(tokens, int) else tuple(sorted({*tokens}))
    block = Block(dim, heads, lengths)
    return cost_answer(costed([resolve(source) for source in given], block), block)


def show(
    source: Given, *, dim: int | None = None, heads: int | None = None, tokens: int | None = None
) -> dict[str, Any]:
    """All that is known of one genome: the answer of ``nas show --json``; see ``examined``."""
    from nas.report.show import show_answer

    return show_answer(examined(source, dim, heads, tokens))


def examined(source: Given, dim: int | None, heads: int | None, tokens: int | None) -> Shown:
    """One genome from all sides, at these sizes, else at those of its run's task.

    Raises:
        ViolationError: it does not type-check.
        RunError: its run cannot be read.
    """
    from nas.report.costs import Sizes
    from nas.report.show import examine
    from nas.sources import resolve

    found = resolve(source)
    task, sizes = _task_of_run(found), Sizes()
    if task is not None:
        own = task.sizes
        sizes = Sizes(own.dim, own.heads, own.tokens, task.qkv_bias)
    dim, heads, tokens = dim or sizes.dim, heads or sizes.heads, tokens or sizes.tokens
    return examine(found, Sizes(dim, heads, tokens, sizes.qkv_bias))


def validate(source: Given, *, policy: str = POLICY) -> dict[str, Any]:
    """Judge a genome by types and a policy: the answer of ``nas validate --json``."""
    from nas.canonical import digest
    from nas.sources import resolve
    from nas.validation import load_policy, with_repairs
    from nas.validation import validate as judge

    rules, genome = load_policy(policy), resolve(source).genome
    violations = with_repairs(genome, rules, judge(genome, rules))
    return {
        "valid": not violations,
        "digest": digest(genome),
        "policy": rules.name,
        "violations": [violation.to_dict() for violation in violations],
    }


def build_attention(source: Given, dim: int, heads: int, *, qkv_bias: bool = False) -> nn.Module:
    """A mechanism as a module: ``block(x, attn_mask, key_padding_mask, is_causal)``.

    See ``nas.compiler.build_attention``, which also takes the options of its back ends.
    """
    from nas.compiler import build_attention as build
    from nas.sources import load_genome

    return build(load_genome(source), dim, heads, qkv_bias=qkv_bias)


def export(
    source: Given,
    path: str | Path,
    *,
    format: str = "py",  # noqa: A002 - what the option is called
    dim: int | None = None,
    heads: int | None = None,
    fast: bool = False,
    weights: bool = False,
    layer: int = 0,
) -> Exported:
    """Write a mechanism as a file to take away.

    Args:
        format: ``py``, one readable file whose only import is torch; or a plug-in's.
        dim, heads: default sizes of its class; those of the run's task, or 64 and 4.
        fast: write the form that trains fastest in place of the plainest.
        weights: also write what a run keeps of its front member's training, as safetensors.
        layer: whose weights: a layer of the backbone.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        ExportError: it cannot be written so, or there; or no weights of it are kept.
    """
    from nas.exporting import EXPORTS, check_target, export_weights, write_export
    from nas.report.costs import remarks
    from nas.sources import resolve

    written, path = EXPORTS.get(format), Path(path)
    check_target(path, written.suffix)
    found = resolve(source)
    task = _task_of_run(found)
    sizes = (dim or (task.width if task else 64), heads or (task.heads if task else 4))
    kept = _kept_weights(found, task, sizes, layer) if weights else None
    bias = bool(task and task.qkv_bias)
    content = written(found.genome, *sizes, _origin(found), qkv_bias=bias, is_fast=fast)
    write_export(content, path)
    target = path.with_suffix(".safetensors") if kept else None
    if kept and target:
        export_weights(kept, layer, found.genome, target)
    return Exported(path, *sizes, target, tuple(remarks(found.genome, sizes[1])))


def list_objectives() -> dict[str, str]:
    """What a space may name as objectives, and what each is; a task's other metrics too."""
    from nas.costs import COSTS
    from nas.objectives import QUALITY

    quality = "the first metric of the task that is searched on; its others by their own names"
    return {QUALITY: quality} | {name: COSTS.get(name).about for name in COSTS.names()}


def list_mechanisms() -> dict[str, str]:
    """The named mechanisms, and what each is."""
    from nas.mechanisms import MECHANISMS

    return {name: found.about for name, found in MECHANISMS.items()}


def _trainings(
    sources: Sequence[Source],
    task: Task,
    execution: Execution,
    seeds: int,
    seed: int,
    record: str | Path | None,
) -> Iterator[Training]:
    """The trainings of a study; workers are there while somebody iterates."""
    from nas.canonical import canonicalise
    from nas.costs import Setting, costs_of
    from nas.evaluation.journal import JournaledEvaluator
    from nas.evaluation.study import study
    from nas.report.trials import Training

    data = task.load()
    metric = task.metrics(data)[0]
    setting = Setting(task.sizes, task.qkv_bias, task.is_causal, {})
    causal = task.is_causal
    genomes = {s.text: canonicalise(s.genome, task.sizes, is_causal=causal) for s in sources}
    costs = {text: costs_of(genome, setting) for text, genome in genomes.items()}
    evaluator = make_evaluator(execution, task, data)
    try:
        if record is not None:
            evaluator = JournaledEvaluator(evaluator, Path(record), task, data)
        named = [(source.text, source.genome) for source in sources]
        for found in study(named, task, evaluator, repeats=seeds, seed=seed):
            name, repeat, result = found.name, found.repeat, found.evaluation
            yield Training(name, found.digest, repeat, result, costs[name], metric)
    finally:
        evaluator.close()


def _check_legal(source: Source, policy: Policy) -> None:
    """Refuse to train what no policy has passed; what types forbid, no policy allows."""
    from nas.compiler import make_plan
    from nas.validation import validate as judge

    make_plan(source.genome)
    violations = () if source.run is not None else judge(source.genome, policy)
    if violations:
        raise ViolationError(
            f"{source.text} is not legal under {policy.name}: {violations[0].message}", violations
        )


def _execution(options: Mapping[str, Any]) -> Execution:
    """The options as a value.

    Raises:
        ConfigError: a number is not above 0.
    """
    for name in ("workers", "time_limit", "start_seconds"):
        value = options.get(name)
        if value is not None and not value > 0:  # NaN is not above 0 either
            option = name.replace("_", "-")
            raise ConfigError(f"{option}: found {value}; expected a number above 0.")
    return Execution(**{"time_limit": TIME_LIMIT, **options})


def _kept_weights(source: Source, task: Task | None, sizes: tuple[int, int], layer: int) -> Path:
    """The file in which a run keeps the weights of a member of its front."""
    from nas.genome import layers_with_mechanism
    from nas.store import find_candidate
    from nas.store.weights import weights_path

    if task is None or source.run is None or source.digest is None:
        raise ExportError(
            f"{source.text}: has no trained weights; expected a member of a run, such as "
            "latest/best."
        )
    if sizes != (task.width, task.heads):
        raise ExportError(
            f"the weights were trained at dim {task.width} and heads {task.heads}, not {sizes[0]} "
            f"and {sizes[1]}; leave dim and heads out."
        )
    own = layers_with_mechanism(source.genome.placement, task.depth)
    if layer not in own:
        raise ExportError(
            f"layer {layer} does not hold the mechanism; expected one of "
            f"{', '.join(map(str, own))}."
        )
    with open_run(source.run) as run:
        candidate = find_candidate(run, source.digest)
    if candidate is None:
        raise ExportError(f"{source.text}: was not trained, so it has no weights.")
    return weights_path(source.run, candidate.proposal.key or "")


def _origin(source: Source) -> Origin:
    """What an exported file says of its source."""
    from nas.exporting import Origin
    from nas.report.units import quantity
    from nas.store import find_candidate

    if source.run is None:
        return Origin(source.text)
    with open_run(source.run) as run:
        found, setup, name = find_candidate(run, source.digest or ""), run.setup, run.name
    about = f"{name} (space {setup.space.name}, task {setup.task.name}, seed {setup.seed})"
    if found is None:
        return Origin(source.text, about)
    told = (f"{o.name} {quantity(found.objectives[o.name], o.unit)}" for o in setup.objectives)
    return Origin(source.text, about, ", ".join(told))


def _task_of_run(source: Source) -> Task | None:
    """The task of the run that a source is a member of."""
    from nas.searching.setup import thawed_task

    if source.run is None:
        return None
    with open_run(source.run) as run:
        return thawed_task(run.setup.task)


def _task_of(space: SearchSpace, task: str | None, data: str | None) -> Task:
    """The task that a space names, or another one; a task of its own choice drops its overrides."""
    from nas.tasks import load_task

    if task is not None:
        return load_task(task, data=data)
    own = space.task
    return load_task(own.name, data=data or own.data, overrides=own.overrides)
