"""The search loop: propose, train, record each training as it ends.

The state is a function of the record: a resumed run reads it, trains proposals without results, and
continues as if it had not been interrupted. Without a lag a generation is proposed when the one
before has ended; with a lag, each proposal as soon as the results that it is computed from are
known. Proposals never depend on the number of workers or on the order in which trainings finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Final

from nas.common.errors import RunError, SpaceExhausted
from nas.common.objectives import as_costs
from nas.evaluation.trial import (
    RETRIED,
    Budget,
    Evaluation,
    Evaluator,
    Incident,
    Reason,
    Trial,
    training_seed,
)
from nas.searching.archive import posterior_estimates
from nas.searching.front_file import write_front
from nas.searching.listener import Evaluated, GenerationDone, Listener
from nas.searching.proposing import Proposer
from nas.searching.results import TrialResult
from nas.store import Counts, Proposal, RunWriter, scaled_hypervolume
from nas.store.files import run_argument
from nas.store.weights import keep_weights, remove_weights

LIKELY: Final = 0.01  # probability of membership from which on weights are kept


class Loop:
    """Runs a search in one process; the caller closes writer and evaluator.

    Args:
        retried: reasons of recorded failures that are trained again.
    """

    def __init__(
        self,
        writer: RunWriter,
        proposer: Proposer,
        evaluator: Evaluator,
        listener: Listener,
        *,
        retried: Collection[Reason] = RETRIED,
    ) -> None:
        self._writer, self._run = writer, writer.run
        self._setup = setup = writer.run.setup
        self._proposer, self._evaluator, self._listener = proposer, evaluator, listener
        self._is_trained = any(objective.is_metric for objective in setup.objectives)
        self._proposals: list[Proposal] = []  # proposals to train, by number
        self._repeats: list[range] = []  # repeats that each proposal trains
        self._trainings: Counter[str] = Counter()  # number of trainings proposed, by key
        self._ended: list[dict[int, Evaluation]] = []  # evaluations of each proposal, by repeat
        self._results: dict[int, TrialResult] = {}  # by number of the proposal
        self._ordered: list[TrialResult] = []  # results by number, up to the first gap
        self._running: dict[tuple[str, int], int] = {}  # proposal numbers, by key and repeat
        self._num_generations = 0
        self._is_exhausted = False
        self._retried = retried
        evaluator.on_incident = self._on_incident

    def run(self) -> bool:
        """Propose and train until the setup's number of generations is reached.

        Returns:
            Whether the run ended early because the space is exhausted.

        Raises:
            RunError: the record is damaged.
            SpaceExhausted: the space holds no mechanism at all at the task's sizes.
        """
        self._read()
        self._end_generations(is_replayed=True)
        self._submit(range(len(self._proposals)))
        while self._propose() or self._running:
            self._wait()
        if not self._proposals:
            raise self._empty_space()
        # Only at the end, because estimates change with further results.
        unlikely = {e.key for e in self._run.estimates() if not e.is_member and e.p < LIKELY}
        remove_weights(self._run.folder, {str(p.key) for p in self._proposals} & unlikely)
        return self._is_exhausted

    def _read(self) -> None:
        """Load recorded proposals and evaluations, except failures that are retried."""
        recorded = self._run.proposals()
        self._proposer.follow(recorded)
        for number, group in groupby(recorded, key=lambda proposal: proposal.number):
            if number != len(self._proposals) or self._is_exhausted:
                raise RunError(
                    f"{self._run.folder}: its record lacks proposal {len(self._proposals)}; "
                    "restore the database from a copy."
                )
            self._add(list(group)[-1])
        trained = {(t.key, t.repeat): t.evaluation for t in self._run.trainings("search")}
        for number, proposal in enumerate(self._proposals):
            for repeat in self._repeats[number]:
                evaluation = trained.get((str(proposal.key), repeat))
                if evaluation is not None and evaluation.reason not in self._retried:
                    self._learn(number, repeat, evaluation)

    def _propose(self) -> bool:
        """Record and submit all proposals that may be computed now.

        Returns:
            Whether there was one.
        """
        attempts: list[Proposal] = []
        first = len(self._proposals)
        total = self._setup.config.generations * self._setup.config.population
        while (
            len(self._proposals) < total
            and not self._is_exhausted
            and self._proposer.may_propose(len(self._proposals), len(self._ordered))
        ):
            attempts += self._proposer.propose(len(self._proposals), self._ordered)
            self._add(attempts[-1])
        if attempts:
            self._writer.record_proposals(attempts)
            self._submit(range(first, len(self._proposals)))
            self._end_generations()
        return len(self._proposals) > first

    def _add(self, last: Proposal) -> None:
        """Add the last attempt for a number; if it is not to be trained, the space is exhausted."""
        self._is_exhausted = not last.is_trained
        if last.is_trained:
            first = self._trainings[str(last.key)]
            repeats = range(first, first + (1 if last.is_repeat else self._setup.config.repeats))
            self._trainings[str(last.key)] = repeats.stop
            self._proposals.append(last)
            self._repeats.append(repeats)
            self._ended.append({})

    def _submit(self, numbers: range) -> None:
        """Submit the trials of these proposals that have no evaluation yet."""
        trials = []
        for number in numbers:
            for repeat in self._repeats[number]:
                if repeat not in self._ended[number]:
                    trial = self._trial(self._proposals[number], repeat)
                    trials.append(trial)
                    self._running[trial.key, trial.repeat] = number
        if self._is_trained:
            self._evaluator.submit(trials)
            return
        self._record_all([(trial, _untrained(trial)) for trial in trials])

    def _wait(self) -> None:
        if not self._running:
            return
        finished = self._evaluator.wait()
        if not finished:
            raise RunError(
                f"the evaluator gave {len(self._running)} trainings back without a result; "
                f"`nas resume {run_argument(self._run.folder)}` begins them again."
            )
        self._record_all(finished)

    def _record_all(self, finished: Sequence[tuple[Trial, Evaluation]]) -> None:
        """Record all finished trainings, then use their results."""
        numbers = [self._record(trial, evaluation) for trial, evaluation in finished]
        for number, (trial, evaluation) in zip(numbers, finished, strict=True):
            self._learn(number, trial.repeat, evaluation)
            generation, proposal = number // self._setup.config.population, self._proposals[number]
            self._listener.on_evaluation(Evaluated(generation, proposal, trial.repeat, evaluation))
            self._end_generations()

    def _record(self, trial: Trial, evaluation: Evaluation) -> int:
        """Record a finished training and return the number of its proposal."""
        number = self._running.pop((trial.key, trial.repeat))
        proposal = self._proposals[number]
        names = {objective.name for objective in self._setup.objectives}
        missing = names - proposal.costs.keys() - evaluation.metrics.keys()
        if evaluation.is_ok and missing:
            raise RunError(
                f"task {self._setup.task.name!r} did not measure {', '.join(sorted(missing))}, "
                "which the run optimises; expected its score to give all of its metrics."
            )
        keep_weights(self._run.folder, trial.key, evaluation)
        generation = number // self._setup.config.population
        self._writer.record_evaluation(trial.key, trial.repeat, evaluation, generation)
        return number

    def _on_incident(self, incident: Incident) -> None:
        """Record a failure of a worker."""
        self._writer.record_incident(incident)
        self._listener.on_incident(incident)

    def _learn(self, number: int, repeat: int, evaluation: Evaluation) -> None:
        """Add an evaluation; the last one of a proposal completes its result."""
        ended, proposal = self._ended[number], self._proposals[number]
        ended[repeat] = evaluation
        if len(ended) < len(self._repeats[number]):
            return
        rows = None
        if not any(evaluation.status == "failed" for evaluation in ended.values()):
            worst = {o.name: o.reference for o in self._setup.objectives}
            metrics = (ended[i].metrics if ended[i].is_ok else {} for i in sorted(ended))
            values = ({**worst, **proposal.costs, **scores} for scores in metrics)
            rows = [as_costs(self._setup.objectives, row) for row in values]
        is_ok = all(evaluation.is_ok for evaluation in ended.values())
        self._results[number] = TrialResult.of(proposal, rows, is_ok=is_ok)
        while len(self._ordered) in self._results:
            self._ordered.append(self._results[len(self._ordered)])

    def _end_generations(self, *, is_replayed: bool = False) -> None:
        """Record estimates after each complete generation, and notify the listener."""
        size, num_results = self._setup.config.population, len(self._ordered)
        is_over = self._is_exhausted and num_results == len(self._proposals)
        done = -(-num_results // size) if is_over else num_results // size
        if done == self._num_generations:
            return
        # A training of this process may belong to a generation that was recorded without it.
        num_kept = len(self._run.generations()) if is_replayed else 0
        for number in range(max(self._num_generations, num_kept), done):
            self._record_generation(number)
        recorded = self._run.generations()
        if not is_replayed:
            write_front(self._run)
        for number in range(self._num_generations, done):
            counts = sum((g.counts for g in recorded[: number + 1]), start=Counts())
            self._listener.on_generation(GenerationDone(recorded[number], counts, is_replayed))
        self._num_generations = done

    def _record_generation(self, number: int) -> None:
        """Record the estimates that follow from the results up to the end of a generation."""
        objectives = self._setup.objectives
        estimates = posterior_estimates(
            objectives, self._ordered[: (number + 1) * self._setup.config.population]
        )
        front = [estimate.means for estimate in estimates if estimate.is_member]
        first = objectives[0]
        best = min((means[first.name] for means in front), key=first.as_cost, default=None)
        volume = scaled_hypervolume(objectives, front)
        self._writer.record_generation(number, estimates, volume, best)

    def _trial(self, proposal: Proposal, repeat: int) -> Trial:
        return Trial(
            key=str(proposal.key),
            genome=proposal.genome,
            seed=training_seed(self._setup.config.seed, str(proposal.key), repeat),
            repeat=repeat,
            work=proposal.costs.get("time_ms", proposal.costs.get("macs", 0.0)),
            keeps_weights=repeat == 0 and self._is_trained,
        )

    def _empty_space(self) -> SpaceExhausted:
        attempts = self._run.proposals()
        note = next((p.note for p in attempts if p.note), "")
        reason = f", the first because: {note}" if note else ""
        return SpaceExhausted(
            f"space {self._setup.space.name!r} holds no mechanism that can be trained: "
            f"{len(attempts)} proposals in a row were rejected{reason}. Widen the space or change "
            "the task's sizes."
        )


def _untrained(trial: Trial) -> Evaluation:
    """The evaluation of a mechanism in a run without a metric, which trains nothing."""
    return Evaluation(
        status="ok",
        reason=None,
        metrics={},
        reports=(),
        seed=trial.seed,
        budget=Budget(0, 0, "none"),
        wall_seconds=0.0,
        core_seconds=0.0,
        peak_memory_bytes=0,
        worker="none",
        execution="not trained: no objective is measured",
    )
