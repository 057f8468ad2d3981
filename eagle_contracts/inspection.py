"""All that is wrong with a pipeline or a case and can be said without an engine. PYTEST_DONT_REWRITE

`validate` and a run of pytest ask here, so both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from eagle_contracts.overlay_files import read_overlay
from eagle_contracts.plan import Case, break_of, parameters
from eagle_contracts.project import home_folder
from eagle_contracts.promises import promise_issues
from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecError, SpecIssue
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.located import pick, value_at
from eagle_contracts.spec.model import Contract, Pipeline, Value
from eagle_contracts.spec.references import Scope, lookup, resolve
from eagle_contracts.taps import parse_tap, parse_taps
from eagle_contracts.targets import check_draft, twin_of
from eagle_contracts.twin import Twin
from eagle_contracts.workers.locks import find_lock, lock_directories
from eagle_contracts.workers.own import own_interpreters

DRAFT = "sglang.draft"
"""The subject that builds the draft itself, and so needs a config of which one can be built."""
Overrides = Mapping[str, Value]


def pipeline_issues(pipeline: Pipeline, root: Path, overrides: Overrides) -> list[SpecIssue]:
    """Return what is wrong with a pipeline's configs, claims, overlays and locks, and with a user's own interpreters.

    Claims need the target's depth, so they are looked at only where a twin can be made.
    """
    issues: list[SpecIssue] = []
    layers = None
    with _into(issues):
        layers = twin_of(pipeline).layers
    if layers is not None:
        for scope in _scopes(pipeline, overrides):
            issues += _claim(scope, layers)
    directories = lock_directories(pipeline.folder, root)
    for environment in pipeline.environments.values():
        with _into(issues):
            find_lock(environment, directories, pipeline.environments)
        with _into(issues):
            if environment.overlay is not None:
                read_overlay(environment.overlay, pipeline.folder)
    with _into(issues):
        own_interpreters(home_folder(root))
    return once(issues)


def contract_issues(
    contract: Contract, plan: Callable[[Contract], Sequence[Case]], twin: Twin, overrides: Overrides
) -> list[SpecIssue]:
    """Return what is wrong with a contract's producers, and with the values that its cases come to."""
    issues: list[SpecIssue] = []
    cases: Sequence[Case] = ()
    with _into(issues):
        cases = plan(contract)
    for case in cases:
        issues += case_issues(case, twin, overrides)
    return once(issues)


def promised_issues(document: Document, pipeline: Pipeline, layers: int, overrides: Overrides) -> Iterator[SpecIssue]:
    """Yield what is wrong with promises as a contract's file has them, whatever else is wrong there.

    A reference that stands for nothing is left to `case_issues`: what it stands for can depend on the environment.
    """
    expect = pick(document.data, ("expect",))
    entries = [entry if isinstance(entry, dict) else {} for entry in expect] if isinstance(expect, list) else []
    concatenates = any("concat" in entry for entry in entries)
    scope = Scope(pipeline=pipeline, overrides=overrides)
    for index, entry in enumerate(entries):
        for kind in entry:
            with suppress(SpecError):
                value = resolve(value_at(document, "expect", index, kind), scope)
                yield from promise_issues(kind, value, layers, concatenates=concatenates)


def case_issues(case: Case, twin: Twin, overrides: Overrides) -> list[SpecIssue]:
    """Return what is wrong with the parameters, the break and the promises of one case."""
    issues: list[SpecIssue] = [*_other_engine(case)]
    with _into(issues):
        issues += _no_engine(case)
    with _into(issues):
        given = parameters(case, overrides)
        if case.subject.name == DRAFT:
            check_draft(case.pipeline)
        if case.control is None and "layer_ids" in given:
            issues += _beyond(given["layer_ids"], twin.layers)
        request_of(case, given, twin)
    with _into(issues):
        break_of(case)
        if case.overlay is not None:
            read_overlay(case.overlay, case.pipeline.folder)
    scope = Scope(pipeline=case.pipeline, environment=case.environment, overrides=overrides)
    concatenates = any(one.kind == "concat" for one in case.contract.expect)
    for one in case.expectations:
        with _into(issues):
            issues += promise_issues(one.kind, resolve(one.value, scope), twin.layers, concatenates=concatenates)
    return once(issues)


def _other_engine(case: Case) -> Iterator[SpecIssue]:
    """Yield that an environment's engine is not the one that a contract's adapter runs in."""
    engine, wanted = case.environment.engine, case.subject.engine
    if engine is None or wanted in (engine.name, "python"):
        return
    others = case.pipeline.environments_of(case.environment.roles[0]) if case.environment.roles else ()
    fitting = [one.name for one in others if one.engine is None or one.engine.name == wanted]
    message = f"{case.environment.name} has {engine.name}, and {case.subject.name} runs in {wanted}"
    hint = f"write in: [{', '.join(fitting)}]" if fitting else f"no environment here has engine: {wanted}==VERSION"
    yield SpecIssue(position=case.contract.in_position, message=message, hint=hint)


def _no_engine(case: Case) -> Iterator[SpecIssue]:
    """Yield that nothing gives an environment the engine that a contract's adapter runs in."""
    environment, wanted = case.environment, case.subject.engine
    named = (environment.engine, environment.python, environment.command, environment.lock)
    if wanted == "python" or any(one is not None for one in named):
        return
    folder = case.pipeline.folder.absolute()
    # A user's own interpreters and locks may stand at any root that the run is started in.
    roots = (folder, *folder.parents)
    by_hand = any(environment.name in own_interpreters(home_folder(root)) for root in roots)
    among = case.pipeline.environments
    built = any(find_lock(environment, lock_directories(folder, root), among) is not None for root in roots)
    if not by_hand and not built and find_spec(wanted) is None:
        message = f"{environment.name} names no engine, and {case.subject.name} runs in {wanted}"
        yield SpecIssue(position=environment.position, message=message, hint=f"add engine: {wanted}==VERSION")


def _beyond(ids: Value, layers: int) -> Iterator[SpecIssue]:
    """Yield ids that name nothing in any engine: beyond the last state, or before the embedding, which some call -1."""
    for index, entry in enumerate(ids.data if isinstance(ids.data, list) else []):
        if type(entry) is int and not -1 <= entry <= layers:
            message = f"{entry} names no layer of a target with {layers} layers"
            yield SpecIssue(position=ids.at(index), message=message, hint=f"layers are 0 to {layers - 1}")


def request_of(case: Case, given: Mapping[str, Value], twin: Twin) -> dict[str, object]:
    """Return what the worker is asked; raises `SpecError`, also for whatever else an adapter raises."""
    try:
        return case.subject.request(given, twin, case.pipeline.folder)
    except SpecError:
        raise
    except Exception as error:
        message = f"{case.subject.name} cannot use these parameters: {type(error).__name__}: {clip(str(error), 200)}"
        place = case.contract.document.key_at("with")
        raise SpecError([SpecIssue(position=place, message=message)]) from error


def once(issues: Iterable[SpecIssue]) -> list[SpecIssue]:
    """Return each issue once: several cases can meet the same one."""
    return list({(issue.position.full, issue.message): issue for issue in issues}.values())


@contextmanager
def _into(issues: list[SpecIssue]) -> Iterator[None]:
    """Add the issues of a `SpecError` to a list, and go on."""
    try:
        yield
    except SpecError as error:
        issues += error.issues


def _scopes(pipeline: Pipeline, overrides: Overrides) -> Iterator[Scope]:
    """Yield where a claim may be written: on the command line, in the pipeline, in an environment's `set`."""
    if overrides:
        yield Scope(pipeline=pipeline, overrides=overrides)
    yield Scope(pipeline=pipeline)
    for environment in pipeline.environments.values():
        if any(key.startswith("trained.") for key in environment.set):
            yield Scope(pipeline=pipeline, environment=environment)


def _claim(scope: Scope, layers: int) -> list[SpecIssue]:
    issues: list[SpecIssue] = []
    for name, read in (("taps", parse_taps), ("final", parse_tap)):
        key = f"trained.{name}"
        written = [*scope.pipeline.trained, *(scope.environment.set if scope.environment else ()), *scope.overrides]
        if name in written or key in written:
            with _into(issues):
                read(lookup(key, scope, scope.pipeline.document.at("trained")), layers)
    return issues
