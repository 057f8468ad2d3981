"""One run: which workers serve which cases, what they observed, and what is kept of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle_contracts.checks import CHECKS, Context
from eagle_contracts.devices import CPU, Device
from eagle_contracts.engines import EngineTable, Unrunnable, engine_variables
from eagle_contracts.failures import config_lines, unrunnable
from eagle_contracts.inspection import case_issues, request_of
from eagle_contracts.observation import Observation, Refusal, observation_from_json, refusal_from_json
from eagle_contracts.plan import Case, break_of, parameters, widths_of
from eagle_contracts.project import home_folder
from eagle_contracts.promises import states_promised
from eagle_contracts.real_draft import draft_hidden
from eagle_contracts.spec.errors import SpecError, SpecIssue
from eagle_contracts.spec.model import Environment, Pipeline, Value
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.taps import Tap, parse_taps
from eagle_contracts.targets import real_fc_of, twin_of, unread_of
from eagle_contracts.twin import Twin
from eagle_contracts.verdict import Mismatch
from eagle_contracts.waiting import Waiting
from eagle_contracts.workers.client import CALL_SECONDS, Answer, Failure
from eagle_contracts.workers.environments import Resolved
from eagle_contracts.workers.pool import Call, Engine, Pool, Result
from eagle_contracts.workers.store import Store, empty, is_for_this_run, is_full, key_for_this_run, key_of

ORACLE_TOLERANCE: Mapping[str, float] = {"float32": 1e-5, "bfloat16": 2e-2}
"""How far an engine's own stream may be from transformers' before no verdict is given, by the type of the twin."""

COMPARING = "comparing the engine's own states with transformers'"
NOT_KEYED = ("folder", "inputs", "roots", "stage_folder")
"""Parameters that are places of this machine: what they hold is keyed by its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An observation with what it was made of, for the report; `folder` holds its tensors, `key` names its record.

    `roots` are the folders whose named tensors everything downstream is told apart by.
    """

    observation: Observation
    engine: Mapping[str, Any]
    oracle: Mapping[str, Any]
    twin: Twin
    seconds: float
    folder: Path
    key: str
    roots: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A call's future and the key that its record has in the store."""

    future: Future[Result]
    key: str


@dataclass(slots=True)
class _Memory:
    """What a run has asked for already."""

    twins: dict[Path, Twin] = field(default_factory=dict)
    made: dict[str, _Made] = field(default_factory=dict)


class Session:
    """Everything that cases of one run share; workers start when first needed and end with `close`."""

    def __init__(
        self,
        root: Path,
        overrides: Mapping[str, Value],
        pool: Pool | None = None,
        *,
        since: float = 0.0,
        call_seconds: float = CALL_SECONDS,
        device: Device = CPU,
    ) -> None:
        self.root, self.overrides, self.device = root, overrides, device
        self.home = home_folder(root)
        self.engines = EngineTable(root, self.home, device)
        self.store = Store(self.home / "store", since=since)
        self._pool = pool or Pool(call_seconds=call_seconds)
        self.waiting = Waiting(self._pool)
        self._memory = _Memory()
        self.refusals: dict[tuple[str, str, str], str] = {}

    def close(self) -> None:
        """End all workers, and tidy the store."""
        self._pool.close()
        self.store.close()

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the workers that run now."""
        return self._pool.pids

    def label(self, pipeline: Pipeline, environment: Environment) -> str:
        """Return how ids name an environment: with the version found, where the entry does not pin one."""
        found = self.engines.environment(pipeline, environment)
        return found.label if isinstance(found, Resolved) else environment.name

    def start(self, cases: Sequence[Case]) -> list[str]:
        """Queue what cases observe, producers first; return the labels of the engines that have to start for it."""
        labels: dict[str, None] = {}
        for case in cases:
            for one in (*case.upstream, case):
                label = self._queue(one)
                if label is not None:
                    labels[label] = None
        return list(labels)

    def forget_failures(self) -> None:
        """Let what gave no result be asked for again."""
        self._memory.made = {key: made for key, made in self._memory.made.items() if not _has_failed(made.future)}

    def _queue(self, case: Case) -> str | None:
        """Queue a case that waits for no other; return its engine's label if its observation is not kept already."""
        if case.producers or case.subject.observe is None:
            return None
        try:
            made = self._ask(case, parameters(case, self.overrides), {})
            engine = self.engines.engine(case)
        except (SpecError, Unrunnable):
            return None
        return engine.label if self.store.read(made.key) is None else None

    def observe(self, case: Case, given: Mapping[str, Value] | None = None) -> Seen:
        """Return a case's observation, with its own parameters or with others given.

        Raises `SpecError` for values that do not resolve, `Unrunnable` where there is no engine or no agreement, or
        where a producer gave nothing.
        """
        chosen = given if given is not None else parameters(case, self.overrides)
        upstream = {name: self._produced(name, producer) for name, producer in case.producers.items()}
        made = self._ask(case, chosen, upstream)
        oracle = self._oracle(case)
        record = self._value(made.future, case, "running the subject")
        observation = observation_from_json(record["value"])
        if observation.refusal is not None and case.subject.baseline is not None:
            self._check_baseline(case)
        return Seen(
            observation=observation,
            engine=record["engine"],
            oracle=oracle,
            twin=self.twin(case.pipeline),
            seconds=record["seconds"],
            folder=self.store.path(made.key),
            key=made.key,
            roots=_roots(upstream) or (self.store.path(made.key),),
        )

    def _value(self, future: Future[Result], case: Case, doing: str) -> Any:
        try:
            result = self.waiting.until(future).result()
        except CancelledError as error:
            raise Unrunnable("error", "cancelled", f"the run ended before {doing}") from error
        if isinstance(result, Answer):
            return result.value
        raise unrunnable(result, case, doing, self._pool.call_seconds, self._command(case))

    def _command(self, case: Case) -> Resolved | None:
        """Return how a case's engine is started, where a user named the command: it may be what is wrong."""
        found = self.engines.environment(case.pipeline, case.environment)
        return found if isinstance(found, Resolved) and found.source.startswith("command at") else None

    def _oracle(self, case: Case) -> Mapping[str, Any]:
        """Return how the engine's own states compare with the reference; raises `Unrunnable` if they do not agree."""
        gate = self._gate(case)
        if gate is None:
            return {}
        oracle: Mapping[str, Any] = self._value(gate.future, case, COMPARING)["value"]
        if oracle.get("refused"):
            raise _cannot_run(case, refusal_from_json(oracle["refused"]))
        _agree(oracle, self.twin(case.pipeline))
        return oracle

    def _produced(self, name: str, producer: Case) -> Seen:
        """Return a producer's observation; its own failing promises do not matter, a missing observation does."""
        try:
            seen = self.observe(producer)
        except (SpecError, Unrunnable) as error:
            first = str(error.render() if isinstance(error, SpecError) else error).splitlines()[0]
            sentence = (
                f"{producer.contract.name} in {producer.environment.name} gave nothing to read as {name}: {first}"
            )
            raise Unrunnable("unavailable", "upstream", sentence) from error
        if seen.observation.refusal is not None:
            words = seen.observation.refusal
            sentence = (
                f"{producer.contract.name} in {producer.environment.name} gave nothing to read as {name}: the engine "
                f"raised {words.type}: {words.message}"
            )
            raise Unrunnable("unavailable", "upstream", sentence)
        return seen

    def _check_baseline(self, case: Case) -> None:
        """Raise `Unrunnable` where the engine refuses without any parameters too: then no contract can be judged."""
        assert case.subject.baseline is not None
        made = self._make(case, case.subject.baseline(self.twin(case.pipeline)), {})
        record = self._value(made.future, case, "running the subject without parameters")
        without = observation_from_json(record["value"]).refusal
        if without is not None:
            # The gate ran this target without a draft, so what the engine does not like is the draft's.
            raise _cannot_run(case, without, of_draft=case.pipeline.draft_document is not None)

    def issues(self, case: Case) -> list[SpecIssue]:
        """Return what is wrong with a case and can be said without running it; raises `SpecError` without a twin."""
        return case_issues(case, self.twin(case.pipeline), self.overrides)

    def twin(self, pipeline: Pipeline) -> Twin:
        """Return a pipeline's twin."""
        if pipeline.folder not in self._memory.twins:
            self._memory.twins[pipeline.folder] = twin_of(pipeline, for_kernels=self.device.for_kernels)
        return self._memory.twins[pipeline.folder]

    def mismatches(self, case: Case, seen: Seen) -> list[Mismatch]:
        """Hold an observation against a case's expectations."""
        scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=self.overrides)
        context = Context(
            layers=seen.twin.layers,
            dtype=seen.twin.dtype,
            width=int(seen.twin.target["hidden_size"]),
            real_width=widths_of(case.pipeline),
            slots=len(self.taps(case.pipeline)),
            requests=tuple(len(prompt) for prompt in seen.twin.prompts),
            real_draft=draft_hidden(case.pipeline.draft_config) if case.pipeline.draft_config else None,
            unread=unread_of(case.pipeline),
            real_fc=real_fc_of(case.pipeline) if any(e.kind == "fc_in" for e in case.expectations) else (),
            concatenated=tuple(key for e in case.contract.expect if e.kind == "concat" for key in _keys(e.value)),
        )
        return [
            mismatch
            for expectation in case.expectations
            for mismatch in CHECKS[expectation.kind](resolve(expectation.value, scope), seen.observation, context)
        ]

    def claim(self, pipeline: Pipeline) -> Value | None:
        """Return the one claim about training, as overridden."""
        claimed = self.overrides.get("trained.taps", pipeline.trained.get("taps"))
        return resolve(claimed, Scope(pipeline=pipeline, overrides=self.overrides)) if claimed is not None else None

    def taps(self, pipeline: Pipeline) -> tuple[Tap, ...]:
        """Return the taps that the pipeline claims to have trained on."""
        claimed = self.claim(pipeline)
        return parse_taps(claimed, self.twin(pipeline).layers) if claimed is not None else ()

    def declared(self, case: Case) -> tuple[Value, ...]:
        """Return what a case's `slots` expectations declare, resolved."""
        scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=self.overrides)
        return tuple(resolve(e.value, scope) for e in case.expectations if e.kind == "slots")

    def promised(self, case: Case) -> list[tuple[str, Value]]:
        """Return a case's promises by kind, resolved."""
        scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=self.overrides)
        return [(e.kind, resolve(e.value, scope)) for e in case.expectations]

    def _gate(self, case: Case) -> _Made | None:
        if case.subject.gate is None:
            return None
        engine, twin = self.engines.engine(case), self.twin(case.pipeline)
        params = {**self._common(twin), "twin": twin.as_json(), "layers": twin.layers}
        whole = Path(str(params["folder"])) / "twin.json"
        keys = [twin.digest, engine_variables(case.subject.engine)]
        return self._through(engine, case.subject.gate, params, keys, usable=whole.is_file)

    def _ask(self, case: Case, given: Mapping[str, Value], upstream: Mapping[str, Seen]) -> _Made:
        twin = self.twin(case.pipeline)
        return self._make(case, request_of(case, given, twin), upstream)

    def _make(self, case: Case, own: Mapping[str, Any], upstream: Mapping[str, Seen]) -> _Made:
        engine, twin = self.engines.engine(case), self.twin(case.pipeline)
        params = {
            **self._common(twin),
            **own,
            **break_of(case),
            "declared": self._wanted(case, twin),
            "inputs": {name: str(seen.folder) for name, seen in upstream.items()},
            "roots": [str(root) for root in _roots(upstream)],
            "names": _names(case),
        }
        self._gate(case)
        read = {name: seen.key for name, seen in upstream.items()}
        keys = [twin.digest, read, engine_variables(case.subject.engine)]
        return self._through(engine, case.subject.observe, params, keys, read=tuple(read.values()))

    def _common(self, twin: Twin) -> dict[str, Any]:
        return {"folder": str(self.home / "twins" / twin.digest), "architecture": twin.architecture}

    def _wanted(self, case: Case, twin: Twin) -> Any:
        """Return the states declared by the first promise about states, as plain data."""
        scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=self.overrides)
        for expectation in case.contract.expect:
            states = states_promised(expectation.kind, resolve(expectation.value, scope), twin.layers)
            if states is not None:
                return states
        return None

    def _through(
        self,
        engine: Engine,
        function: str,
        params: Mapping[str, Any],
        keys: Sequence[object],
        usable: Callable[[], bool] | None = None,
        read: Sequence[str] = (),
    ) -> _Made:
        """Ask for a call once in a run: read from the store, or made by the engine's worker and kept."""
        stable = {name: value for name, value in params.items() if name not in NOT_KEYED}
        key = key_of(function, stable, keys, engine.identity, self.engines.code(engine), str(engine.content))
        if engine.identity is None or any(is_for_this_run(upstream) for upstream in read):
            key = key_for_this_run(key)
        if key in self._memory.made:
            return self._memory.made[key]
        kept = self.store.read(key) if usable is None or usable() else None
        if kept is not None:
            future: Future[Result] = Future()
            future.set_result(Answer(value=kept, seconds=0.0))
        else:
            future = self._pool.submit(engine, lambda call: self._run(engine, function, params, key, call, usable))
        self._memory.made[key] = _Made(future=future, key=key)
        return self._memory.made[key]

    def _run(
        self,
        engine: Engine,
        function: str,
        params: Mapping[str, Any],
        key: str,
        call: Call,
        usable: Callable[[], bool] | None,
    ) -> Result:
        """Make a record under the store's lock; a failure is returned and nothing is kept."""
        failures: list[Failure] = []

        def make(folder: Path) -> Mapping[str, Any] | None:
            result = call(function, {**params, "out": str(folder)})
            if self._pool.may_try_again(engine, result):
                empty(folder)
                result = call(function, {**params, "out": str(folder)})
            if isinstance(result, Failure):
                failures.append(self._without_room() if _has_no_room(result, folder) else result)
                return None
            prepared = self._pool.prepared(engine)
            info = prepared.value if isinstance(prepared, Answer) else {}
            return {"value": result.value, "seconds": result.seconds, "engine": info}

        try:
            record = self.store.through(key, make, usable=usable)
        except OSError as error:
            return self._without_room(error)
        if record is None:
            return failures[0]
        return Answer(value=record, seconds=record["seconds"])

    def _without_room(self, error: OSError | None = None) -> Failure:
        """Return the failure of a record that the disk did not take."""
        told = error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        words = f"{told.strerror or told} ({self.store.folder})"
        return Failure(kind="store", type=type(told).__name__, message=words, traceback="", log="")


def _has_failed(future: Future[Result]) -> bool:
    if not future.done():
        return False
    return future.cancelled() or future.exception() is not None or isinstance(future.result(), Failure)


def _has_no_room(failure: Failure, folder: Path) -> bool:
    """Tell whether a worker failed since the disk is full: what it raised then has many names."""
    return failure.kind == "exception" and (os.strerror(errno.ENOSPC) in failure.message or is_full(folder))


def _roots(upstream: Mapping[str, Seen]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(root for seen in upstream.values() for root in seen.roots))


def _names(case: Case) -> dict[str, dict[str, list[str]]]:
    """Return the names that producers promise for the tensors in their lists, by input and key."""
    promised = {
        source: {
            str(key): [str(name) for name in names]
            for expectation in producer.contract.expect
            if expectation.kind == "order" and isinstance(expectation.value.data, Mapping)
            for key, names in expectation.value.data.items()
            if isinstance(names, list)
        }
        for source, producer in case.producers.items()
    }
    return {source: lists for source, lists in promised.items() if lists}


def _keys(value: Value) -> tuple[str, ...]:
    return tuple(str(key) for key in value.data) if isinstance(value.data, Mapping) else ()


def _cannot_run(case: Case, refusal: Refusal, *, of_draft: bool = False) -> Unrunnable:
    what = "this draft's config" if of_draft else "this model"
    return Unrunnable(
        "error",
        "engine",
        f"{case.subject.engine} cannot run {what} here, whatever the parameters: it raised {refusal.type} at "
        f"{refusal.stage}: {refusal.message or refusal.line} ({refusal.where})",
        details=tuple(config_lines(f"{refusal.message} {refusal.line}", case, of_draft=of_draft)),
    )


def _agree(oracle: Mapping[str, Any], twin: Twin) -> None:
    worst = oracle["worst"]
    allowed = ORACLE_TOLERANCE[twin.dtype]
    if not worst <= allowed:
        sentence = (
            f"the engine's own states and transformers {oracle['transformers']}'s differ by {worst:.1e} at "
            f"h[{oracle['at']}] of {twin.layers} layers on the twin (allowed: {allowed:.0e}), so no slot can "
            f"be judged here"
        )
        raise Unrunnable("error", "oracle", sentence)


__all__ = ["Seen", "Session", "Unrunnable"]
