"""Which worker runs a case: its interpreter, its overlays, and a digest over what its behaviour follows from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from eagle_contracts.devices import CPU, Device
from eagle_contracts.overlay_files import read_overlay
from eagle_contracts.plan import Case, written
from eagle_contracts.spec.model import Environment, Pipeline
from eagle_contracts.workers.client import Launch, package_sources
from eagle_contracts.workers.environments import Resolved, Unavailable, resolve
from eagle_contracts.workers.locks import lock_directories
from eagle_contracts.workers.pool import Engine
from eagle_contracts.workers.store import key_of, sources_digest


class Unrunnable(Exception):
    """A case without an observation: `status` is `error` or `unavailable`, `reason` its code.

    `details` are lines below the message, `log` is what was printed last.
    """

    def __init__(
        self,
        status: Literal["error", "unavailable"],
        reason: str,
        message: str,
        log: str = "",
        details: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.log, self.details = status, reason, message, log, details


class EngineTable:
    """Interpreters and sources looked up once in a run."""

    def __init__(self, root: Path, home: Path, device: Device = CPU) -> None:
        self._root, self._home, self._device = root, home, device
        self._resolved: dict[tuple[Path, str], Resolved | Unavailable] = {}
        self._sources: dict[str, str] = {}
        self._code: dict[str, str] = {}

    def environment(self, pipeline: Pipeline, environment: Environment) -> Resolved | Unavailable:
        """Return the interpreter of an environment."""
        key = (pipeline.folder, environment.name)
        if key not in self._resolved:
            self._resolved[key] = resolve(
                environment,
                self._home,
                lock_directories(pipeline.folder, self._root),
                among=pipeline.environments,
                folder=pipeline.folder,
            )
        return self._resolved[key]

    def engine(self, case: Case) -> Engine:
        """Return what a case's worker is made from; raises `Unrunnable` where there is no interpreter."""
        found = self.environment(case.pipeline, case.environment)
        if isinstance(found, Unavailable):
            raise Unrunnable("unavailable", found.reason, found.message)
        named = case.environment.engine.name if case.environment.engine else ""
        overlays = tuple(
            {**read_overlay(value, case.pipeline.folder), "engine": named}
            for value in (case.environment.overlay, case.overlay)
            if value is not None
        )
        device = self._device if case.subject.on_device else CPU
        told = {"device": device.kind} if device.is_gpu else {}
        return Engine(
            label=found.label,
            launch=Launch(command=found.command, environ={**found.env, **device.environ}),
            packages=tuple(dict.fromkeys(["eagle_contracts", case.subject.package])),
            prepare=case.subject.prepare,
            prepare_params={**case.subject.prepare_params(written(case)), **told},
            spawns=device.is_gpu,
            overlays=overlays,
            identity=self._identity(found),
        )

    def code(self, engine: Engine) -> str:
        """Return a digest over the adapter's own sources: when they change, what they observed is made again."""
        for package in engine.packages:
            if package not in self._code:
                self._code[package] = key_of(package_sources(package))
        return key_of([self._code[package] for package in engine.packages])

    def _identity(self, found: Resolved) -> str | None:
        """Return a digest over an overlay environment's sources; None for an interpreter that is not built here."""
        folders = list(found.folders)
        if not folders:
            return None
        key = str(folders)
        if key not in self._sources:
            self._sources[key] = sources_digest(folders)
        return self._sources[key]


def engine_variables(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of this process that an engine of that name reads: workers inherit them.

    SGLang's begin with SGLANG_, and those of transformers count for every engine.
    """
    prefixes = (f"{name.upper().replace('-', '_')}_", "TRANSFORMERS_")
    return {key: value for key, value in sorted(environ.items()) if key.startswith(prefixes)}


def shown_variables(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the same for a report, which may be public: what looks like a secret is only said to be set."""
    found = engine_variables(name, environ)
    return {key: "(set)" if any(word in key for word in _SECRET) else value for key, value in found.items()}


_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")

__all__ = ["EngineTable", "Unrunnable", "engine_variables", "shown_variables"]
