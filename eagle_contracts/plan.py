"""Contract -> cases: what is to be run where, on whose observations, and under which id; no engine is touched."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eagle_contracts.devices import CPU
from eagle_contracts.overlay_files import overlay_params
from eagle_contracts.spec.draft_config import BY_DEFAULT
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, suggest
from eagle_contracts.spec.flow import clip, found
from eagle_contracts.spec.model import Contract, Control, Environment, Expectation, Pipeline, Value
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.subjects.protocol import Subject
from eagle_contracts.subjects.registry import subject_named

RUN_SETS = "folder"
"""The overlay parameter that every run sets itself: where a dump's files go."""

Siblings = Callable[[str, Value], Contract]
"""Finds another contract of the same pipeline by name; the value is where it is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One item of a run: a contract in one environment, for one expectation or one negative control.

    `producers` are the cases whose observations it reads, by the names that `from` gives them.
    """

    name: str
    pipeline: Pipeline
    contract: Contract
    subject: Subject
    environment: Environment
    control: Control | None = None
    expectations: tuple[Expectation, ...] = ()
    producers: Mapping[str, Case] = field(default_factory=dict)

    @property
    def is_control(self) -> bool:
        """Tell whether the case breaks the subject on purpose."""
        return self.control is not None

    @property
    def overlay(self) -> Value | None:
        """The overlay that the contract itself puts on the engine."""
        return written(self).get("overlay")

    @property
    def upstream(self) -> tuple[Case, ...]:
        """Every case that this one's observation depends on, producers of producers first."""
        return tuple(one for producer in self.producers.values() for one in (*producer.upstream, producer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Makes the cases of a pipeline's contracts."""

    pipeline: Pipeline
    labels: Mapping[str, str]
    overrides: Mapping[str, Value]
    siblings: Siblings
    device: str = CPU.kind

    def cases(self, contract: Contract) -> list[Case]:
        """Return a contract's cases in the order of its file, promises before controls.

        Controls are left out when a value is overridden: their breaks are written for the file's own values. The
        contract's own file was found right; raises `SpecError` for producers that are not there, wrong, or in a circle.
        """
        bases = self._bases(contract, ())
        out = [
            replace(base, name=self._name(expectation.kind, base), expectations=(expectation,))
            for expectation in contract.expect
            for base in bases
        ]
        for control in () if self.overrides else contract.must_catch:
            chosen = {e.name for e in environments_of(control.in_ or (), self.pipeline)}
            out += [
                replace(
                    base,
                    name=self._name(f"catches-{control.diagnosis}", base),
                    control=control,
                    expectations=contract.expect,
                )
                for base in bases
                if not control.in_ or base.environment.name in chosen
            ]
        return _with_own_names([self._named_by_device(case) for case in out])

    def _named_by_device(self, case: Case) -> Case:
        """Add the device to a case's name where it runs on a GPU, or reads what was observed on one."""
        on_gpu = self.device != CPU.kind and any(one.subject.on_device for one in (*case.upstream, case))
        return replace(case, name=f"{case.name[:-1]},{self.device}]") if on_gpu else case

    def _bases(self, contract: Contract, trail: tuple[str, ...]) -> list[Case]:
        """Return a case for each environment and each choice of producers, without promises."""
        if contract.name in trail:
            circle = " -> ".join((*trail[trail.index(contract.name) :], contract.name))
            position = contract.document.at("with", "from")
            raise fail(position, f"contracts read each other in a circle: {circle}", "one of them must read no other")
        sources = self._sources(contract)
        environments = environments_of(contract.in_, self.pipeline) if contract.in_ else [None]
        out = []
        for environment in environments:
            choices = [
                [base for source in read for base in self._producers(source, environment, (*trail, contract.name))]
                for _, read in sources
            ]
            for chosen in itertools.product(*choices):
                producers = dict(zip((name for name, _ in sources), chosen, strict=True))
                place = environment or next(iter(producers.values())).environment
                out.append(
                    Case(
                        name=contract.name,
                        pipeline=self.pipeline,
                        contract=contract,
                        subject=subject_named(contract.run),
                        environment=place,
                        producers=producers,
                    )
                )
        return out

    def _sources(self, contract: Contract) -> list[tuple[str, list[Contract]]]:
        """Return the contracts that `from` names, by the name that it gives what is read: one, or any of a list."""
        value = contract.with_.get("from")
        found: list[tuple[str, list[Contract]]] = []
        issues: list[SpecIssue] = []
        if value is None or not isinstance(value.data, dict):
            return found
        for name in value.data:
            try:
                found.append((str(name), self._named(value.child(name))))
            except SpecError as error:
                issues += error.issues
        if issues:
            raise SpecError(issues)
        return found

    def _named(self, value: Value) -> list[Contract]:
        if not isinstance(value.data, list):
            return [self.siblings(str(value.data), value)]
        entries = [value.child(index) for index in range(len(value.data))]
        for index, entry in enumerate(entries):
            if entry.data in value.data[:index]:
                raise fail(entry.position, f"{entry.data} is named twice here: each contract makes items of its own")
        return [self.siblings(str(entry.data), entry) for entry in entries]

    def _producers(self, contract: Contract, environment: Environment | None, trail: tuple[str, ...]) -> list[Case]:
        """Return the producer in the consumer's own environment if it runs there, else in each of its own."""
        bases = self._bases(contract, trail)
        same = [base for base in bases if environment is not None and base.environment.name == environment.name]
        return same or bases

    def _name(self, what: str, base: Case) -> str:
        """Return `what[environment]`, with producers' environments where they differ.

        A contract that `from` names after others in a list stands there too: adding one leaves all ids as they are.
        """
        own = [] if not base.contract.in_ else [base.environment.name]
        names = dict.fromkeys([*own, *(producer.environment.name for producer in base.producers.values())])
        shown = [self.labels.get(name, name) for name in names]
        return f"{what}[{','.join([*shown, *_named_later(base)])}]"


def _named_later(base: Case) -> list[str]:
    source = base.contract.with_.get("from")
    lists = source.data if source is not None and isinstance(source.data, dict) else {}
    return [
        producer.contract.name
        for name, producer in base.producers.items()
        if isinstance(lists[name], list) and lists[name][0] != producer.contract.name
    ]


def environments_of(names: Sequence[str], pipeline: Pipeline) -> list[Environment]:
    """Return the environments that roles and names stand for, each once, in the pipeline's order."""
    wanted = {found.name for name in names for found in pipeline.environments_of(name)}
    return [environment for name, environment in pipeline.environments.items() if name in wanted]


def parameters(case: Case, overrides: Mapping[str, Value]) -> dict[str, Value]:
    """Return what `with` comes to in this case: references resolved, then the control's break applied."""
    scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=overrides)
    given = {key: resolve(value, scope) for key, value in case.contract.with_.items() if key != "from"}
    return _broken(given, case, scope) if case.control else given


def break_of(case: Case) -> dict[str, Any]:
    """Return the part of a control's break that the worker applies: to the overlay, or to what `from` gives."""
    if case.control is None:
        return {}
    broken = case.control.break_
    if broken.verb in ("swap", "drop"):
        if not case.producers:
            raise fail(broken.position, f"{broken.verb} acts on what `from` gives, and this contract has no `from`")
        content = broken.edits[0][1]
        return {"break": {broken.verb: list(content) if isinstance(content, tuple) else content}}
    edits = {path.removeprefix("overlay."): data for path, data in broken.edits if path.startswith("overlay.")}
    return {"overlay_params": _overlay_edits(case, edits)} if edits else {}


def _overlay_edits(case: Case, edits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overlay's parameters as a break leaves them; raises `SpecError` where there is nothing to break."""
    assert case.control is not None
    broken = case.control.break_
    params = _overlay_params(case)
    out = {}
    for name, data in edits.items():
        if name == RUN_SETS:
            raise fail(broken.position, f"overlay.{name} cannot be broken: each run puts its own folder there")
        if name not in params:
            hint = suggest(f"overlay.{name}", [f"overlay.{known}" for known in params if known != RUN_SETS], "paths")
            raise fail(broken.position, f"no overlay here has '{name}' in its PARAMS", hint)
        value = Value(data=params[name], position=broken.position)
        out[name] = _shifted(value, data, case.control) if broken.verb == "shift" else data
    return out


def _overlay_params(case: Case) -> dict[str, Any]:
    """Return the `PARAMS` of a case's overlays, the contract's own last."""
    assert case.control is not None
    values = [value for value in (case.environment.overlay, case.overlay) if value is not None]
    if not values:
        raise fail(case.control.break_.position, "there is no overlay here to break")
    return {name: data for value in values for name, data in overlay_params(value, case.pipeline.folder).items()}


def written(case: Case) -> dict[str, Value]:
    """Return `with` as a case runs it: what a control's break sets stands in place of what is written there."""
    given = dict(case.contract.with_)
    if case.control is not None and case.control.break_.verb == "set":
        position = case.control.break_.position
        for path, data in case.control.break_.edits:
            if path.startswith("with."):
                given[path.removeprefix("with.")] = Value(data=data, position=position)
    return given


def widths_of(pipeline: Pipeline) -> int | None:
    """Return the target's real hidden size, as its config.json has it; None where it has none."""
    config: Any = json.loads(pipeline.target_config.read_text(encoding="utf-8-sig"))
    part = config.get(pipeline.target_part, {}) if pipeline.target_part else config
    size = part.get("hidden_size")
    return size if isinstance(size, int) else None


def _with_own_names(cases: Sequence[Case]) -> list[Case]:
    """Give equal names `-2`, `-3`, ... before the bracket, so that every id selects one case."""
    seen: dict[str, int] = {}
    out = []
    for case in cases:
        seen[case.name] = seen.get(case.name, 0) + 1
        what, _, where = case.name.partition("[")
        name = case.name if seen[case.name] == 1 else f"{what}-{seen[case.name]}[{where}"
        out.append(replace(case, name=name))
    return out


def _broken(given: Mapping[str, Value], case: Case, scope: Scope) -> dict[str, Value]:
    """Apply a break to parameters; raises `SpecError` for a path that this adapter has nothing at."""
    assert case.control is not None
    out, control = dict(given), case.control
    for path, data in control.break_.edits:
        if control.break_.verb in ("swap", "drop") or path.startswith("overlay."):
            continue
        key = path.removeprefix("with.")
        if key == path or (key not in out and key not in case.subject.optional):
            hint = suggest(path, [f"with.{name}" for name in (*given, *case.subject.optional)], "paths")
            raise fail(control.break_.position, f"nothing here can be broken at '{clip(path)}'", hint)
        value = Value(data=data, position=control.break_.position)
        if control.break_.verb == "shift":
            value = Value(data=_shifted(out[key], data, control), position=control.break_.position)
        out[key] = resolve(value, scope)
    return out


def _shifted(value: Value, by: object, control: Control) -> list[int]:
    entries = value.data if isinstance(value.data, list) else []
    numbers = [entry for entry in entries if isinstance(entry, int) and not isinstance(entry, bool)]
    if not isinstance(by, int) or not numbers or len(numbers) != len(entries):
        hint = "name a list that is wrong here, such as {break: {with.layer_ids: [1, 2, 3]}, as: shifted}"
        message = f"shift moves a list of whole numbers, not {found(value.data)}"
        raise fail(control.break_.position, message, hint if value.data == BY_DEFAULT else "")
    return [number + by for number in numbers]
