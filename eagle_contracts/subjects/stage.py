"""A stage's own function: found, called once for each request, and its failures told in its author's terms.

Runs inside a worker.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

INJECTED = ("request", "input_ids")
"""Parameters that a stage may have without `from` naming them."""


class StageFailed(Exception):
    """What a stage did instead of returning what it should; the first line is the sentence, the others say where."""


def imported(name: str) -> Any:
    """Import a module; raises `StageFailed` naming it."""
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise StageFailed(f"the module {name} cannot be imported: {_words(error)}\n{_place(error, '')}") from error


def function_of(params: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that `call` names; raises `StageFailed` where there is none or its file cannot be run."""
    stage = params.get("stage")
    if stage is None:
        module, _, name = params["call"].partition(":")
        return _attribute(imported(module), name, params["call"])
    shown = stage["shown"]
    sys.path.insert(0, params["stage_folder"])
    module = types.ModuleType(Path(stage["file"]).stem)
    module.__file__ = str(Path(params["stage_folder"]) / Path(stage["file"]).name)
    linecache.cache[shown] = (len(stage["text"]), None, stage["text"].splitlines(keepends=True), shown)
    try:
        exec(compile(stage["text"], shown, "exec"), module.__dict__)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise StageFailed(f"{shown} is not Python: {error.msg}\nat {error.filename}:{error.lineno}: {line}") from error
    except BaseException as error:
        raise StageFailed(f"{shown} raised {_words(error)} when it was loaded\n{_place(error, shown)}") from error
    return _attribute(module, stage["function"], params["call"])


def call(function: Callable[..., Any], given: Mapping[str, Any], request: int, input_ids: list[int], name: str) -> Any:
    """Call a stage for one request; raises `StageFailed` for whatever it raises, an exit included."""
    parameters = inspect.signature(function).parameters
    extra = {"request": request, "input_ids": input_ids}
    arguments = {**given, **{k: v for k, v in extra.items() if k in parameters and k not in given}}
    _check_arguments(function, arguments, name)
    try:
        return function(**arguments)
    except BaseException as error:
        shown = function.__code__.co_filename if hasattr(function, "__code__") else ""
        raise StageFailed(f"{name} raised {_words(error)} for request {request}\n{_place(error, shown)}") from error


def checked(result: Any, name: str, request: int) -> Mapping[str, Any]:
    """Return a stage's result if it is a map of strided CPU tensors and lists of them; raises `StageFailed` else."""
    import torch

    if not isinstance(result, Mapping):
        what = "nothing" if result is None else type(result).__name__
        raise StageFailed(
            f"{name} returned {what} for request {request}, not a map\n"
            "a stage returns a map from names to tensors and lists of tensors"
        )
    for key, value in result.items():
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, torch.Tensor) and (part.layout != torch.strided or part.device.type != "cpu"):
                kind = f"{part.layout}".removeprefix("torch.") if part.layout != torch.strided else part.device.type
                raise StageFailed(
                    f"{name} returned a {kind} tensor as '{key}' for request {request}\n"
                    "return it as a plain tensor in memory, so that its values can be compared"
                )
    return result


def _check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        given = ", ".join(key for key in arguments if key not in INJECTED) or "nothing"
        raise StageFailed(
            f"{name} takes {takes}, and `from` gives {given}\n"
            f"name its parameters as `from` does; {' and '.join(INJECTED)} are given to a stage that has them"
        ) from error


def _attribute(module: Any, name: str, call_: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if callable(found):
        function: Callable[..., Any] = found
        return function
    names = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"did you mean {near[0]}?" if near else f"functions there: {', '.join(names[:12]) or 'none'}"
    kind = "is not a function" if hasattr(module, name) else "is not there"
    raise StageFailed(f"{call_}: {name or 'a function without a name'} {kind}\n{advice}")


def _words(error: BaseException) -> str:
    """Return an exception as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _place(error: BaseException, shown: str) -> str:
    """Return the innermost line of the stage itself, and below it the innermost line of all where that is another."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "eagle_contracts" not in f.filename]
    own = [frame for frame in frames if frame.filename == shown]
    places = [f"at {f.filename}:{f.lineno}, in {f.name}: {f.line}" for f in (*own[-1:], *frames[-1:])]
    return "\n".join(dict.fromkeys(places))
