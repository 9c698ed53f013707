"""Write the numbers of a search as event files of TensorBoard."""

from __future__ import annotations

from importlib.util import find_spec

from nas.common.errors import ConfigError
from nas.searching.listener import GenerationDone, Listener, SearchResult, Started


class TensorBoard(Listener):
    """Writes hypervolume, size of the front and best estimate of each generation.

    The step is the number of proposals so far. The files are in the folder ``tensorboard`` of the
    run.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self) -> None:
        if find_spec("tensorboard") is None:
            raise ConfigError(
                "the package tensorboard is not installed; run `pip install tensorboard`."
            )

    def on_start(self, event: Started) -> None:
        """Begin an event file."""
        from tensorboard.summary import Writer

        self._setup, self._writer = event.setup, Writer(str(event.folder / "tensorboard"))

    def on_generation(self, event: GenerationDone) -> None:
        """Write the numbers, unless a resumed search repeats a recorded generation."""
        if event.is_replayed:
            return
        generation = event.generation
        values = {
            "hypervolume": generation.hypervolume,
            "front_size": len(generation.front),
            f"best_{self._setup.objectives[0].name}": generation.best,
        }
        step = (generation.number + 1) * self._setup.config.population
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(f"search/{name}", value, step)
        self._writer.flush()

    def on_end(self, _: SearchResult) -> None:
        """Close the event file."""
        self._writer.close()
