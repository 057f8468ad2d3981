"""Contract -> cases: what is to be run where, and under which id; no engine is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eagle_contracts.checks import CHECKS
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, suggest
from eagle_contracts.spec.model import Contract, Control, Environment, Expectation, Pipeline, Value
from eagle_contracts.spec.references import Scope, resolve
from eagle_contracts.subjects.protocol import Subject
from eagle_contracts.subjects.registry import BrokenSubject, UnknownSubject, subject_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One item of a run: a contract in one environment, for one expectation or one negative control."""

    name: str
    pipeline: Pipeline
    contract: Contract
    subject: Subject
    environment: Environment
    control: Control | None
    expectations: tuple[Expectation, ...]

    @property
    def is_control(self) -> bool:
        """Tell whether the case breaks the subject on purpose."""
        return self.control is not None


def cases_of(
    contract: Contract, pipeline: Pipeline, labels: Mapping[str, str], overrides: Mapping[str, Value]
) -> list[Case]:
    """Return a contract's cases in the order of its file, promises before controls.

    Controls are left out when a value is overridden: their breaks are written for the file's own values. Raises
    `SpecError` for an unknown adapter, parameter, expectation or control environment.
    """
    subject = _subject(contract)
    _check_parameters(contract, subject)
    cases = [
        _case(contract, pipeline, subject, environment, expectation=expectation, labels=labels)
        for expectation in _known(contract.expect)
        for environment in environments_of(contract.in_, pipeline)
    ]
    if not overrides:
        cases += [
            _case(contract, pipeline, subject, environment, control=control, labels=labels)
            for control in contract.must_catch
            for environment in environments_of(control.in_ or contract.in_, pipeline)
        ]
    return _with_own_names(cases)


def environments_of(names: Sequence[str], pipeline: Pipeline) -> list[Environment]:
    """Return the environments that roles and names stand for, each once, in the pipeline's order."""
    wanted = {found.name for name in names for found in pipeline.environments_of(name)}
    return [environment for name, environment in pipeline.environments.items() if name in wanted]


def parameters(case: Case, overrides: Mapping[str, Value]) -> dict[str, Value]:
    """Return what `with` comes to in this case: references resolved, then the control's break applied."""
    scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=overrides)
    given = {key: resolve(value, scope) for key, value in case.contract.with_.items()}
    return _broken(given, case.control, scope) if case.control else given


def _subject(contract: Contract) -> Subject:
    try:
        return subject_named(contract.run)
    except UnknownSubject as error:
        raise fail(
            contract.run_position,
            f"no adapter is called {contract.run!r}",
            suggest(contract.run, error.names, "adapters"),
        ) from error
    except BrokenSubject as error:
        raise fail(contract.run_position, str(error)) from error


def _check_parameters(contract: Contract, subject: Subject) -> None:
    issues = [
        SpecIssue(
            position=contract.document.key_at("with", key),
            message=f"{contract.run} takes no {key!r}",
            hint=suggest(key, list(subject.parameters), "parameters"),
        )
        for key in contract.with_
        if key not in subject.parameters
    ]
    missing = [key for key in subject.parameters if key not in contract.with_]
    issues += [
        SpecIssue(
            position=contract.run_position,
            message=f"{contract.run} needs with: {{{key}: ...}}",
            hint=f"{key} is {subject.parameters[key]}",
        )
        for key in missing
    ]
    if issues:
        raise SpecError(issues)


def _known(expectations: Sequence[Expectation]) -> Iterator[Expectation]:
    for expectation in expectations:
        if expectation.kind not in CHECKS:
            raise fail(
                expectation.position,
                f"no expectation is called {expectation.kind!r}",
                suggest(expectation.kind, list(CHECKS), "expectations"),
            )
        yield expectation


def _case(
    contract: Contract,
    pipeline: Pipeline,
    subject: Subject,
    environment: Environment,
    *,
    labels: Mapping[str, str],
    expectation: Expectation | None = None,
    control: Control | None = None,
) -> Case:
    what = expectation.kind if expectation else f"catches-{control.diagnosis}" if control else ""
    return Case(
        name=f"{what}[{labels.get(environment.name, environment.name)}]",
        pipeline=pipeline,
        contract=contract,
        subject=subject,
        environment=environment,
        control=control,
        expectations=(expectation,) if expectation else contract.expect,
    )


def _with_own_names(cases: Sequence[Case]) -> list[Case]:
    """Give equal names `-2`, `-3`, ... before the bracket, so that every id selects one case."""
    from dataclasses import replace

    seen: dict[str, int] = {}
    out = []
    for case in cases:
        seen[case.name] = seen.get(case.name, 0) + 1
        what, _, where = case.name.partition("[")
        name = case.name if seen[case.name] == 1 else f"{what}-{seen[case.name]}[{where}"
        out.append(replace(case, name=name))
    return out


def _broken(given: Mapping[str, Value], control: Control, scope: Scope) -> dict[str, Value]:
    """Apply a break to parameters; raises `SpecError` for a path that this adapter has nothing at."""
    out = dict(given)
    for path, data in control.break_.edits:
        key = path.removeprefix("with.")
        if control.break_.verb not in ("set", "shift") or key == path or key not in out:
            hint = suggest(path, [f"with.{name}" for name in given], "paths")
            raise fail(control.break_.position, f"nothing here can be broken at {path!r}", hint)
        value = Value(data=data, position=control.break_.position)
        if control.break_.verb == "shift":
            value = Value(data=_shifted(out[key], data, control), position=control.break_.position)
        out[key] = resolve(value, scope)
    return out


def _shifted(value: Value, by: object, control: Control) -> list[int]:
    entries = value.data if isinstance(value.data, list) else []
    numbers = [entry for entry in entries if isinstance(entry, int)]
    if not isinstance(by, int) or not numbers or len(numbers) != len(entries):
        raise fail(control.break_.position, f"shift moves a list of whole numbers by one, and this is {value.data!r}")
    return [number + by for number in numbers]
