"""The search loop: propose, train, record each training as it ends.

The state is a function of the record: a resumed run reads it, trains proposals without results, and
continues as if it had not been interrupted. Without a lag a generation is proposed when the one
before has ended; with a lag, each proposal as soon as the results that it is computed from are
known. Proposals never depend on the number of workers or on the order in which trainings finish.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from nas.common.errors import RunError, SpaceExhausted
from nas.common.objectives import as_costs
from nas.evaluation.trial import RETRIED, Budget, Evaluation, Trial, training_seed
from nas.searching.archive import posterior_estimates
from nas.searching.front_file import write_front
from nas.searching.listener import Evaluated, GenerationDone
from nas.searching.results import TrialResult
from nas.store import Counts, scaled_hypervolume
from nas.store.files import run_argument
from nas.store.weights import FrontWeights

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nas.evaluation.trial import Evaluator, Incident, Reason
    from nas.searching.listener import Listener
    from nas.searching.proposing import Proposer
    from nas.store import Proposal, RunWriter

LIKELY: Final = 0.01  # probability of membership from which on weights are kept


class Loop:
    """The work of one process on a run; the caller closes writer and evaluator.

    Args:
        retried: reasons of recorded failures that are repeated.
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
        self._asked: list[Proposal] = []  # by number; what is to be trained
        self._repeats: list[range] = []  # of its mechanism, that each of them asks for
        self._trainings: Counter[str] = Counter()  # asked for, of each mechanism
        self._ended: list[dict[int, Evaluation]] = []  # of each of them, by repeat
        self._results: dict[int, TrialResult] = {}
        self._told: list[TrialResult] = []  # the results up to the first that is not known yet
        self._under_way: dict[tuple[str, int], int] = {}  # numbers, by key and repeat
        self._num_generations = 0
        self._is_exhausted = False
        self._weights = FrontWeights(writer.run.folder)
        self._retried = retried
        evaluator.on_incident = self._hear

    def run(self) -> bool:
        """Train everything that the setup asks for and the record lacks.

        Returns:
            Whether the run ended early because the space is exhausted.

        Raises:
            RunError: the record is damaged.
            SpaceExhausted: the space holds no mechanism at all at the task's sizes.
        """
        self._read()
        self._end_generations(is_replayed=True)
        self._submit(range(len(self._asked)))
        while self._propose() or self._under_way:
            self._wait()
        if not self._asked:
            raise self._nothing()
        # Only at the end, because estimates change with further results.
        unlikely = {e.key for e in self._run.estimates() if not e.is_member and e.p < LIKELY}
        self._weights.remove({str(p.key) for p in self._asked} & unlikely)
        return self._is_exhausted

    def _read(self) -> None:
        """Take over the record; failures that are repeated count as not trained."""
        recorded = self._run.proposals()
        self._proposer.follow(recorded)
        for number, group in groupby(recorded, key=lambda proposal: proposal.number):
            if number != len(self._asked) or self._is_exhausted:
                raise RunError(
                    f"{self._run.folder}: its record lacks proposal {len(self._asked)}; "
                    "restore the database from a copy."
                )
            self._add(list(group)[-1])
        trained = {(t.key, t.repeat): t.evaluation for t in self._run.trainings("search")}
        for number, proposal in enumerate(self._asked):
            for repeat in self._repeats[number]:
                evaluation = trained.get((str(proposal.key), repeat))
                if evaluation is not None and evaluation.reason not in self._retried:
                    self._learn(number, repeat, evaluation)

    def _propose(self) -> bool:
        """Record and submit all proposals that may be computed now; whether there were any."""
        attempts: list[Proposal] = []
        first = len(self._asked)
        total = self._setup.generations * self._setup.population
        while (
            len(self._asked) < total
            and not self._is_exhausted
            and self._proposer.may_propose(len(self._asked), len(self._told))
        ):
            attempts += self._proposer.propose(len(self._asked), self._told)
            self._add(attempts[-1])
        if attempts:
            self._writer.record_proposals(attempts)
            self._submit(range(first, len(self._asked)))
            self._end_generations()
        return len(self._asked) > first

    def _add(self, last: Proposal) -> None:
        """Add the last attempt for a number: it is to be trained, or the space is exhausted."""
        self._is_exhausted = not last.is_trained
        if last.is_trained:
            first = self._trainings[str(last.key)]
            repeats = range(first, first + (1 if last.is_repeat else self._setup.repeats))
            self._trainings[str(last.key)] = repeats.stop
            self._asked.append(last)
            self._repeats.append(repeats)
            self._ended.append({})

    def _submit(self, numbers: range) -> None:
        """Submit the trials that these proposals lack."""
        trials = []
        for number in numbers:
            for repeat in self._repeats[number]:
                if repeat not in self._ended[number]:
                    trial = self._trial(self._asked[number], repeat)
                    trials.append(trial)
                    self._under_way[trial.key, trial.repeat] = number
        if self._is_trained:
            self._evaluator.submit(trials)
            return
        self._take([(trial, _untrained(trial)) for trial in trials])

    def _wait(self) -> None:
        if not self._under_way:
            return
        found = self._evaluator.wait()
        if not found:
            raise RunError(
                f"the evaluator gave {len(self._under_way)} trainings back without a result; "
                f"`nas resume {run_argument(self._run.folder)}` begins them again."
            )
        self._take(found)

    def _take(self, found: Sequence[tuple[Trial, Evaluation]]) -> None:
        """Record all finished trainings before their results are used."""
        numbers = [self._record(*one) for one in found]
        for number, (trial, evaluation) in zip(numbers, found, strict=True):
            self._learn(number, trial.repeat, evaluation)
            generation, proposal = number // self._setup.population, self._asked[number]
            self._listener.on_evaluation(Evaluated(generation, proposal, trial.repeat, evaluation))
            self._end_generations()

    def _record(self, trial: Trial, evaluation: Evaluation) -> int:
        """Record a finished training; returns the number of its proposal."""
        number = self._under_way.pop((trial.key, trial.repeat))
        proposal = self._asked[number]
        names = {objective.name for objective in self._setup.objectives}
        missing = names - proposal.costs.keys() - evaluation.metrics.keys()
        if evaluation.is_ok and missing:
            raise RunError(
                f"task {self._setup.task.name!r} did not measure {', '.join(sorted(missing))}, "
                "which the run optimises; expected its score to give all of its metrics."
            )
        self._weights.keep(trial.key, evaluation)
        generation = number // self._setup.population
        self._writer.record_evaluation(trial.key, trial.repeat, evaluation, generation)
        return number

    def _hear(self, incident: Incident) -> None:
        """Record a failure of a worker."""
        self._writer.record_incident(incident)
        self._listener.on_incident(incident)

    def _learn(self, number: int, repeat: int, evaluation: Evaluation) -> None:
        """Add an evaluation; the last one of a proposal completes its result."""
        ended, proposal = self._ended[number], self._asked[number]
        ended[repeat] = evaluation
        if len(ended) < len(self._repeats[number]):
            return
        rows = None
        if not any(one.status == "failed" for one in ended.values()):
            worst = {o.name: o.reference for o in self._setup.objectives}
            given = (ended[i].metrics if ended[i].is_ok else {} for i in sorted(ended))
            values = ({**worst, **proposal.costs, **found} for found in given)
            rows = [as_costs(self._setup.objectives, found) for found in values]
        is_ok = all(one.is_ok for one in ended.values())
        self._results[number] = TrialResult.of(proposal, rows, is_ok=is_ok)
        while len(self._told) in self._results:
            self._told.append(self._results[len(self._told)])

    def _end_generations(self, *, is_replayed: bool = False) -> None:
        """Record estimates after each complete generation, and notify the listener."""
        size, known = self._setup.population, len(self._told)
        is_over = self._is_exhausted and known == len(self._asked)
        done = -(-known // size) if is_over else known // size
        if done == self._num_generations:
            return
        # A training of this process may belong to a generation that was recorded without it.
        num_kept = len(self._run.generations()) if is_replayed else 0
        for number in range(max(self._num_generations, num_kept), done):
            self._record_generation(number)
        found = self._run.generations()
        if not is_replayed:
            write_front(self._run)
        for number in range(self._num_generations, done):
            counts = sum((g.counts for g in found[: number + 1]), start=Counts())
            self._listener.on_generation(GenerationDone(found[number], counts, is_replayed))
        self._num_generations = done

    def _record_generation(self, number: int) -> None:
        """Record the estimates that follow from the results up to the end of a generation."""
        objectives = self._setup.objectives
        estimates = posterior_estimates(
            objectives, self._told[: (number + 1) * self._setup.population]
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
            seed=training_seed(self._setup.seed, str(proposal.key), repeat),
            repeat=repeat,
            work=proposal.costs.get("time_ms", proposal.costs.get("macs", 0.0)),
            keeps_weights=repeat == 0 and self._is_trained,
        )

    def _nothing(self) -> SpaceExhausted:
        attempts = self._run.proposals()
        note = next((p.note for p in attempts if p.note), "")
        reason = f", the first because: {note}" if note else ""
        return SpaceExhausted(
            f"space {self._setup.space.name!r} holds no mechanism that can be trained: "
            f"{len(attempts)} proposals in a row were rejected{reason}. Widen the space or change "
            "the task's sizes."
        )


def _untrained(trial: Trial) -> Evaluation:
    """The evaluation of a mechanism where no objective is measured: nothing is trained."""
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
