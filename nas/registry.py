"""A registry: members of a family by name, our own and those of other packages.

    TASKS: Registry[type[Task]] = Registry("task family", "nas.tasks", error=TaskError)

    @TASKS.register("images")
    class ImageTask(Task): ...

A package offers more under the entry point group that the registry names; they are loaded when a
name is first looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from nas.config import near
from nas.errors import ConfigError

M = TypeVar("M")


class Registry(Generic[M]):
    """Members by name, in the order in which they were registered.

    Args:
        noun: what a member is called in an error, such as "algorithm".
        group: the entry point group of other packages' members.
        modules: our own, by full name; imported when a name is first looked up.
        error: raised for a name that nobody has.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        *,
        modules: tuple[str, ...] = (),
        error: type[ConfigError] = ConfigError,
    ) -> None:
        self.noun, self.group = noun, group
        self._modules, self._error = modules, error
        self._members: dict[str, M] = {}
        self._is_loaded = False

    def register(self, name: str) -> Callable[[M], M]:
        """Decorate a member with its name.

        Raises:
            ConfigError: the name is taken by another one.
        """

        def add(member: M) -> M:
            if name in self._members:
                raise self._error(f"two members are the {self.noun} {name!r}; expected one.")
            self._members[name] = member
            return member

        return add

    def get(self, name: str) -> M:
        """The member of that name.

        Raises:
            ConfigError, or what the registry was made with: there is none; the nearest name is
                suggested.
        """
        self._load()
        if name not in self._members:
            raise self._error(
                f"there is no {self.noun} {name!r}{near(name, self._members)}; "
                f"expected one of {', '.join(self._members)}."
            )
        return self._members[name]

    def names(self) -> tuple[str, ...]:
        """The names of all members."""
        self._load()
        return tuple(self._members)

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True  # first: what is imported may look up another member
        try:
            for module in self._modules:
                import_module(module)
            load_plugins(self.group)
        except ConfigError:
            self._is_loaded = False
            raise


def load_plugins(group: str) -> None:
    """Import what other packages offer under an entry point group.

    Raises:
        ConfigError: one of them cannot be imported.
    """
    for plugin in entry_points(group=group):
        try:
            plugin.load()
        except Exception as error:
            raise ConfigError(
                f"the plug-in {plugin.name!r} of {group} cannot be imported from {plugin.value}: "
                f"{type(error).__name__}: {error}."
            ) from error


# What a notebook shows of a value, as HTML. Values are below what can show them, so by name.
NOTEBOOK: Registry[Callable[[Any], str]] = Registry(
    "value shown in notebooks", "nas.notebook", modules=("nas.report.notebook",)
)
