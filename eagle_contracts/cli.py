"""The command `eagle-contracts`: a thin edge that parses words and prints sentences. PYTEST_DONT_REWRITE"""

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

from eagle_contracts import __version__

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 failed, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eagle-contracts", description="Checks EAGLE-3 pipelines by their contracts.")
    parser.add_argument("--version", action="version", version=f"eagle-contracts {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_env(commands.add_parser("env", help="build and list the environments that contracts run in"))
    return parser


def _add_env(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sync = commands.add_parser("sync", help="build what the pipelines name; what is built already is left alone")
    sync.add_argument("names", nargs="*", metavar="NAME", help="an environment or a lock; `base` is the base alone")
    sync.add_argument("--base", type=Path, metavar="VENV", help="the virtual environment to use as the base")
    sync.set_defaults(run=_sync)
    listing = commands.add_parser("list", help="show every environment and its state")
    listing.set_defaults(run=_list)


def _sync(options: argparse.Namespace) -> int:
    from eagle_contracts.project import home_folder, project_root
    from eagle_contracts.workers.base import interpreter_of
    from eagle_contracts.workers.build import sync
    from eagle_contracts.workers.progress import Progress, duration
    from eagle_contracts.workers.wanted import wanted

    if options.base is not None and not interpreter_of(options.base).exists():
        _complain(
            f"eagle-contracts: no virtual environment at {options.base}: "
            f"make it with `python3.11 -m venv {options.base}`"
        )
        return USAGE
    root, started = project_root(Path.cwd()), time.monotonic()
    progress = Progress(sys.stderr)
    with _failures(progress.say) as failed, _stopped_by_signals():
        plan = wanted(root, home_folder(root), options.names)
        sync(home_folder(root), plan.base, plan.locks, progress, base=options.base)
        for note in plan.notes:
            progress.say(note)
        progress.say(f"Environments are ready ({duration(time.monotonic() - started)}).")
    return failed[0] if failed else OK


def _list(options: argparse.Namespace) -> int:
    from eagle_contracts.project import project_root

    root = project_root(Path.cwd())
    with _failures(_complain) as failed:
        rows, advice = _states(root)
        print(_table((("PIPELINE", "ENVIRONMENT", "ENGINE", "STATE"), *rows)) if rows else _no_pipelines(root))
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


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    )


def _no_pipelines(root: Path) -> str:
    from eagle_contracts.project import contracts_paths

    looked = ", ".join(map(str, contracts_paths(root)))
    return f"No pipeline.yaml below {looked}."


@contextlib.contextmanager
def _failures(say: Callable[[str], None]) -> Iterator[list[int]]:
    """Say in sentences what a user can meet; the list gets the exit code of what failed."""
    from eagle_contracts.spec.errors import SpecError
    from eagle_contracts.workers.pip import BuildError
    from eagle_contracts.workers.wanted import UnknownName

    def fail(message: str, code: int) -> None:
        say(f"eagle-contracts: {message}")
        failed.append(code)

    failed: list[int] = []
    try:
        yield failed
    except UnknownName as error:
        fail(str(error), USAGE)
    except SpecError as error:
        fail(error.render(), FAILED)
    except BuildError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"{error.filename or 'the system'}: {error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        fail("stopped. Nothing is left half built that looks complete; run it again to go on.", FAILED)


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


def _complain(message: str) -> None:
    print(message, file=sys.stderr)
