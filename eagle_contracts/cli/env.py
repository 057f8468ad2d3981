"""`eagle-contracts env`: the environments that contracts run in. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from eagle_contracts.cli import OK, USAGE
from eagle_contracts.cli.words import JSON_HELP, Complaint, Parser, say_json, table

if TYPE_CHECKING:
    from eagle_contracts.workers.progress import Progress
    from eagle_contracts.workers.wanted import Wanted

_VERBS: Final = ("sync", "list")
_SYNC: Final = "build what the pipelines name; what is built already is left alone"
_LIST: Final = "show every environment and its state"
_COLUMNS: Final = 100
_WHO: Final = "eagle-contracts env"


def main(arguments: Sequence[str]) -> int:
    """Build or list environments."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    if verb == "sync":
        return _sync(_sync_parser().parse_args(rest))
    if verb == "list":
        return _list(_list_parser().parse_args(rest))
    if verb in ("-h", "--help"):
        print(_help())
        return OK
    raise Complaint(_unknown(verb), USAGE, who=_WHO, more=f"  help: {_WHO} --help")


def _help() -> str:
    return (
        f"usage: {_WHO} COMMAND ...\n\ncommands:\n  sync  {_SYNC}\n  list  {_LIST}\n\n"
        f"options:\n  -h, --help  show this; `{_WHO} COMMAND --help` shows a command's own\n\n"
        f"examples:\n  {_WHO} list\n  {_WHO} sync sglang-0.5.9\n\nexit codes: those of the two commands"
    )


def _unknown(word: str) -> str:
    from eagle_contracts.spec.errors import suggest

    if not word:
        return f"a command is missing: {' or '.join(_VERBS)}"
    return f"no command is called '{word}': {suggest(word, _VERBS, 'commands')}"


def _sync_parser() -> argparse.ArgumentParser:
    codes = "0 all is built, 1 something failed, 2 a wrong name or no virtual environment at --base"
    parser = Parser("env sync", f"Build environments: {_SYNC}.", ("", "sglang-0.5.9", "--base .venv", "--json"), codes)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an environment or a lock; `base` is the base alone")
    parser.add_argument("--base", type=Path, metavar="VENV", help="the virtual environment to use as the base")
    parser.add_argument("--json", action="store_true", help=f"{JSON_HELP}; progress goes to standard error")
    return parser


def _list_parser() -> argparse.ArgumentParser:
    codes = "0 listed, whatever the states are, 1 a pipeline has mistakes, or there is none"
    parser = Parser("env list", f"{_LIST.capitalize()}.", ("", "--json"), codes)
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _sync(options: argparse.Namespace) -> int:
    from eagle_contracts.project import home_folder, project_root
    from eagle_contracts.workers.base import interpreter_of
    from eagle_contracts.workers.build import sync
    from eagle_contracts.workers.progress import Progress, duration

    if options.base is not None and not interpreter_of(options.base).exists():
        make = f"python3.11 -m venv {options.base}"
        raise Complaint(f"no virtual environment at {options.base}: make it with `{make}`", USAGE)
    root, started = project_root(Path.cwd()), time.monotonic()
    progress = Progress(sys.stderr)
    with _build_failures(progress), _stopped_by_signals():
        plan = _plan(root, options.names)
        built = sync(home_folder(root), plan.base, plan.locks, progress, base=options.base)
        for note in plan.notes:
            progress.say(note)
        progress.say(f"Environments are ready ({duration(time.monotonic() - started)}).")
    if options.json:
        states = [{"name": name, "state": "built" if new else "up to date"} for name, new in built.items()]
        say_json({"environments": states, "notes": list(plan.notes)})
    return OK


def _plan(root: Path, names: Sequence[str]) -> Wanted:
    """Return what is to be built; raises `Complaint` where nothing asks for anything."""
    from eagle_contracts.project import home_folder, pipeline_files
    from eagle_contracts.workers.wanted import wanted

    if not names and not pipeline_files(root):
        raise Complaint(f"{_no_pipelines(root)}, so there is nothing to build: name a lock to build it all the same")
    return wanted(root, home_folder(root), names)


def _list(options: argparse.Namespace) -> int:
    from eagle_contracts.project import project_root

    root = project_root(Path.cwd())
    rows = _states(root)
    if not rows:
        raise Complaint(f"{_no_pipelines(root)}: write one, or go to the folder of your project")
    if options.json:
        say_json({"environments": rows})
        return OK
    columns = ("pipeline", "environment", "engine", "state")
    lines = [(*(row[column] or "-" for column in columns[:3]), _state(row)) for row in rows]
    print(fitting((tuple(map(str.upper, columns)), *lines)))
    for message in dict.fromkeys(row["message"] for row in rows if row["message"]):
        print(f"\n{message}")
    return OK


def fitting(rows: Sequence[Sequence[str]]) -> str:
    """Return a table; where a line of it is too wide, what a state says after its word stands on a line below."""
    whole = table(rows)
    if all(len(line) <= _COLUMNS for line in whole.splitlines()):
        return whole
    short = table([(*row[:-1], row[-1].partition(", ")[0]) for row in rows]).splitlines()
    sources = [row[-1].partition(", ")[2] for row in rows]
    return "\n".join(f"{line}\n  {source}" if source else line for line, source in zip(short, sources, strict=True))


def _state(row: dict[str, str | None]) -> str:
    return f"{row['state']}, {row['source']}" if row["source"] else str(row["state"])


def _states(root: Path) -> list[dict[str, str | None]]:
    """Return each environment of each pipeline: its state, where its interpreter is from, or why there is none."""
    from eagle_contracts.project import home_folder
    from eagle_contracts.workers.environments import Unavailable, resolve
    from eagle_contracts.workers.locks import shown_path
    from eagle_contracts.workers.wanted import named_environments

    rows: list[dict[str, str | None]] = []
    for named in named_environments(root):
        entry, pipeline = named.environment, named.pipeline
        found = resolve(entry, home_folder(root), named.lock_dirs, among=pipeline.environments, folder=pipeline.folder)
        missing = isinstance(found, Unavailable)
        rows.append(
            {
                "pipeline": shown_path(pipeline.folder),
                "environment": entry.name,
                "engine": str(entry.engine) if entry.engine else None,
                "state": "unavailable" if missing else "ready",
                "source": None if isinstance(found, Unavailable) else found.source,
                "message": found.message if isinstance(found, Unavailable) else None,
            }
        )
    return rows


def _no_pipelines(root: Path) -> str:
    from eagle_contracts.project import contracts_paths
    from eagle_contracts.workers.locks import shown_path

    return f"there is no pipeline.yaml below {', '.join(map(shown_path, contracts_paths(root)))}"


@contextlib.contextmanager
def _build_failures(progress: Progress) -> Iterator[None]:
    """Say in sentences how a build can fail."""
    from eagle_contracts.workers.pip import BuildError
    from eagle_contracts.workers.wanted import UnknownName

    try:
        yield
    except UnknownName as error:
        raise Complaint(str(error), USAGE) from error
    except BuildError as error:
        raise Complaint(str(error)) from error
    except KeyboardInterrupt as error:
        raise Complaint("stopped. Nothing is left half built that looks complete; run it again to go on.") from error
    finally:
        progress.clear()


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let a termination, and a terminal that is closed, end a build as Ctrl-C does, with its scratch folder removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
