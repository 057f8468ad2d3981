"""What was built, in a file written last: an environment without it is half built. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from eagle_contracts.workers.locks import normalized

FILE: Final = "environment.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One built environment.

    `paths` are the import folders, relative to the manifest's own; `versions` maps normalized names of what lies in
    them to versions; `torch` is the version in the base, `python` the base's interpreter.
    """

    name: str
    python: str
    paths: tuple[str, ...]
    lock_digest: str
    torch: str
    versions: Mapping[str, str]
    complete: bool


def environment_folder(home: Path, name: str) -> Path:
    """The folder of a built environment."""
    return home / "env" / name


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in `folder`, complete or not; None if there is none that can be read."""
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return _manifest(data)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest so that a reader sees the old one or the new one, never a part."""
    scratch = folder / f".{FILE}.{os.getpid()}"
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(folder / FILE)


def import_paths(folder: Path, manifest: Manifest) -> tuple[Path, ...]:
    """The import folders of an environment, absolute."""
    return tuple((folder / path).absolute() for path in manifest.paths)


def installed_versions(site: Path) -> dict[str, str]:
    """Normalized names and versions of the distributions in an import folder, read from folder names alone."""
    found: dict[str, str] = {}
    for entry in site.glob("*.dist-info"):
        name, _, version = entry.name.removesuffix(".dist-info").partition("-")
        found[normalized(name)] = version
    return found


def is_intact(folder: Path, manifest: Manifest) -> bool:
    """Whether all that the manifest names is still in its import folders."""
    found: dict[str, str] = {}
    for path in import_paths(folder, manifest):
        found |= installed_versions(path)
    return all(found.get(name) == version for name, version in manifest.versions.items())


def _manifest(data: Any) -> Manifest:
    return Manifest(
        name=str(data["name"]),
        python=str(data["python"]),
        paths=tuple(str(path) for path in data["paths"]),
        lock_digest=str(data["lock_digest"]),
        torch=str(data["torch"]),
        versions={str(name): str(version) for name, version in data["versions"].items()},
        complete=data["complete"] is True,
    )
