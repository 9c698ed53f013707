"""The loop: generation after generation, asked, recorded, trained and told.

    ask -> record the proposals -> train what has no recorded result -> record each as it ends
        -> tell all results in the order of the proposals -> record the generation

A resumed run takes the same way from the start: proposals are compared with the record, recorded
results are told instead of trained, and where the record ends training goes on. What an algorithm
is told does not depend on the number of workers, nor on who finished first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from nas.compiler import formula
from nas.errors import SpaceExhausted, ViolationError
from nas.evaluation.record import Job, training_seed
from nas.search.front_file import write_front
from nas.search.listener import Evaluated, GenerationDone, GenerationStarted
from nas.search.novelty import new_ones
from nas.search.standing import Standing
from nas.store import Generation, Proposal
from nas.store.writer import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from nas.evaluation.record import Evaluation, Evaluator
    from nas.genome import Genome
    from nas.search.algorithm import Algorithm
    from nas.search.listener import Listener
    from nas.search.novelty import Proposed
    from nas.store import Counts, RunWriter

    Repeat: TypeAlias = tuple[Proposal, int]


class Loop:
    """One process's work on a run; the caller closes writer and evaluator."""

    def __init__(
        self,
        writer: RunWriter,
        algorithm: Algorithm,
        evaluator: Evaluator,
        listener: Listener,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._writer = writer
        self._setup = writer.run.setup
        self._algorithm = algorithm
        self._evaluator = evaluator
        self._listener = listener
        self._clock = clock
        self._formulas: dict[str, str] = {}
        self.standing = Standing(self._setup)

    def run(self) -> bool:
        """Do all generations of the setup, the recorded ones by replay.

        Returns:
            Whether it ended early because the space is exhausted.

        Raises:
            RunError: a proposal or a generation differs from the record.
            SpaceExhausted: the space holds no mechanism at all at the task's sizes.
        """
        recorded = {generation.number for generation in self._writer.run.generations()}
        numbers = range(self._setup.generations)
        return not all(self._generation(n, is_recorded=n in recorded) for n in numbers)

    def _generation(self, number: int, *, is_recorded: bool) -> bool:
        """One generation; gives whether the space was able to fill it."""
        started = self._clock()
        asked = self._algorithm.ask()
        proposals = [self._proposal(p, number, i) for i, p in enumerate(asked)]
        self._writer.record_proposals(proposals)
        num_new = len(new_ones(asked))
        if number == 0 and num_new == 0:
            raise self._nothing(asked)
        if num_new:
            results, counts = self.standing.take(asked, self._evaluate(number, proposals))
            self._algorithm.tell(results)
            self._record(number, started, counts, is_recorded=is_recorded)
        return num_new == self._setup.population

    def _evaluate(self, number: int, proposals: Sequence[Proposal]) -> dict[str, list[Evaluation]]:
        """All repeats of the new proposals by key, from the record or trained now."""
        found: dict[str, dict[int, Evaluation]] = {}
        jobs: dict[Job, Repeat] = {}
        for proposal in proposals:
            if proposal.outcome != "new":
                continue
            assert proposal.key is not None, "a new proposal has a key"
            found[proposal.key] = {}
            for repeat in range(self._setup.repeats):
                evaluation = self._writer.run.evaluation(proposal.key, repeat)
                if evaluation is None:
                    seed = training_seed(self._setup.seed, proposal.key, repeat)
                    jobs[Job(proposal.key, proposal.genome, seed)] = (proposal, repeat)
                else:
                    found[proposal.key][repeat] = evaluation
        num_recorded = sum(map(len, found.values()))
        self._listener.on_generation_start(GenerationStarted(number, len(jobs), num_recorded))
        if jobs:
            self._train(jobs, found)
        return {key: [repeats[i] for i in sorted(repeats)] for key, repeats in found.items()}

    def _train(
        self, jobs: Mapping[Job, Repeat], found: Mapping[str, dict[int, Evaluation]]
    ) -> None:
        """Train the jobs, recording each result before anything else is done with it."""
        done = 0
        for job, evaluation in self._evaluator.run(list(jobs)):
            proposal, repeat = jobs[job]
            wanted = {objective.name for objective in self._setup.objectives}
            missing = wanted - evaluation.objectives.keys()
            assert not (evaluation.is_ok and missing), f"the evaluation lacks {missing}"
            self._writer.record_evaluation(job.key, repeat, evaluation)
            found[job.key][repeat] = evaluation
            done += 1
            self._listener.on_evaluation(
                Evaluated(proposal.generation, proposal, repeat, evaluation, done, len(jobs))
            )
        assert done == len(jobs), f"the evaluator answered {done} of {len(jobs)} jobs"

    def _record(self, number: int, started: datetime, counts: Counts, *, is_recorded: bool) -> None:
        standing = self.standing
        generation = Generation(
            number=number,
            started=started,
            finished=self._clock(),
            hypervolume=standing.hypervolume,
            best_accuracy=standing.best_accuracy,
            counts=counts,
            front=standing.front,
        )
        self._writer.record_generation(generation)
        if not is_recorded:
            write_front(self._writer.run)
        self._listener.on_generation(GenerationDone(generation, standing.counts, is_recorded))

    def _proposal(self, proposed: Proposed, generation: int, position: int) -> Proposal:
        return Proposal(
            generation=generation,
            position=position,
            digest=proposed.digest,
            key=proposed.key,
            genome=proposed.genome,
            formula=self._formula(proposed.digest, proposed.genome),
            origin=proposed.origin,
            parents=proposed.parents,
            outcome=proposed.outcome,
            note=proposed.note,
        )

    def _formula(self, digest: str, genome: Genome) -> str:
        if digest not in self._formulas:
            try:
                self._formulas[digest] = formula(genome)
            except ViolationError:
                self._formulas[digest] = ""
        return self._formulas[digest]

    def _nothing(self, asked: Sequence[Proposed]) -> SpaceExhausted:
        name = self._setup.space.name
        note = next((p.note for p in asked if p.note), "")
        reason = f", the first because: {note}" if note else ""
        return SpaceExhausted(
            f"space {name!r} holds no mechanism that can be trained: {len(asked)} proposals in a "
            f"row were rejected{reason}. Widen the space or change the task's sizes."
        )
