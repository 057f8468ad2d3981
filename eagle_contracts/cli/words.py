"""What every verb shares: its parser, how it prints, and how it says what a user can meet. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from eagle_contracts.cli import FAILED, USAGE

_OPTION: Final = re.compile(r"--[a-z][a-z-]*")
JSON_HELP: Final = "print JSON, for programs"


class Complaint(Exception):
    """A sentence for the user, and the exit code that goes with it."""

    def __init__(self, sentence: str, code: int = FAILED) -> None:
        super().__init__(printable(sentence))
        self.code = code


def printable(text: str) -> str:
    """Return text without what a terminal would obey or could not show: names in a damaged file can be anything."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


class Parser(argparse.ArgumentParser):
    """A verb's parser: examples below its help, and the nearest option where one is unknown."""

    def __init__(self, verb: str, what: str, examples: Sequence[str], codes: str) -> None:
        shown = "\n".join(f"  eagle-contracts {verb} {example}".rstrip() for example in examples)
        super().__init__(
            prog=f"eagle-contracts {verb}",
            description=what,
            epilog=f"examples:\n{shown}\n\nexit codes: {codes}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """End with the message, the nearest option and where help is."""
        self.exit(USAGE, f"{self.prog}: {message}{self._near(message)}\n  help: {self.prog} --help\n")

    def _near(self, message: str) -> str:
        from eagle_contracts.spec.errors import suggest

        unknown = re.search(r"unrecognized arguments: (-\S+)", message)
        known = sorted(set(_OPTION.findall(self.format_usage())) | {"--help"})
        return f"; {suggest(unknown[1], known, 'options')}" if unknown else ""


def say_json(data: Any) -> None:
    """Print plain data as JSON that a person can read too; half a surrogate pair is written as an escape."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    print(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def complain(message: str) -> None:
    """Print a message where errors go."""
    print(message, file=sys.stderr)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns two blanks apart, the last one ragged."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )


@contextlib.contextmanager
def failures(say: Callable[[str], None] = complain) -> Iterator[list[int]]:
    """Say in sentences what a user can meet; the list gets the exit code of what failed."""
    from eagle_contracts.spec.errors import SpecError

    failed: list[int] = []
    try:
        yield failed
    except Complaint as error:
        say(f"eagle-contracts: {error}")
        failed.append(error.code)
    except SpecError as error:
        say(f"eagle-contracts: {error.render()}")
        failed.append(FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"eagle-contracts: {error.filename or 'the system'}: {error.strerror or error}")
        failed.append(FAILED)
