"""Where a project begins, where its contracts lie and where its own folder is. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import configparser
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

HOME_VARIABLE: Final = "EAGLE_CONTRACTS_HOME"
HOME_NAME: Final = ".eagle_contracts"
PATHS_KEY: Final = "contracts_paths"
DEFAULT_PATHS: Final = ("contracts",)

_ALWAYS_INI: Final = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
_SECTIONS: Final = {"tox.ini": "pytest", "setup.cfg": "tool:pytest"}


def home_folder(root: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds environments, twins and the store: ROOT/.eagle_contracts, or EAGLE_CONTRACTS_HOME."""
    chosen = environ.get(HOME_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else root.absolute() / HOME_NAME


def project_root(start: Path, started_in: Path | None = None) -> Path:
    """The folder that pytest takes as its rootdir for what lies in `start`, started there or in another folder.

    Where no file marks one, it is what both have in common, unless that is the whole file system.
    """
    here = start.absolute()
    line = (here, *here.parents)
    configured = next((folder for folder in line if _settings(folder) is not None), None)
    declared = next((folder for folder in line if (folder / "pyproject.toml").is_file()), None)
    packaged = next((folder for folder in line if (folder / "setup.py").is_file()), None)
    common = Path(os.path.commonpath([here, started_in.absolute()])) if started_in is not None else here
    return configured or declared or packaged or (common if common != Path(common.root) else here)


def contracts_paths(root: Path) -> tuple[Path, ...]:
    """The folders that hold contracts: pytest's ini value `contracts_paths`, or ROOT/contracts."""
    value = (_settings(root) or {}).get(PATHS_KEY, DEFAULT_PATHS)
    names = shlex.split(value) if isinstance(value, str) else [str(item) for item in value]
    return tuple(root / name for name in names)


def pipeline_files(root: Path) -> tuple[Path, ...]:
    """Every pipeline.yaml (or .yml) under the project's contracts paths, in a stable order."""
    return tuple(dict.fromkeys(found for path in contracts_paths(root) for found in _pipelines_under(path)))


def _pipelines_under(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield from (file for file in (path.parent / "pipeline.yaml", path.parent / "pipeline.yml") if file.is_file())
        return
    yield from sorted((*path.rglob("pipeline.yaml"), *path.rglob("pipeline.yml")))


def _settings(folder: Path) -> Mapping[str, Any] | None:
    """pytest's settings kept in this folder, or None where the folder has no file that pytest would stop at."""
    for name in _ALWAYS_INI:
        file = folder / name
        if file.is_file():
            return _toml(file, "pytest") or {} if name.endswith(".toml") else _ini(file, "pytest") or {}
    found = _toml(folder / "pyproject.toml", "tool")
    if found is not None and "pytest" in found:
        tables = found["pytest"]
        return dict(tables.get("ini_options", tables))
    for name, section in _SECTIONS.items():
        settings = _ini(folder / name, section)
        if settings is not None:
            return settings
    return None


def _toml(file: Path, table: str) -> Mapping[str, Any] | None:
    try:
        value = tomllib.loads(file.read_text(encoding="utf-8")).get(table)
    except (FileNotFoundError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _ini(file: Path, section: str) -> Mapping[str, str] | None:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return None
    return dict(parser[section]) if parser.has_section(section) else None
