"""What a mechanism takes: time and memory of one attention block, measured.

The block is the one that trains, the generated module, with random weights, at batch 1, in
float32, on one thread of the processor or on a GPU. Every round measures everything once, so that
a noisy minute meets all mechanisms alike, and the fastest round counts. On the processor it is
processor time: on a busy machine a pass is interrupted however often one tries.

    passes.py    one pass: how long it takes, and how much memory it holds at most
    child.py     the process that passes run in, which may run out of memory in our stead
    rounds.py    mechanisms by lengths by passes, interleaved: what callers use
    tuning.py    which way of computing a pattern is the fastest, at the shapes of a task
"""

from nas.measurement.child import is_out_of_memory
from nas.measurement.passes import PASSES, Pass
from nas.measurement.rounds import Done, Reading, Readings, check_device, measure

__all__ = [
    "PASSES",
    "Done",
    "Pass",
    "Reading",
    "Readings",
    "check_device",
    "is_out_of_memory",
    "measure",
]
