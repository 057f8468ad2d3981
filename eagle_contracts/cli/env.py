"""`eagle-contracts env`: the environments that contracts run in. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from eagle_contracts.cli import FAILED, OK, USAGE
from eagle_contracts.cli.words import JSON_HELP, Complaint, Parser, complain, failures, say_json, table

_VERBS: Final = ("sync", "list")
_SYNC: Final = "build what the pipelines name; what is built already is left alone"
_LIST: Final = "show every environment and its state"


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
    complain(_unknown(verb) if verb else _help())
    return USAGE


def _help() -> str:
    return (
        f"usage: eagle-contracts env COMMAND ...\n\ncommands:\n  sync  {_SYNC}\n  list  {_LIST}\n\n"
        "options:\n  -h, --help  show this; `eagle-contracts env COMMAND --help` shows a command's own"
    )


def _unknown(word: str) -> str:
    from eagle_contracts.spec.errors import suggest

    return f"eagle-contracts env: no command is called '{word}': {suggest(word, _VERBS, 'commands')}"


def _sync_parser() -> argparse.ArgumentParser:
    codes = "0 all is built, 1 something failed, 2 a wrong name or no virtual environment at --base"
    parser = Parser("env sync", f"Build environments: {_SYNC}.", ("", "sglang-0.5.9", "--base .venv"), codes)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an environment or a lock; `base` is the base alone")
    parser.add_argument("--base", type=Path, metavar="VENV", help="the virtual environment to use as the base")
    return parser


def _list_parser() -> argparse.ArgumentParser:
    codes = "0 listed, whatever the states are, 1 a pipeline has mistakes"
    parser = Parser("env list", f"{_LIST.capitalize()}.", ("", "--json"), codes)
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _sync(options: argparse.Namespace) -> int:
    from eagle_contracts.project import home_folder, project_root
    from eagle_contracts.workers.base import interpreter_of
    from eagle_contracts.workers.build import sync
    from eagle_contracts.workers.progress import Progress, duration
    from eagle_contracts.workers.wanted import wanted

    if options.base is not None and not interpreter_of(options.base).exists():
        complain(
            f"eagle-contracts: no virtual environment at {options.base}: "
            f"make it with `python3.11 -m venv {options.base}`"
        )
        return USAGE
    root, started = project_root(Path.cwd()), time.monotonic()
    progress = Progress(sys.stderr)
    with _build_failures(progress.say) as failed, _stopped_by_signals():
        plan = wanted(root, home_folder(root), options.names)
        sync(home_folder(root), plan.base, plan.locks, progress, base=options.base)
        for note in plan.notes:
            progress.say(note)
        progress.say(f"Environments are ready ({duration(time.monotonic() - started)}).")
    return failed[0] if failed else OK


def _list(options: argparse.Namespace) -> int:
    from eagle_contracts.project import project_root

    root = project_root(Path.cwd())
    with failures() as failed:
        rows, advice = _states(root)
        if options.json:
            say_json([dict(zip(("pipeline", "environment", "engine", "state"), row, strict=True)) for row in rows])
            advice.clear()
        else:
            print(table((("PIPELINE", "ENVIRONMENT", "ENGINE", "STATE"), *rows)) if rows else _no_pipelines(root))
        for message in dict.fromkeys(advice):
            print(f"\n{message}")
    return failed[0] if failed else OK


def _states(root: Path) -> tuple[list[tuple[str, ...]], list[str]]:
    """A row for each environment of each pipeline, and the messages of those that cannot run."""
    from eagle_contracts.project import home_folder
    from eagle_contracts.workers.environments import Unavailable, resolve
    from eagle_contracts.workers.locks import shown_path
    from eagle_contracts.workers.wanted import named_environments

    rows: list[tuple[str, ...]] = []
    advice: list[str] = []
    for named in named_environments(root):
        entry, pipeline = named.environment, named.pipeline
        found = resolve(entry, home_folder(root), named.lock_dirs, among=pipeline.environments, folder=pipeline.folder)
        state = "unavailable" if isinstance(found, Unavailable) else f"ready, {found.source}"
        rows.append((shown_path(pipeline.folder), entry.name, str(entry.engine or "-"), state))
        advice += [found.message] if isinstance(found, Unavailable) else []
    return rows, advice


def _no_pipelines(root: Path) -> str:
    from eagle_contracts.project import contracts_paths

    looked = ", ".join(map(str, contracts_paths(root)))
    return f"No pipeline.yaml below {looked}."


@contextlib.contextmanager
def _build_failures(say: Callable[[str], None]) -> Iterator[list[int]]:
    """Say in sentences how a build can fail, too."""
    from eagle_contracts.workers.pip import BuildError
    from eagle_contracts.workers.wanted import UnknownName

    with failures(say) as failed:
        try:
            yield failed
        except UnknownName as error:
            raise Complaint(str(error), USAGE) from error
        except BuildError as error:
            raise Complaint(str(error)) from error
        except KeyboardInterrupt as error:
            words = "stopped. Nothing is left half built that looks complete; run it again to go on."
            raise Complaint(words, FAILED) from error


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let a termination end a build as Ctrl-C does, with its scratch folder removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
