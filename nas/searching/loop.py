"""The loop: propose what may be proposed, train it, record each training as it ends, go on.

The state is a function of the record: a resumed run reads it, trains what was proposed and has no
result, and goes on as if nothing had been. In the generational form a generation is proposed when
the one before has ended; with a lag, each proposal as soon as the results that it is computed from
are known. What is proposed never depends on the number of workers, nor on who finished first.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from nas.errors import RunError, SpaceExhausted
from nas.evaluation.trial import Budget, Evaluation, Trial, training_seed
from nas.objectives import as_costs
from nas.searching.algorithm import Told
from nas.searching.front_file import write_front
from nas.searching.front_weights import FrontWeights
from nas.searching.listener import Evaluated, GenerationDone, GenerationStarted
from nas.searching.outcome import LOST
from nas.store import Counts, summarise

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluator
    from nas.searching.listener import Listener
    from nas.searching.proposing import Proposer
    from nas.store import Proposal, RunWriter


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
        self._numbers: dict[str, int] = {}
        self._ended: dict[int, dict[int, Evaluation]] = {}
        self._results: dict[int, Told] = {}
        self._told: list[Told] = []
        self._progress: dict[int, list[int]] = {}
        self._num_under_way = 0
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
        self._submit([p for p in self._new if p.number not in self._results])
        while self._propose() or self._num_under_way:
            self._wait()
        if not self._new:
            raise self._nothing()
        return self._is_exhausted

    def _read(self) -> None:
        """Take over the record; what a lost worker took along counts as not yet trained."""
        recorded = self._run.proposals()
        self._proposer.follow(recorded)
        for number, group in groupby(recorded, key=lambda proposal: proposal.number):
            last = list(group)[-1]
            if number != len(self._new) or self._is_exhausted:
                raise RunError(
                    f"{self._run.folder}: its record lacks proposal {len(self._new)}; "
                    "restore the database from a copy."
                )
            self._is_exhausted = not last.is_new
            if last.is_new:
                self._add(last)
        for (key, repeat), evaluation in self._run.evaluations().items():
            if evaluation.reason != LOST and key in self._numbers:
                self._learn(self._numbers[key], repeat, evaluation)
        self._weights.tidy(self._waiting())

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
            self._is_exhausted = not attempts[-1].is_new
            if attempts[-1].is_new:
                self._add(attempts[-1])
        if attempts:
            self._writer.record_proposals(attempts)
            self._submit(self._new[first:])
            self._end_generations()
        return len(self._new) > first

    def _submit(self, proposals: list[Proposal]) -> None:
        """Begin the trainings that they lack."""
        wanted = [
            (proposal, repeat)
            for proposal in proposals
            for repeat in range(self._setup.repeats)
            if repeat not in self._ended[proposal.number]
        ]
        for number in sorted({self._generation(proposal) for proposal, _ in wanted}):
            self._begin_generation(number)
        self._num_under_way += len(wanted)
        trials = [self._trial(proposal, repeat) for proposal, repeat in wanted]
        if self._is_trained:
            self._evaluator.submit(trials)
            return
        for trial in trials:
            self._take(trial, _untrained(trial))

    def _wait(self) -> None:
        if not self._num_under_way:
            return
        found = self._evaluator.wait()
        if not found:
            raise RunError(
                f"the evaluator gave {self._num_under_way} trainings back without a result; "
                f"`nas resume {self._run.name}` begins them again."
            )
        for trial, evaluation in found:
            self._take(trial, evaluation)

    def _take(self, trial: Trial, evaluation: Evaluation) -> None:
        """Record a training that ended, before anything else is done with it."""
        number = self._numbers[trial.key]
        proposal = self._new[number]
        repeat = self._repeat(trial)
        costs = {o.name for o in self._setup.objectives} - proposal.costs.keys()
        missing = costs - evaluation.metrics.keys()
        if evaluation.is_ok and missing:
            raise RunError(
                f"task {self._setup.task.name!r} did not measure {', '.join(sorted(missing))}, "
                "which the run optimises; expected its score to give all of its metrics."
            )
        self._weights.keep(trial.key, evaluation)
        self._writer.record_evaluation(trial.key, repeat, evaluation)
        self._num_under_way -= 1
        self._learn(number, repeat, evaluation)
        self._weights.tidy(self._waiting())
        generation = self._generation(proposal)
        progress = self._progress[generation]
        progress[0] += 1
        self._listener.on_evaluation(Evaluated(generation, proposal, repeat, evaluation, *progress))
        self._end_generations()

    def _learn(self, number: int, repeat: int, evaluation: Evaluation) -> None:
        """Know a training's end; with a candidate's last one its result, with that maybe more."""
        ended, proposal = self._ended[number], self._new[number]
        ended[repeat] = evaluation
        if len(ended) < self._setup.repeats:
            return
        costs = None
        if all(one.is_ok for one in ended.values()):
            means, _ = summarise([ended[i].metrics for i in sorted(ended)])
            costs = as_costs(self._setup.objectives, {**proposal.costs, **means})
        self._results[number] = Told(number, proposal.genome, proposal.digest, costs)
        self._weights.learn(str(proposal.key), costs)
        while len(self._told) in self._results:
            self._told.append(self._results[len(self._told)])

    def _begin_generation(self, number: int) -> None:
        """Tell the listener, the first time that a training of it begins in this session."""
        if number in self._progress:
            return
        setup = self._setup
        proposed = [p for p in self._new if self._generation(p) == number]
        recorded = sum(len(self._ended[p.number]) for p in proposed)
        count = len(proposed) if setup.lag is None else setup.population
        to_train = count * setup.repeats - recorded
        self._progress[number] = [0, to_train]
        self._listener.on_generation_start(GenerationStarted(number, to_train, recorded))

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

    def _add(self, proposal: Proposal) -> None:
        self._new.append(proposal)
        self._numbers[str(proposal.key)] = proposal.number
        self._ended[proposal.number] = {}

    def _trial(self, proposal: Proposal, repeat: int) -> Trial:
        return Trial(
            key=str(proposal.key),
            genome=proposal.genome,
            seed=training_seed(self._setup.seed, str(proposal.key), repeat),
            work=proposal.costs.get("time_ms", proposal.costs.get("macs", 0.0)),
            keeps_weights=repeat == 0 and self._is_trained,
        )

    def _repeat(self, trial: Trial) -> int:
        seeds = [training_seed(self._setup.seed, trial.key, i) for i in range(self._setup.repeats)]
        return seeds.index(trial.seed)

    def _generation(self, proposal: Proposal) -> int:
        return proposal.number // self._setup.population

    def _waiting(self) -> set[str]:
        """Candidates some of whose trainings have ended: they may come to the front."""
        return {
            str(self._new[number].key)
            for number, ended in self._ended.items()
            if ended and number not in self._results
        }

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
