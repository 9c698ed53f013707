"""Training: a model of a task, step by step, on a processor core or a GPU.

    loop.py            epochs of steps, each followed by a report on held-out examples
    steps.py           what is repeated: a step of training, and judging a batch
    stepping.py        how it is repeated: call by call, or as a CUDA graph
    snapshot.py        a training as it stands, to be brought back after a try
    optimizers.py      AdamW under the task's schedule, also as a CUDA graph can hold it
    report.py          what a training says after an epoch
    probe.py           whether an attention block says anything about its input
    allocator.py       what becomes of the memory that tensors free
    hardware.py        device, precision, torch's state, what was used; processor.py: its name

What a training is for, who carries it out and how its result is recorded, nas.evaluation knows.
This package imports nothing by itself.
"""
