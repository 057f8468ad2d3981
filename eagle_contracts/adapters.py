"""What a contract says of its adapter, as far as that can be read in its file. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eagle_contracts.checks import CHECKS
from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecIssue, suggest
from eagle_contracts.spec.flow import clip, show
from eagle_contracts.spec.located import pick
from eagle_contracts.subjects.protocol import Subject
from eagle_contracts.subjects.registry import BrokenSubject, UnknownSubject, subject_named


def adapter_issues(document: Document) -> Iterator[SpecIssue]:
    """Yield unknown adapters, parameters and promises, and what `from` cannot be; whatever else is wrong."""
    run = pick(document.data, ("run",))
    if not isinstance(run, str) or not run:
        return
    subject: Subject | None = None
    try:
        subject = subject_named(run)
    except UnknownSubject as error:
        message, hint = f"no adapter is called '{clip(run)}'", suggest(run, error.names, "adapters")
        yield SpecIssue(position=document.at("run"), message=message, hint=hint)
    except BrokenSubject as error:
        yield SpecIssue(position=document.at("run"), message=str(error))
    if subject is not None:
        yield from _parameters(document, subject)
    yield from _promises(document, subject)
    yield from _from(document, subject.sources if subject is not None else ())


def _parameters(document: Document, subject: Subject) -> Iterator[SpecIssue]:
    needed = [*subject.parameters, *(["from"] if subject.reads else [])]
    known = [*needed, *subject.optional]
    given = pick(document.data, ("with",))
    if given is not None and not isinstance(given, Mapping):
        return
    for key in given or ():
        if key not in known:
            hint = suggest(key, known, "parameters")
            message = f"{subject.name} takes no '{clip(key)}'"
            yield SpecIssue(position=document.key_at("with", key), message=message, hint=hint)
    for key in needed:
        if key not in (given or ()):
            about = f"{key} is {subject.parameters.get(key, 'a map from a name to another contract')}"
            message = f"{subject.name} needs with: {{{key}: ...}}"
            yield SpecIssue(position=document.at("run"), message=message, hint=about)


def _promises(document: Document, subject: Subject | None) -> Iterator[SpecIssue]:
    expect = pick(document.data, ("expect",))
    for index, entry in enumerate(expect if isinstance(expect, list) else ()):
        for kind in entry if isinstance(entry, Mapping) else ():
            position = document.key_at("expect", index, kind)
            if kind not in CHECKS:
                hint = suggest(kind, list(CHECKS), "expectations")
                message = f"no expectation is called '{clip(kind)}'"
                yield SpecIssue(position=position, message=message, hint=hint)
            elif subject is not None and subject.promises and kind not in subject.promises:
                offered = f"its expectations: {', '.join(subject.promises)}"
                message = f"{subject.name} cannot promise {kind}"
                yield SpecIssue(position=position, message=message, hint=offered)


def _from(document: Document, wanted: Sequence[str]) -> Iterator[SpecIssue]:
    """Yield what `from` holds besides names of contracts; whether they are there is the planner's question."""
    given = pick(document.data, ("with",))
    if not isinstance(given, Mapping):
        return
    if "from" not in given:
        if "in" not in (document.data if isinstance(document.data, Mapping) else ()):
            message = "'in' is missing: the role or the environments that this runs in"
            yield SpecIssue(position=document.at("run"), message=message)
        return
    sources = given["from"]
    if not isinstance(sources, Mapping) or not sources:
        message = f"'from' is a map from a name to the contract whose observation it stands for, not {show(sources)}"
        yield SpecIssue(position=document.at("with", "from"), message=clip(message, 200), hint="write {NAME: CONTRACT}")
        return
    if wanted and set(sources) != set(wanted):
        listed = ", ".join(f"{name}: CONTRACT" for name in wanted)
        message = f"'from' must name {' and '.join(wanted)} here, not {', '.join(map(clip, sources))}"
        yield SpecIssue(position=document.at("with", "from"), message=message, hint=f"write {{{listed}}}")
    for name, named in sources.items():
        contracts = named if isinstance(named, list) and named else [named]
        if not all(isinstance(contract, str) and contract for contract in contracts):
            message = f"'{clip(name)}' must be the name of a contract, or a list of names, not {show(named)}"
            yield SpecIssue(position=document.at("with", "from", name), message=clip(message, 90))
