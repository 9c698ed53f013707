"""The loop: propose what may be proposed, train it, record each training as it ends, go on.

The state is a function of the record: a resumed run reads it, trains what was proposed and has no
result, and goes on as if nothing had been. In the generational form a generation is proposed when
the one before has ended; with a lag, each proposal as soon as the results that it is computed from
are known. What is proposed never depends on the number of workers, nor on who finished first.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from nas.errors import RunError, SpaceExhausted
from nas.evaluation.trial import Budget, Evaluation, Trial, training_seed
from nas.objectives import as_costs
from nas.searching.algorithm import Told
from nas.searching.front_file import write_front
from nas.searching.listener import Evaluated, GenerationDone
from nas.store import Counts, summarise
from nas.store.files import typed
from nas.store.weights import FrontWeights

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluator
    from nas.searching.listener import Listener
    from nas.searching.proposing import Proposer
    from nas.store import Proposal, RunWriter

LOST: Final = "worker_lost"


class Loop:
    """One process's work on a run; the caller closes writer and evaluator."""

    def __init__(
        self, writer: RunWriter, proposer: Proposer, evaluator: Evaluator, listener: Listener
    ) -> None:
        self._writer, self._run = writer, writer.run
        self._setup = setup = writer.run.setup
        self._proposer, self._evaluator, self._listener = proposer, evaluator, listener
        self._is_trained = any(objective.is_metric for objective in setup.objectives)
        self._new: list[Proposal] = []
        self._ended: list[dict[int, Evaluation]] = []  # of each new proposal, by repeat
        self._results: dict[int, Told] = {}
        self._told: list[Told] = []  # the results up to the first that is not known yet
        self._under_way: dict[tuple[str, int], tuple[int, int]] = {}
        self._num_generations = 0
        self._is_exhausted = False
        self._weights = FrontWeights(writer.run.folder)

    def run(self) -> bool:
        """Do all that the setup asks for and the record lacks.

        Returns:
            Whether it ended early because the space is exhausted.

        Raises:
            RunError: the record is damaged.
            SpaceExhausted: the space holds no mechanism at all at the task's sizes.
        """
        self._read()
        self._end_generations(is_replayed=True)
        self._submit(self._new)
        while self._propose() or self._under_way:
            self._wait()
        if not self._new:
            raise self._nothing()
        return self._is_exhausted

    def _read(self) -> None:
        """Take over the record; what a lost worker took along counts as not yet trained."""
        recorded = self._run.proposals()
        self._proposer.follow(recorded)
        for number, group in groupby(recorded, key=lambda proposal: proposal.number):
            if number != len(self._new) or self._is_exhausted:
                raise RunError(
                    f"{self._run.folder}: its record lacks proposal {len(self._new)}; "
                    "restore the database from a copy."
                )
            self._add(list(group)[-1])
        numbers = {proposal.key: proposal.number for proposal in self._new}
        for (key, repeat), evaluation in self._run.evaluations().items():
            if evaluation.reason != LOST and key in numbers:
                self._learn(numbers[key], repeat, evaluation)
        self._weights.tidy()

    def _propose(self) -> bool:
        """Record and submit all proposals whose time has come; whether there were any."""
        attempts: list[Proposal] = []
        first = len(self._new)
        total = self._setup.generations * self._setup.population
        while (
            len(self._new) < total
            and not self._is_exhausted
            and self._proposer.may_propose(len(self._new), len(self._told))
        ):
            attempts += self._proposer.propose(len(self._new), self._told)
            self._add(attempts[-1])
        if attempts:
            self._writer.record_proposals(attempts)
            self._submit(self._new[first:])
            self._end_generations()
        return len(self._new) > first

    def _add(self, last: Proposal) -> None:
        """Take the last attempt for a number: it is new, or the space is exhausted."""
        self._is_exhausted = not last.is_new
        if last.is_new:
            self._new.append(last)
            self._ended.append({})

    def _submit(self, proposals: list[Proposal]) -> None:
        """Begin the trainings that they lack."""
        trials = []
        for proposal in proposals:
            for repeat in range(self._setup.repeats):
                if repeat not in self._ended[proposal.number]:
                    trial = self._trial(proposal, repeat)
                    trials.append(trial)
                    self._under_way[trial.key, trial.seed] = proposal.number, repeat
        if self._is_trained:
            self._evaluator.submit(trials)
            return
        for trial in trials:
            self._take(trial, _untrained(trial))

    def _wait(self) -> None:
        if not self._under_way:
            return
        found = self._evaluator.wait()
        if not found:
            raise RunError(
                f"the evaluator gave {len(self._under_way)} trainings back without a result; "
                f"`nas resume {typed(self._run.folder)}` begins them again."
            )
        for trial, evaluation in found:
            self._take(trial, evaluation)

    def _take(self, trial: Trial, evaluation: Evaluation) -> None:
        """Record a training that ended, before anything else is done with it."""
        number, repeat = self._under_way.pop((trial.key, trial.seed))
        proposal = self._new[number]
        names = {objective.name for objective in self._setup.objectives}
        missing = names - proposal.costs.keys() - evaluation.metrics.keys()
        if evaluation.is_ok and missing:
            raise RunError(
                f"task {self._setup.task.name!r} did not measure {', '.join(sorted(missing))}, "
                "which the run optimises; expected its score to give all of its metrics."
            )
        self._weights.keep(trial.key, evaluation)
        self._writer.record_evaluation(trial.key, repeat, evaluation)
        self._learn(number, repeat, evaluation)
        self._weights.tidy()
        generation = number // self._setup.population
        self._listener.on_evaluation(Evaluated(generation, proposal, repeat, evaluation))
        self._end_generations()

    def _learn(self, number: int, repeat: int, evaluation: Evaluation) -> None:
        """Know a training's end; with a candidate's last one its result, with that maybe more."""
        ended, proposal = self._ended[number], self._new[number]
        ended[repeat] = evaluation
        if len(ended) < self._setup.repeats:
            self._weights.expect(str(proposal.key))
            return
        costs = None
        if all(one.is_ok for one in ended.values()):
            means, _ = summarise([ended[i].metrics for i in sorted(ended)])
            costs = as_costs(self._setup.objectives, {**proposal.costs, **means})
        self._results[number] = Told(number, proposal.genome, proposal.digest, costs)
        if any(one.reason == LOST for one in ended.values()):
            self._weights.expect(str(proposal.key))  # a resumed run trains the rest again
        else:
            self._weights.learn(str(proposal.key), costs)
        while len(self._told) in self._results:
            self._told.append(self._results[len(self._told)])

    def _end_generations(self, *, is_replayed: bool = False) -> None:
        """Tell the listener which generations have become complete, and write the front."""
        size, known = self._setup.population, len(self._told)
        is_over = self._is_exhausted and known == len(self._new)
        done = -(-known // size) if is_over else known // size
        if done == self._num_generations:
            return
        found = self._run.generations()
        if not is_replayed:
            write_front(self._run)
        for number in range(self._num_generations, done):
            counts = sum((g.counts for g in found[: number + 1]), start=Counts())
            self._listener.on_generation(GenerationDone(found[number], counts, is_replayed))
        self._num_generations = done

    def _trial(self, proposal: Proposal, repeat: int) -> Trial:
        return Trial(
            key=str(proposal.key),
            genome=proposal.genome,
            seed=training_seed(self._setup.seed, str(proposal.key), repeat),
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
    """Where no objective is a metric nothing is trained: all is known beforehand."""
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
