"""Training: a model on a task's images, step by step, on a processor core or a GPU.

    session.py         the loop: epochs of steps, each followed by a look at held-out images
    part.py            the images on the device: cut, normalised, augmented
    work.py            what is repeated: a step of training, and judging a batch
    stepping.py        how it is repeated: call by call, or as a CUDA graph
    snapshot.py        a training as it stands, to be brought back after a try
    optimizers.py      AdamW under the task's schedule, also as a CUDA graph can hold it
    compiling.py       torch.compile for the attention blocks, where a task asks for it
    stacked.py         several models as one, and work_together.py: their steps
    allocator.py       what becomes of the memory that tensors free
    hardware.py        device, precision, threads, and what was used; processor.py: its name
    latency.py         how long the attention layers take for one image

What a training is for, who carries it out and how its result is recorded, nas.evaluation knows.
This package imports nothing by itself.
"""
