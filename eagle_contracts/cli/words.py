"""What every verb shares: its parser, how it prints, and how it says what a user can meet. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from eagle_contracts.cli import FAILED, USAGE

if TYPE_CHECKING:
    from eagle_contracts.spec.errors import SpecIssue

_OPTION: Final = re.compile(r"--[a-z][a-z-]*")
JSON_HELP: Final = "print JSON, for programs"


class Complaint(Exception):
    """A sentence for the user, the exit code that goes with it, and what is said below the sentence."""

    def __init__(self, sentence: str, code: int = FAILED, *, who: str = "eagle-contracts", more: str = "") -> None:
        super().__init__(printable(sentence))
        self.code, self.who, self.more = code, who, more


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
        """Raise a complaint with the message, the nearest option and where help is."""
        sentence = f"{message}{self._near(message)}"
        raise Complaint(sentence, USAGE, who=self.prog, more=f"  help: {self.prog} --help")

    def _near(self, message: str) -> str:
        from eagle_contracts.spec.errors import suggest

        unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
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


def asks_for_json(words: Sequence[str]) -> bool:
    """Tell whether a command line asks for JSON, also one that is wrong otherwise."""
    return "--json" in words


def told(run: Callable[[], int], *, as_json: bool) -> int:
    """Return the exit code of a command; whatever a user can meet is said in a sentence, or as JSON."""
    from eagle_contracts.spec.errors import SpecError

    try:
        code = _flushed(run)
    except BrokenPipeError:
        _abandon_output()  # the reader, `head` for instance, has seen enough
        return FAILED
    except Complaint as error:
        _say_failure(f"{error.who}: {error}" + (f"\n{error.more}" if error.more else ""), error.code, as_json)
        return error.code
    except SpecError as error:
        _say_failure(f"eagle-contracts: {error.render()}", FAILED, as_json, error.issues)
        return FAILED
    except KeyboardInterrupt:
        _say_failure("eagle-contracts: stopped", FAILED, as_json)
        return FAILED
    except OSError as error:
        if error.filename is None:
            _abandon_output()
        words = f"eagle-contracts: {error.filename or 'standard output'}: {error.strerror or error}"
        _say_failure(words, FAILED, as_json and error.filename is not None)
        return FAILED
    return code


def _flushed(run: Callable[[], int]) -> int:
    """Run a command and write all it printed, whatever way it ends, so that a full disk or a gone reader shows here."""
    try:
        return run()
    except SystemExit as done:  # argparse, after --help
        return int(done.code or 0)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _abandon_output() -> None:
    """Send what is left of standard output nowhere: the interpreter would complain of it at its last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_failure(words: str, code: int, as_json: bool, issues: Sequence[SpecIssue] = ()) -> None:
    if not as_json:
        complain(words)
        return
    message = words.partition(": ")[2]
    say_json({"error": {"message": message, "exit_code": code, "mistakes": [issue_json(issue) for issue in issues]}})


def issue_json(issue: SpecIssue) -> dict[str, object]:
    """Return an issue as plain data."""
    place = issue.position
    return {
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "origin": place.origin,
        "message": issue.message,
        "hint": issue.hint,
    }
