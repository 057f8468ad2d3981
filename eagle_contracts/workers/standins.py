"""Stand-ins for packages that an engine imports and the checked code never uses; every use raises.

Runs inside a worker, before the engine is imported, with the standard library alone.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn


class StandInUsed(RuntimeError):
    """A stand-in was called, instantiated or read: the observation would not be of real code."""


USED: list[str] = []
"""Every use, also where an engine swallowed the exception: a subject refuses an observation when this is not empty."""


def _use(name: str) -> NoReturn:
    USED.append(name)
    raise StandInUsed(f"{name} is a stand-in: the package is not installed here, and the checked code may not need it")


class _StandInType(type):
    """Classes that may be named, subclassed and tested against, and nothing else."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _use(f"{cls.__module__}.{cls.__qualname__}.{name}")


def _refuse_instance(self: object, *args: object, **kwargs: object) -> None:
    base = next(c for c in type(self).__mro__ if c.__dict__.get("_eagle_contracts_stand_in"))
    _use(f"{base.__module__}.{base.__qualname__}")


class _Function:
    """A function that may be imported and passed along, and raises when called or read."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        _use(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _use(f"{self.__name__}.{name}")


class StandInModule(ModuleType):
    """A module whose names all exist until one is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        loaded = sys.modules.get(f"{self.__name__}.{name}")
        if loaded is not None:
            return loaded
        made: Any
        if name[0].isupper():
            body = {"__init__": _refuse_instance, "__module__": self.__name__, "_eagle_contracts_stand_in": True}
            made = _StandInType(name, (), body)
        else:
            made = _Function(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str], absent: Sequence[str]) -> None:
        self._packages, self._absent = frozenset(packages), frozenset(absent)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for the packages stood in for; a name listed as absent stays an ImportError."""
        if fullname.split(".")[0] not in self._packages:
            return None
        if fullname in self._absent:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make the module; its version says what it is to whoever compares versions."""
        module = StandInModule(spec.name)
        module.__dict__.update(__path__=[], __version__="0.0.0")
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install(packages: Sequence[str], absent: Sequence[str] = ()) -> tuple[str, ...]:
    """Stand in for packages, first on the import path, so that they shadow real ones too; return their names."""
    sys.meta_path.insert(0, _Finder(packages, absent))
    return tuple(packages)
