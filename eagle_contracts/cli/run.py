"""`eagle-contracts run`: `pytest --contracts` under another name. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from eagle_contracts.cli import OK
from eagle_contracts.cli.words import asks_for_json, say_json

_HELP = """\
usage: eagle-contracts run [PYTEST ARGUMENT ...] [--json]

Run contracts: this is `pytest --contracts` with the arguments given.

options:
  -h, --help  show this; `pytest --help` shows every argument
  --json      print JSON, for programs; what pytest prints goes to standard error

examples:
  eagle-contracts run
  eagle-contracts run contracts/kimi_k25 -m 'not control'
  eagle-contracts run contracts/kimi_k25 --contracts-set 'draft.layer_ids=[2,30,58]'
  eagle-contracts run contracts/kimi_k25 --json

exit codes: pytest's own, passed on: 0 all passed, 1 a contract failed or nothing was checked, 2 interrupted or a
mistake in a file, 3 an error inside pytest, 4 wrong usage, 5 nothing collected"""


def main(arguments: Sequence[str]) -> int:
    """Run pytest in this process and return its exit code."""
    if list(arguments) in (["-h"], ["--help"]):
        print(_HELP)
        return OK
    import pytest

    if not asks_for_json(arguments):
        return int(pytest.main(["--contracts", *arguments]))
    from eagle_contracts.cli.record import Recorder

    recorder = Recorder()
    with _output_on_stderr():
        code = int(pytest.main(["--contracts", *(word for word in arguments if word != "--json")], plugins=[recorder]))
    say_json(recorder.to_json(code))
    return code


@contextlib.contextmanager
def _output_on_stderr() -> Iterator[None]:
    """Send to standard error what pytest, and whatever runs below it, writes to standard output."""
    sys.stdout.flush()
    output = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(output, 1)
        os.close(output)
