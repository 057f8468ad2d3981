"""An overlay: edits to an engine's source for one environment, applied in memory while the engine is imported.

An overlay file holds two literals, `PARAMS` (a map) and `EDITS` (a list of `{module, versions, anchor, replacement}`),
and is never executed. The edited source stands in a temporary folder under the module's own name, so that whoever
imports the module gets the edit, as with a patch made in place; nothing installed is changed. Standard library only.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

LIVE: list[dict[str, Any]] = []
"""The `PARAMS` of every overlay installed in this process, as the edited modules see them."""

FOLDER_PREFIX = "eagle_contracts_overlay_"
_EDIT_KEYS = {"module", "versions", "anchor", "replacement"}


class OverlayError(ValueError):
    """An overlay that cannot be read, or that does not fit the installed engine; the message names file and line."""


@dataclass(frozen=True)
class Edit:
    """Replace the one place where `anchor`'s lines stand in `module`, in these versions of its distribution."""

    module: str
    versions: str
    anchor: str
    replacement: str
    line: int


@dataclass(frozen=True)
class Overlay:
    """An overlay's two literals, where it was read from, and a digest over its text."""

    shown: str
    params: Mapping[str, Any]
    edits: Sequence[Edit]
    digest: str


def parse(text: str, shown: str) -> Overlay:
    """Read an overlay's literals without running it; raises `OverlayError` naming file and line."""
    try:
        tree = ast.parse(text, shown)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, why = getattr(error, "lineno", None) or 1, getattr(error, "msg", None) or str(error)
        raise OverlayError(f"{shown}:{line}: not Python: {why}") from error
    literals: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        name = node.targets[0].id if is_plain_assignment(node) else None  # type: ignore[attr-defined]
        if name not in ("PARAMS", "EDITS"):
            raise OverlayError(f"{shown}:{node.lineno}: an overlay holds only the two literals PARAMS and EDITS")
        literals[str(name)] = node.value  # type: ignore[attr-defined]
    if "EDITS" not in literals:
        raise OverlayError(f"{shown}:1: EDITS is missing: a list of maps with {', '.join(sorted(_EDIT_KEYS))}")
    params = _literal(literals["PARAMS"], shown) if "PARAMS" in literals else {}
    if not isinstance(params, dict):
        raise OverlayError(f"{shown}:{literals['PARAMS'].lineno}: PARAMS must be a map")
    edits = _edits(literals["EDITS"], shown)
    return Overlay(shown=shown, params=params, edits=edits, digest=hashlib.sha256(text.encode()).hexdigest()[:12])


def is_plain_assignment(node: ast.stmt) -> bool:
    """Tell whether a statement gives one name a value."""
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _literal(node: ast.expr, shown: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise OverlayError(f"{shown}:{node.lineno}: must be a literal: an overlay is read, never executed") from error


def _edits(node: ast.expr, shown: str) -> tuple[Edit, ...]:
    values = _literal(node, shown)
    if not isinstance(values, list) or not values or not isinstance(node, ast.List):
        raise OverlayError(f"{shown}:{node.lineno}: EDITS must be a list with at least one edit")
    out = []
    for value, place in zip(values, node.elts, strict=True):
        keys = set(value) if isinstance(value, dict) else set()
        if keys != _EDIT_KEYS or not all(isinstance(v, str) and v for k, v in value.items() if k != "replacement"):
            wanted = ", ".join(sorted(_EDIT_KEYS))
            raise OverlayError(f"{shown}:{place.lineno}: an edit is a map of texts with exactly {wanted}")
        try:
            matches("0", value["versions"])
        except OverlayError as error:
            raise OverlayError(f"{shown}:{place.lineno}: {error}") from error
        out.append(Edit(line=place.lineno, **value))
    return tuple(out)


def install(overlay: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Arrange for the edited modules to be imported; return what was applied, with the digest of the diff.

    `overlay` is `{text, shown}`; edits for other versions of `engine` are left out. Raises `OverlayError` when
    no edit is for the installed version, or when an anchor does not stand in its module exactly once.
    """
    if "script" in overlay:
        return _install_script(overlay, engine)
    parsed = parse(overlay["text"], overlay["shown"])
    version = importlib.metadata.version(engine)
    fitting = [edit for edit in parsed.edits if matches(version, edit.versions)]
    if not fitting:
        ranges = "; ".join(sorted({edit.versions for edit in parsed.edits}))
        raise OverlayError(f"{parsed.shown}: no edit is for {engine} {version} (they are for {ranges})")
    sources: dict[str, str] = {}
    originals: dict[str, str] = {}
    for edit in fitting:
        if edit.module not in sources:
            sources[edit.module] = originals[edit.module] = _installed_source(edit, parsed.shown)
        sources[edit.module] = apply(sources[edit.module], edit, parsed.shown)
    params = dict(parsed.params)
    LIVE.append(params)
    files = _write(sources)
    sys.meta_path.insert(0, _EditedModules(files, params))
    diff = "".join(_diff(originals[m], sources[m], m) for m in sorted(sources))
    return _applied(parsed.shown, sources, diff)


def _applied(shown: str, sources: Mapping[str, str], diff: str) -> dict[str, Any]:
    digest = hashlib.sha256(diff.encode()).hexdigest()[:12]
    return {"shown": shown, "modules": sorted(sources), "diff": diff, "diff_digest": digest}


def _install_script(overlay: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Let a patch script edit a copy of the engine's package, and take the edited modules from there.

    The script finds the copy as it would find the installed package: first on its import path, and below its current
    folder. Raises `OverlayError` if it fails, edits nothing, or changes the installed package.
    """
    from eagle_contracts.workers import patch_scripts

    edited, original = patch_scripts.run(overlay["script"], overlay["shown"], engine)
    LIVE.append({})
    sys.meta_path.insert(0, _EditedModules(_write(edited), LIVE[-1]))
    diff = "".join(_diff(original.get(m, ""), edited[m], m) for m in sorted(edited))
    return _applied(overlay["shown"], edited, diff)


def set_params(params: Mapping[str, Any]) -> None:
    """Change parameters of the overlays in this process, as edited code reads them from now on."""
    for key, value in params.items():
        holders = [live for live in LIVE if key in live]
        if not holders:
            known = ", ".join(sorted({name for live in LIVE for name in live})) or "none"
            raise OverlayError(f"no overlay has a parameter {key!r} (parameters: {known})")
        for live in holders:
            live[key] = value


def matches(version: str, ranges: str) -> bool:
    """Tell whether a version lies in comma-separated ranges such as `>=0.5.5,<0.5.13`."""
    fits = [_matches_one(_numbers(version), part.strip()) for part in ranges.split(",")]
    return all(fits)


def _matches_one(version: tuple[int, ...], part: str) -> bool:
    found = re.fullmatch(r"(==|>=|<=|<|>)\s*([0-9][0-9.]*)", part)
    if not found:
        raise OverlayError(f"versions: {part!r} is not one of ==, >=, <=, <, > and a version")
    order = (version > (other := _numbers(found[2]))) - (version < other)
    return {"==": order == 0, ">=": order >= 0, "<=": order <= 0, "<": order < 0, ">": order > 0}[found[1]]


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(n) for n in re.findall(r"\d+", re.split(r"[+a-z]", version)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def apply(source: str, edit: Edit, shown: str) -> str:
    """Return the source with the edit made; raises `OverlayError` unless the anchor stands there exactly once."""
    found = source.count(edit.anchor)
    if found != 1:
        times = "nowhere" if not found else f"{found} times"
        first = edit.anchor.strip().splitlines()[0].strip()
        raise OverlayError(
            f"{shown}:{edit.line}: the anchor (it begins {first!r}) stands {times} in {edit.module}, and must stand "
            f"there exactly once: the engine's source differs from what this edit was written for"
        )
    return source.replace(edit.anchor, edit.replacement)


def _installed_source(edit: Edit, shown: str) -> str:
    relative = edit.module.replace(".", os.sep)
    for entry in sys.path:
        for path in (os.path.join(entry, relative + ".py"), os.path.join(entry, relative, "__init__.py")):
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    return file.read()
    raise OverlayError(f"{shown}:{edit.line}: {edit.module} is not installed")


def _write(sources: Mapping[str, str]) -> dict[str, str]:
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    files = {}
    for module, source in sources.items():
        files[module] = os.path.join(folder, module + ".py")
        with open(files[module], "w", encoding="utf-8") as file:
            file.write(source)
    return files


def is_edited(file: str) -> bool:
    """Tell whether a source file is an edited module's."""
    return os.path.basename(os.path.dirname(file)).startswith(FOLDER_PREFIX)


def _diff(old: str, new: str, module: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), module, module + " (overlay)")
    return "".join(lines)


class _EditedModules(importlib.machinery.PathFinder):
    """Finds the edited source of a module under its own name, ahead of the installed one."""

    def __init__(self, files: Mapping[str, str], params: Mapping[str, Any]) -> None:
        self._files, self._params = files, params

    def find_spec(  # type: ignore[override]
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for edited modules only."""
        if fullname not in self._files:
            return None
        loader = _WithParams(fullname, self._files[fullname], self._params)
        installed = importlib.machinery.PathFinder.find_spec(fullname, path)
        inside = installed.submodule_search_locations if installed else None
        return importlib.util.spec_from_file_location(
            fullname, self._files[fullname], loader=loader, submodule_search_locations=inside
        )


class _WithParams(importlib.machinery.SourceFileLoader):
    """Loads an edited module with the overlay's parameters as its global `PARAMS`."""

    def __init__(self, fullname: str, path: str, params: Mapping[str, Any]) -> None:
        super().__init__(fullname, path)
        self._params = params

    def exec_module(self, module: ModuleType) -> None:
        """Set `PARAMS`, then run the source."""
        module.__dict__["PARAMS"] = self._params
        super().exec_module(module)
