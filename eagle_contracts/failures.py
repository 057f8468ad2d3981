"""A call that gave no value -> what is said of it: whose fault it is, where that was written, what to do next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from eagle_contracts.engines import Unrunnable
from eagle_contracts.observation import in_own_words
from eagle_contracts.plan import Case, written
from eagle_contracts.spec.model import Value
from eagle_contracts.targets import key_named_in, place_named_in
from eagle_contracts.workers.client import START_SECONDS, Failure
from eagle_contracts.workers.environments import Resolved
from eagle_contracts.workers.pool import KILLED

BLAMED = {"StageFailed": "stage", "BreakFailed": "break", "WrongParameter": "parameter", "OverlayError": "overlay"}
"""Exceptions of a worker that tell of something the user wrote, with the code that an error is given for them."""
NO_DEVICE = "NoDevice"
"""The exception by which an adapter says that its environment cannot use the run's device."""
_UNKNOWN = "does not recognize this architecture"
"""What transformers says of a `model_type` that it has no class for."""
_DUMPED = "Timeout ("
_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
_LOG_LINES, _TRACE_LINES = 8, 6


def unrunnable(failure: Failure, case: Case, doing: str, seconds: float, command: Resolved | None = None) -> Unrunnable:
    """Return why a case has no observation.

    `doing` says what was asked for, `seconds` is what it was allowed; `command` is the user's own that starts the
    engine.
    """
    if failure.kind == "exception" and failure.type in BLAMED:
        return _blamed(failure, case)
    if failure.type == NO_DEVICE:
        return Unrunnable("unavailable", "device", failure.message)
    in_config = tuple(_in_config(failure, case))
    return Unrunnable(
        "error",
        failure.kind,
        _sentence(failure, case, doing, seconds),
        log="" if _is_unknown(failure, in_config) else _last_lines(failure),
        details=(*_details(failure, case, in_config), *_how_started(failure, command)),
    )


def _is_unknown(failure: Failure, in_config: tuple[str, ...]) -> bool:
    """Tell whether a config names a model that is not known: its line says all, and a trace nothing more."""
    return bool(in_config) and _UNKNOWN in failure.message


def _in_config(failure: Failure, case: Case) -> Iterator[str]:
    if failure.kind == "exception" and _call(case) is None and not failure.at_start:
        yield from config_lines(failure.message, case)


def config_lines(text: str, case: Case, *, of_draft: bool = False) -> Iterator[str]:
    """Yield where a config has what an engine or transformers speaks of, as far as that can be told.

    That is the target's, or the draft's where the engine runs the target alone.
    """
    draft = case.pipeline.draft_document
    if of_draft and draft is not None:
        place, whose = place_named_in(text, draft), "draft"
    else:
        place, whose = key_named_in(text, case.pipeline), "target"
    if place is not None:
        yield f"the {whose}'s config has that at {place.full}: {place.text[place.column - 1 :].strip()[:60]}"
        yield f"correct it there, or run an engine that knows it; {case.environment.name} does not"
    elif of_draft and draft is not None:
        yield f"the target alone runs: what it does not like stands in {draft.shown}"


def _how_started(failure: Failure, command: Resolved | None) -> Iterator[str]:
    """Yield the command that a user named for an engine that did not start, and how to try it."""
    if command is not None and failure.at_start and failure.kind in ("died", "timeout"):
        yield f"started by the {command.source}"
        yield f"it must run a Python on what it reads; try it: {shlex.join((*command.command, '-c', 'print(1)'))}"


def _blamed(failure: Failure, case: Case) -> Unrunnable:
    lines = failure.message.splitlines()
    key = lines.pop(0) if failure.type == "WrongParameter" else ""
    place = _place(failure.type, case, key)
    said = "\n".join(failure.log.strip().splitlines()[-_LOG_LINES:]) if failure.type == "StageFailed" else ""
    return Unrunnable("error", BLAMED[failure.type], lines[0], log=said, details=(*lines[1:], *place))


def _place(kind: str, case: Case, key: str) -> Iterator[str]:
    """Yield where the thing at fault is named."""
    given = written(case)
    if kind == "BreakFailed" and case.control is not None:
        yield f"the break: {case.control.position} ({case.control.text})"
    elif kind == "OverlayError":
        for value in (case.environment.overlay, case.overlay):
            if value is not None:
                yield f"put on {case.environment.name} by {value.position}"
    elif (value := given.get(key or "call")) is not None:
        yield f"{'named' if key else 'called'} by {value.position}, in {case.environment.name}"


def _sentence(failure: Failure, case: Case, doing: str, seconds: float) -> str:
    at = f"importing the engine of {case.environment.name}" if failure.at_start else _doing(case, doing)
    if failure.kind == "timeout":
        return f"{at} gave no result within {START_SECONDS if failure.at_start else seconds:g} seconds"
    message = in_own_words(failure.message)
    what = f"{failure.type}: {message}" if failure.type else message
    return f"{at} gave no result: {what}"


def _doing(case: Case, doing: str) -> str:
    call = _call(case)
    return f"calling {call.data}" if call is not None else doing


def _details(failure: Failure, case: Case, in_config: tuple[str, ...]) -> Iterator[str]:
    call = _call(case)
    if call is not None and not failure.at_start:
        yield f"called by {call.position}, in {case.environment.name}"
    yield from in_config
    yield from _where_it_was(failure)
    if failure.kind == "timeout" and not failure.at_start:
        yield "if it only needs longer: --contracts-timeout=SECONDS"
    if failure.kind == "died" and KILLED in failure.message:
        yield "the usual sender of that signal is a system short of memory, which other engines take up too:"
        yield f"  try this environment alone: -k {case.environment.name}"


def _where_it_was(failure: Failure) -> Iterator[str]:
    """Yield where a child was when its time was nearly over: the innermost line, and that of a stage."""
    frames = _FRAME.findall(failure.log.rpartition(_DUMPED)[2]) if _DUMPED in failure.log else []
    own = [frame for frame in frames if not frame[0].startswith(("/", "<"))]
    for file, line, name in dict.fromkeys((*frames[:1], *own[:1])):
        yield f"it was at {file}:{line}, in {name}"


def _call(case: Case) -> Value | None:
    return written(case).get("call") if case.subject.name == "python" else None


def _last_lines(failure: Failure) -> str:
    """Return the last lines printed, then the end of the exception's own trace in the worker."""
    printed = failure.log.rpartition(_DUMPED)[0] if _DUMPED in failure.log else failure.log
    log, trace = printed.strip().splitlines(), failure.traceback.strip().splitlines()
    return "\n".join([*log[-_LOG_LINES:], *trace[-_TRACE_LINES:]])
