"""The search loop: propose, train, and record each training when it ends.

A resumed run reads its recorded proposals and trainings, trains the proposals without results, and
continues as if it had not been interrupted. By default a generation is proposed when the previous
generation has ended. With ``SearchConfig.lag``, each proposal is drawn as soon as the earlier
results that it depends on are known. Proposals never depend on the number of workers or on the
order in which trainings finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from nas.common.errors import RunError, SpaceExhausted
from nas.common.objectives import as_costs
from nas.common.pareto import scaled_hypervolume
from nas.evaluation.trial import (
    Budget,
    Evaluation,
    Evaluator,
    Incident,
    Purpose,
    Training,
    Trial,
    is_retried,
    training_seed,
)
from nas.searching.algorithm import TrialResult
from nas.searching.listener import Evaluated, GenerationDone, Listener
from nas.searching.proposing import Proposer
from nas.store import Proposal, RunWriter
from nas.store.files import write_file
from nas.store.weights import remove_weights, weights_path

AT_ONCE: Final = 8  # proposals that are drawn before finished trainings are looked at
LIKELY: Final = 0.01  # probability of being in the front from which on weights are kept


@dataclass
class _Work:
    """A proposal and the state of the trainings that it requires."""

    proposal: Proposal
    repeats: range  # indices of its trainings among all trainings of the mechanism
    evaluations: dict[int, Evaluation] = field(default_factory=dict)  # by the same index
    result: TrialResult | None = None  # None until all trainings have ended


class Loop:
    """Runs a search in one process. The caller closes writer and evaluator."""

    def __init__(
        self,
        writer: RunWriter,
        proposer: Proposer,
        evaluator: Evaluator,
        listener: Listener,
        *,
        retry_failed: bool = False,
    ) -> None:
        self._writer, self._run = writer, writer.run
        self._proposer, self._evaluator, self._listener = proposer, evaluator, listener
        self._retry_failed = retry_failed
        setup = writer.run.setup
        self._config, self._objectives, self._setup = setup.config, setup.objectives, setup
        self._is_trained = any(objective.is_metric for objective in setup.objectives)
        self._work: list[_Work] = []  # by number of the proposal
        self._num_trainings: Counter[tuple[str, Purpose]] = Counter()  # proposed, by mechanism
        self._results: list[TrialResult] = []  # up to the first proposal without a result
        self._running: dict[tuple[str, int, Purpose], int] = {}  # numbers, by key, repeat, purpose
        self._num_generations = 0
        self._is_exhausted = False
        evaluator.on_incident = self._on_incident

    def run(self) -> bool:
        """Propose and train until the run is complete; return whether the space is exhausted.

        RunError is raised if the recorded proposals are damaged, SpaceExhausted if the space
        contains no mechanism at all at the task's sizes.
        """
        self._read()
        self._end_generations(is_replayed=True)
        self._submit(range(len(self._work)))
        while self._propose() or self._running:
            if self._running:
                finished = self._evaluator.wait()
                assert finished, "an evaluator returns each trial once"
                self._record_all(finished)
        if not self._work:
            attempts = self._run.proposals()
            note = next((p.note for p in attempts if p.note), "")
            reason = f", the first because: {note}" if note else ""
            raise SpaceExhausted(
                f"space {self._setup.space.name!r} holds no mechanism that can be trained: "
                f"{len(attempts)} proposals in a row were rejected{reason}. Widen the space or "
                "change the task's sizes."
            )
        # Only at the end, because estimates change with further results.
        unlikely = {e.key for e in self._run.estimates() if not e.is_member and e.p < LIKELY}
        keys = {str(work.proposal.key) for work in self._work}
        remove_weights(self._run.folder, keys & unlikely)
        return self._is_exhausted

    def _read(self) -> None:
        """Load recorded proposals and evaluations, except failures that are to be repeated."""
        recorded = self._run.proposals()
        self._proposer.follow(recorded)
        for number, attempts in groupby(recorded, key=lambda proposal: proposal.number):
            if number != len(self._work) or self._is_exhausted:
                raise RunError(
                    f"{self._run.folder}: its record lacks proposal {len(self._work)}; restore the "
                    "database from a copy."
                )
            self._add([*attempts][-1])
        trained = {(t.key, t.repeat, t.purpose): t.evaluation for t in self._run.trainings()}
        for work in self._work:
            for repeat in work.repeats:
                place = str(work.proposal.key), repeat, _purpose(work.proposal)
                evaluation = trained.get(place)
                if evaluation is not None and not is_retried(evaluation, self._retry_failed):
                    self._learn(work, repeat, evaluation)

    def _add(self, last: Proposal) -> None:
        self._is_exhausted = not last.is_trained
        if last.is_trained:
            which = str(last.key), _purpose(last)
            first = self._num_trainings[which]
            repeats = range(first, first + (self._config.repeats if last.is_new else 1))
            self._num_trainings[which] = repeats.stop
            self._work.append(_Work(last, repeats))

    def _propose(self) -> bool:
        """Draw, record and submit proposals that can be computed now; return whether there are any.

        It returns after ``AT_ONCE`` proposals if there are two trainings for each worker.
        """
        attempts: list[Proposal] = []
        first, total = len(self._work), self._config.generations * self._config.population
        while (
            len(self._work) < total
            and not self._is_exhausted
            and self._proposer.may_propose(len(self._work), len(self._results))
            and not (
                (drawn := len(self._work) - first) >= AT_ONCE
                and len(self._running) + drawn >= 2 * self._evaluator.workers
            )
        ):
            attempts += self._proposer.propose(len(self._work), self._results)
            self._add(attempts[-1])
        if attempts:
            self._writer.record_proposals(attempts)
            self._submit(range(first, len(self._work)))
            self._end_generations()
        return len(self._work) > first

    def _submit(self, numbers: range) -> None:
        trials = []
        for number in numbers:
            work = self._work[number]
            for repeat in work.repeats if work.result is None else ():
                if repeat not in work.evaluations:
                    trial = self._trial(work.proposal, repeat)
                    trials.append(trial)
                    self._running[trial.key, trial.repeat, trial.purpose] = number
        if self._is_trained:
            self._evaluator.submit(trials)
        else:
            self._record_all([(trial, _untrained(trial)) for trial in trials])

    def _trial(self, proposal: Proposal, repeat: int) -> Trial:
        is_target, work = proposal.is_target, proposal.costs
        kept = is_target or self._setup.target is None  # weights are of the front's task
        return Trial(
            key=str(proposal.key),
            mechanism=proposal.genome,
            seed=training_seed(self._config.seed, f"{'target ' * is_target}{proposal.key}", repeat),
            repeat=repeat,
            work=work.get("time_ms", work.get("macs", 0.0))
            * (self._proposer.work_ratio if is_target else 1.0),
            keeps_weights=repeat == 0 and self._is_trained and kept,
            purpose=_purpose(proposal),
        )

    def _record_all(self, finished: Sequence[tuple[Trial, Evaluation]]) -> None:
        # All are recorded before an event that may raise an exception.
        numbers = [self._record(trial, evaluation) for trial, evaluation in finished]
        for number, (trial, evaluation) in zip(numbers, finished, strict=True):
            work, generation = self._work[number], number // self._config.population
            self._learn(work, trial.repeat, evaluation)
            event = Evaluated(generation, work.proposal, trial.repeat, evaluation)
            self._listener.on_evaluation(event)
            self._end_generations()

    def _record(self, trial: Trial, evaluation: Evaluation) -> int:
        number = self._running.pop((trial.key, trial.repeat, trial.purpose))
        task = self._setup.front_task if trial.is_target else self._setup.task
        if evaluation.weights is not None and evaluation.is_ok:
            write_file(weights_path(self._run.folder, trial.key), evaluation.weights)
        place = trial.purpose, task.fingerprint, task.name, trial.key, "", trial.repeat
        generation = number // self._config.population
        self._writer.record_training(Training(*place, evaluation), generation)
        return number

    def _on_incident(self, incident: Incident) -> None:
        self._writer.record_incident(incident)
        self._listener.on_incident(incident)

    def _learn(self, work: _Work, repeat: int, evaluation: Evaluation) -> None:
        """Add the evaluation of a training to a proposal; the last one completes its result."""
        work.evaluations[repeat] = evaluation
        if len(work.evaluations) < len(work.repeats):
            return
        evaluations = [work.evaluations[i] for i in work.repeats]
        rows = None
        if not any(evaluation.status == "failed" for evaluation in evaluations):
            # A training that missed a score that its task requires has the worst metrics.
            worst = {o.name: o.reference for o in self._objectives}
            metrics = (e.metrics if e.is_ok else {} for e in evaluations)
            values = ({**worst, **work.proposal.costs, **scores} for scores in metrics)
            rows = [as_costs(self._objectives, row) for row in values]
        is_ok = all(evaluation.is_ok for evaluation in evaluations)
        work.result = TrialResult.of(work.proposal, rows, is_ok=is_ok)
        work.evaluations.clear()
        while len(self._results) < len(self._work):
            result = self._work[len(self._results)].result
            if result is None:
                break
            self._results.append(result)

    def _end_generations(self, *, is_replayed: bool = False) -> None:
        """Record and report new complete generations; ``is_replayed``: a run is resumed."""
        size, num_results = self._config.population, len(self._results)
        is_over = self._is_exhausted and num_results == len(self._work)
        done = -(-num_results // size) if is_over else num_results // size
        if done == self._num_generations:
            return
        # A training of this process may belong to a generation that was recorded without it.
        num_kept = len(self._run.generations()) if is_replayed else 0
        for number in range(max(self._num_generations, num_kept), done):
            self._record_generation(number)
        complete = self._run.generations(first=self._num_generations)
        for generation in complete[: done - self._num_generations]:
            self._listener.on_generation(GenerationDone(generation, is_replayed))
        self._num_generations = done

    def _record_generation(self, number: int) -> None:
        results = self._results[: (number + 1) * self._config.population]
        estimates, has_others = self._proposer.new_estimates(results)
        front, first = [e.means for e in estimates if e.is_member], self._objectives[0]
        best = min((means[first.name] for means in front), key=first.as_cost, default=None)
        volume = scaled_hypervolume(self._objectives, front)
        self._writer.record_generation(number, estimates, volume, best, keeps_others=has_others)


def _purpose(proposal: Proposal) -> Purpose:
    return "target" if proposal.is_target else "search"


def _untrained(trial: Trial) -> Evaluation:
    budget, note = Budget(0, 0, "none"), "not trained: no objective is measured"
    return Evaluation(
        "ok", None, {}, (), trial.seed, budget, 0.0, 0.0, 0, worker="none", execution=note
    )
