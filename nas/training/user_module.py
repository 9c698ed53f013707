"""A user's own torch module, ``FILE.py:CLASS``; its file is read here, and not executed.

This module imports no torch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from nas.common.errors import ConfigError
from nas.common.system import read_limited
from nas.genome import Genome

_LARGEST_FILE: Final = 2**22


@dataclass(frozen=True)
class UserModule:
    """A class of a user's Python file: ``path`` as the user wrote it, and the file's ``text``.

    Workers receive the text, so they need no access to the file. It must not import other files of
    its folder, because the digest would not depend on their content.
    """

    path: str = field(compare=False)
    class_name: str
    text: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.class_name}"

    @property
    def digest(self) -> str:
        """A digest of the file's text and the name of the class, 16 hex characters."""
        content = f"nas user module 1|{self.class_name}|{self.text}"
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    key = digest  # the identity of the module in trainings, as ``ResolvedGenome.key``


Mechanism: TypeAlias = Genome | UserModule


def is_user_module(source: str) -> bool:
    """Return whether an argument SOURCE has the form FILE.py:CLASS."""
    file, colon, _ = source.rpartition(":")
    return bool(colon) and file.endswith(".py")


def read_user_module(source: str) -> UserModule:
    """Read the file of FILE.py:CLASS without executing it; raise ConfigError if that fails."""
    path, _, class_name = source.rpartition(":")
    if not class_name.isidentifier():
        raise ConfigError(f"{source}: found the class {class_name!r}; expected FILE.py:CLASS.")
    try:
        text = read_limited(Path(path), _LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ConfigError(f"{source}: {path} cannot be read ({reason}).") from None
    return UserModule(path, class_name, text)
