"""One run: which workers serve which cases, what they observed, and the verdict of each case."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eagle_contracts.checks import CHECKS
from eagle_contracts.observation import Observation, Refusal, observation_from_json
from eagle_contracts.plan import Case, parameters
from eagle_contracts.project import home_folder
from eagle_contracts.spec.errors import SpecError, fail
from eagle_contracts.spec.model import Environment, Pipeline, Value
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.taps import parse_taps
from eagle_contracts.targets import twin_of
from eagle_contracts.twin import Twin
from eagle_contracts.verdict import Mismatch
from eagle_contracts.workers.client import Answer, Failure, Launch
from eagle_contracts.workers.environments import Resolved, Unavailable
from eagle_contracts.workers.environments import resolve as resolve_environment
from eagle_contracts.workers.locks import lock_directories
from eagle_contracts.workers.overlays import OverlayError, parse
from eagle_contracts.workers.pool import Engine, Pool, Result

ORACLE_TOLERANCE = 1e-5
"""How far an engine's own stream may be from transformers' on a float32 twin before no verdict is given."""


class Unrunnable(Exception):
    """A case without an observation: `status` is `error` or `unavailable`, `reason` its code."""

    def __init__(self, status: Literal["error", "unavailable"], reason: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.log = status, reason, message, log


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An observation with what it was made of, for the report."""

    observation: Observation
    engine: Mapping[str, Any]
    oracle: Mapping[str, Any]
    twin: Twin
    seconds: float


class Session:
    """Everything that cases of one run share; workers start when first asked for and end with `close`."""

    def __init__(self, root: Path, overrides: Mapping[str, Value], pool: Pool | None = None) -> None:
        self.root, self.overrides = root, overrides
        self.home = home_folder(root)
        self._pool = pool or Pool()
        self._twins: dict[Path, Twin] = {}
        self._resolved: dict[tuple[Path, str], Resolved | Unavailable] = {}
        self._gates: dict[tuple[object, ...], Future[Result]] = {}
        self._observed: dict[tuple[object, ...], Future[Result]] = {}

    def close(self) -> None:
        """End all workers."""
        self._pool.close()

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the workers that run now."""
        return self._pool.pids

    def environment(self, pipeline: Pipeline, environment: Environment) -> Resolved | Unavailable:
        """Return the interpreter of an environment, looked up once in a run."""
        key = (pipeline.folder, environment.name)
        if key not in self._resolved:
            self._resolved[key] = resolve_environment(
                environment,
                self.home,
                lock_directories(pipeline.folder, self.root),
                among=pipeline.environments,
                folder=pipeline.folder,
            )
        return self._resolved[key]

    def label(self, pipeline: Pipeline, environment: Environment) -> str:
        """Return how ids name an environment: with the version found, where the entry does not pin one."""
        found = self.environment(pipeline, environment)
        return found.label if isinstance(found, Resolved) else environment.name

    def start(self, cases: Sequence[Case]) -> list[str]:
        """Begin to start the engines that cases need and queue what they observe; return the engines' labels."""
        labels: dict[str, None] = {}
        for case in cases:
            try:
                engine = self._engine(case)
                self._pool.start(engine)
                labels[engine.label] = None
            except (SpecError, Unrunnable):
                continue
        self.prefetch(cases)
        return list(labels)

    def prefetch(self, cases: Sequence[Case]) -> None:
        """Queue observations; what is wrong with a case is said when its turn comes."""
        for case in cases:
            try:
                self._request(case, parameters(case, self.overrides))
            except (SpecError, Unrunnable):
                continue

    def observe(self, case: Case, given: Mapping[str, Value] | None = None) -> Seen:
        """Return a case's observation, with its own parameters or with others given.

        Raises `SpecError` for values that do not resolve, `Unrunnable` where there is no engine or no agreement.
        """
        request = self._request(case, given if given is not None else parameters(case, self.overrides))
        engine = _value(self._pool.start(self._engine(case)), "importing the engine")
        oracle = _value(request.gate, "comparing the engine's own states with transformers'")
        if oracle.get("refused"):
            raise _cannot_run(case, Refusal(**oracle["refused"]))
        _agree(oracle, self.twin(case.pipeline))
        observation = observation_from_json(_value(request.observed, "running the subject"))
        if observation.refusal is not None:
            self._check_baseline(case)
        return Seen(
            observation=observation,
            engine=engine,
            oracle=oracle,
            twin=self.twin(case.pipeline),
            seconds=_seconds(request.observed),
        )

    def _check_baseline(self, case: Case) -> None:
        """Raise `Unrunnable` where the engine refuses without any parameters too: then no contract can be judged."""
        request = self._submit(case, case.subject.baseline(self.twin(case.pipeline)))
        without = observation_from_json(_value(request.observed, "running the subject without parameters")).refusal
        if without is not None:
            raise _cannot_run(case, without)

    def twin(self, pipeline: Pipeline) -> Twin:
        """Return a pipeline's twin."""
        if pipeline.folder not in self._twins:
            self._twins[pipeline.folder] = twin_of(pipeline)
        return self._twins[pipeline.folder]

    def mismatches(self, case: Case, seen: Seen) -> list[Mismatch]:
        """Hold an observation against a case's expectations."""
        scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=self.overrides)
        return [
            mismatch
            for expectation in case.expectations
            for mismatch in CHECKS[expectation.kind](
                resolve(expectation.value, scope), seen.observation, seen.twin.layers
            )
        ]

    def declared(self, case: Case) -> tuple[Value, ...]:
        """Return the taps that a case's expectations declare, resolved."""
        scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=self.overrides)
        return tuple(resolve(e.value, scope) for e in case.expectations if e.kind == "slots")

    def _engine(self, case: Case) -> Engine:
        found = self.environment(case.pipeline, case.environment)
        if isinstance(found, Unavailable):
            raise Unrunnable("unavailable", found.reason, found.message)
        return Engine(
            label=found.label,
            launch=Launch(command=found.command, environ=found.env),
            packages=tuple(dict.fromkeys(["eagle_contracts", case.subject.package])),
            prepare=case.subject.prepare,
            overlay=_overlay(case),
        )

    def _request(self, case: Case, given: Mapping[str, Value]) -> _Request:
        return self._submit(case, case.subject.request(given, self.twin(case.pipeline)))

    def _submit(self, case: Case, own: Mapping[str, Any]) -> _Request:
        engine, twin = self._engine(case), self.twin(case.pipeline)
        common = {"folder": str(self.home / "twins" / twin.digest), "architecture": twin.architecture}
        gate_key = (engine.key, case.subject.gate, twin.digest)
        if gate_key not in self._gates:
            params = {**common, "twin": twin.as_json(), "layers": twin.layers}
            self._gates[gate_key] = self._pool.submit(engine, case.subject.gate, params)
        declared = [
            "final_normed" if tap.k is None else tap.k
            for value in self.declared(case)[:1]
            for tap in parse_taps(value, twin.layers)
        ]
        params = {**common, **own, "declared": declared}
        key = (engine.key, case.subject.observe, twin.digest, json.dumps(params, sort_keys=True))
        if key not in self._observed:
            self._observed[key] = self._pool.submit(engine, case.subject.observe, params)
        return _Request(gate=self._gates[gate_key], observed=self._observed[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    gate: Future[Result]
    observed: Future[Result]


def _overlay(case: Case) -> Mapping[str, Any] | None:
    """Read an environment's overlay; raises `SpecError` at the place that names it."""
    value = case.environment.overlay
    if value is None:
        return None
    path = case.pipeline.folder / str(value.data)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise fail(value.position, f"the overlay cannot be read: {error.strerror}") from error
    shown = str(Path(value.position.path).parent / str(value.data))
    try:
        parse(text, shown)
    except OverlayError as error:
        raise fail(value.position, str(error)) from error
    return {"text": text, "shown": shown, "params": {}}


def _value(future: Future[Result], doing: str) -> Any:
    try:
        result = future.result()
    except CancelledError as error:
        raise Unrunnable("error", "cancelled", f"the run ended before {doing}") from error
    if isinstance(result, Answer):
        return result.value
    raise Unrunnable("error", result.kind, _failure_sentence(result, doing), _last_lines(result))


def _failure_sentence(failure: Failure, doing: str) -> str:
    what = f"{failure.type}: {failure.message}" if failure.type else failure.message
    return f"{doing} gave no result: {what}"


def _last_lines(failure: Failure) -> str:
    """Return the engine's last lines: its log's, else the exception's own trace in the worker."""
    text = failure.log.strip() or failure.traceback.strip()
    return "\n".join(text.splitlines()[-12:])


def _seconds(future: Future[Result]) -> float:
    result = future.result()
    return result.seconds if isinstance(result, Answer) else 0.0


def _cannot_run(case: Case, refusal: Refusal) -> Unrunnable:
    return Unrunnable(
        "error",
        "engine",
        f"{case.subject.engine} cannot run this model here, whatever the parameters: it raised {refusal.type} at "
        f"{refusal.stage}: {refusal.message or refusal.line} ({refusal.where})",
    )


def _agree(oracle: Mapping[str, Any], twin: Twin) -> None:
    worst = oracle["worst"]
    if not worst <= ORACLE_TOLERANCE:
        sentence = (
            f"the engine's own states and transformers {oracle['transformers']}'s differ by {worst:.1e} at "
            f"h[{oracle['at']}] of {twin.layers} layers on the twin (allowed: {ORACLE_TOLERANCE:.0e}), so no slot can "
            f"be judged here"
        )
        raise Unrunnable("error", "oracle", sentence)
