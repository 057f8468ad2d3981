"""The command `eagle-contracts`: its first word names a verb, whose module alone is imported. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from eagle_contracts import __version__

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2

VERBS: Final = {
    "validate": "read every pipeline and contract, and show all mistakes at once",
    "list": "show every item that `pytest --contracts` would collect",
    "run": "run contracts: `pytest --contracts` with the arguments given",
    "explain": "show every value of a contract and where it was written",
    "identify": "say what a tensor in a file is, from the checkpoint's rows alone",
    "env": "build and list the environments that contracts run in",
    "schema": "print the JSON Schema of contracts or of pipelines",
}

_MODULES: Final = {"list": "listing"}
"""Where a verb's module has another name: `list` would hide the word of that name in here."""

_EXAMPLES: Final = """\
examples:
  eagle-contracts validate
  eagle-contracts explain contracts/kimi_k25/sglang_capture_offset.yaml
  eagle-contracts run contracts/kimi_k25 --json"""

_EXIT_CODES: Final = """\
exit codes:
  0  done, and nothing is wrong
  1  something is wrong with what was looked at, or it could not be read, or the command was stopped
  2  wrong usage of the command
  `run` passes on pytest's own exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 failed, 2 wrong usage."""
    from eagle_contracts.cli.words import asks_for_json, told

    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    return told(partial(_main, words), as_json=asks_for_json(words))


def _main(words: Sequence[str]) -> int:
    from eagle_contracts.cli.words import Complaint

    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return OK if words else USAGE
    if words[0] == "--version":
        print(f"eagle-contracts {__version__}")
        return OK
    if words[0] not in VERBS:
        raise Complaint(_unknown(words[0]), USAGE)
    module = importlib.import_module(f"eagle_contracts.cli.{_MODULES.get(words[0], words[0])}")
    run: Callable[[Sequence[str]], int] = module.main
    return run(words[1:])


def _help() -> str:
    verbs = "\n".join(f"  {name:<10}{what}" for name, what in VERBS.items())
    return (
        "usage: eagle-contracts COMMAND ...\n\nChecks EAGLE-3 pipelines by their contracts.\n\n"
        f"commands:\n{verbs}\n\n"
        "options:\n  -h, --help  show this; `eagle-contracts COMMAND --help` shows a command's own, with examples\n"
        f"  --version   show the version\n\n{_EXAMPLES}\n\n{_EXIT_CODES}"
    )


def _unknown(word: str) -> str:
    from eagle_contracts.spec.errors import suggest

    if word.startswith("-"):
        return f"no option is called '{word}': {suggest(word, ('--help', '--version'), 'options')}"
    return f"no command is called '{word}': {suggest(word, VERBS, 'commands')}"
