"""Whatever a stage does, its author reads which call it was, which line, and what to do; and no record is harmed."""

from __future__ import annotations

import re

import pytest

from .conftest import FOLDER, Repository, has_our_traceback, shown

DUMP = f"{FOLDER}/dump.yaml"
STAGES = f"{FOLDER}/stages/stages.py"
GOOD = """
import torch

def good(dump, request):
    place = dump / str(request)
    return {"x": [torch.load(place / "aux_0.pt"), torch.load(place / "aux_1.pt")]}
"""


def contract(call: str, more: str = "") -> str:
    """A contract on the toy's dump, in one environment."""
    return (
        "spec: 1\nwhy: The order of this list is the only record.\nbetween: [dump files, training sample]\n"
        f"run: python\nin: toy-1\nwith: {{call: '{call}', from: {{dump: dump}}}}\n"
        f"expect:\n  - order: {{x: [aux_0, aux_1]}}\n{more}"
    )


@pytest.fixture
def staged(repository: Repository) -> Repository:
    """A dump by the toy engine, and stages beside the pipeline."""
    repository.write(
        DUMP,
        "spec: 1\nwhy: The files decide.\nbetween: [target forward, dump files]\nrun: toy.dump\nin: toy-1\n"
        "expect:\n  - rows: one_per_token\n",
    )
    repository.write(STAGES, GOOD)
    return repository


def errors(repository: Repository, *arguments: str) -> dict[str, list[str]]:
    """Run the stages' contracts; return the lines of each one's error by the contract's name."""
    result = repository.run("-k", "order", "-p", "no:randomly", *arguments)
    text = shown(result)
    assert not has_our_traceback(text)
    parts = re.split(r"\n_+ ERROR at setup of (\w+) order\[toy-1\] _+\n", text.partition("\n======= short")[0])
    return {name: body.splitlines() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


STAGES_THAT_FAIL = {
    "raises": (
        "def raises(dump):\n    return dump.no_such_thing()\n",
        "error(stage): stages/raises.py::raises raised AttributeError: 'PosixPath' object has no attribute",
        "  at contracts/toy/stages/raises.py:2, in raises: return dump.no_such_thing()",
    ),
    "exits": (
        "import sys\n\ndef exits(dump):\n    sys.exit(3)\n",
        "error(stage): stages/exits.py::exits raised SystemExit: 3 for request 0",
        "  at contracts/toy/stages/exits.py:4, in exits: sys.exit(3)",
    ),
    "inside": (
        "import torch\n\ndef inside(dump):\n    return {'x': torch.zeros(2) + torch.zeros(3)}\n",
        "error(stage): stages/inside.py::inside raised RuntimeError: The size of tensor a (2) must match the",
        "  at contracts/toy/stages/inside.py:4, in inside: return {'x': torch.zeros(2) + torch.zeros(3)}",
    ),
    "nothing": (
        "def nothing(dump):\n    pass\n",
        "error(stage): stages/nothing.py::nothing returned nothing for request 0, not a map",
        "  a stage returns a map from names to tensors and lists of tensors",
    ),
    "number": (
        "def number(dump):\n    return 7\n",
        "error(stage): stages/number.py::number returned int for request 0, not a map",
        "  called by contracts/toy/number.yaml:6, in toy-1",
    ),
    "sparse": (
        "import torch\n\ndef sparse(dump):\n    return {'x': [torch.eye(2).to_sparse()]}\n",
        "error(stage): stages/sparse.py::sparse returned a sparse_coo tensor as 'x' for request 0",
        "  return it as a plain tensor in memory, so that its values can be compared",
    ),
    "takes": (
        "def takes(folder, extra):\n    return {}\n",
        "error(stage): stages/takes.py::takes takes folder, extra, and `from` gives dump",
        "  name its parameters as `from` does; request and input_ids are given to a stage that has them",
    ),
    "dies": (
        "import os\n\ndef dies(dump):\n    os._exit(3)\n",
        "error(died): calling stages/dies.py::dies gave no result: ended by exit status 3",
        "  called by contracts/toy/dies.yaml:6, in toy-1",
    ),
    "killed": (
        "import os\n\ndef killed(dump):\n    os.kill(os.getpid(), 9)\n",
        "error(died): calling stages/killed.py::killed gave no result: ended by signal 9 (SIGKILL)",
        "  the usual sender of that signal is a system short of memory, which other engines take up too:",
    ),
    "loaded": (
        "x = 1 / 0\n\ndef loaded(dump):\n    return {}\n",
        "error(stage): contracts/toy/stages/loaded.py raised ZeroDivisionError: division by zero when it was",
        "  at contracts/toy/stages/loaded.py:1, in <module>: x = 1 / 0",
    ),
}


def test_a_stage_that_fails_is_told_in_its_own_lines(staged: Repository) -> None:
    """The call, what it did, its own line, and the contract that called it; not a line of ours."""
    for name, (text, _, _) in STAGES_THAT_FAIL.items():
        staged.write(f"{FOLDER}/stages/{name}.py", text)
        staged.write(f"{FOLDER}/{name}.yaml", contract(f"stages/{name}.py::{name}"))
    told = errors(staged)
    assert set(told) == set(STAGES_THAT_FAIL)
    for name, (_, first, line) in STAGES_THAT_FAIL.items():
        assert told[name][0] == first
        assert line in told[name]
        assert f"  called by contracts/toy/{name}.yaml:6, in toy-1" in told[name]


def test_a_stage_that_cannot_be_right_is_told_without_running_it(staged: Repository) -> None:
    """A file that is no Python, and a function that is not there: at the call, with the line or the nearest name."""
    staged.write(f"{FOLDER}/stages/unparsed.py", "def unparsed(dump):\n    return {\n")
    staged.write(f"{FOLDER}/unparsed.yaml", contract("stages/unparsed.py::unparsed"))
    staged.write(f"{FOLDER}/stages/missspelt.py", "def misspelt(dump):\n    return {}\n")
    staged.write(f"{FOLDER}/missspelt.yaml", contract("stages/missspelt.py::missspelt"))
    told = errors(staged)
    assert told["unparsed"][0] == "contracts/toy/unparsed.yaml:6:14: the stage is not Python: '{' was never closed"
    assert "  at contracts/toy/stages/unparsed.py:2" in told["unparsed"]
    assert told["missspelt"][0] == "contracts/toy/missspelt.yaml:6:14: stages/missspelt.py has no 'missspelt'"
    assert "  did you mean 'misspelt'?" in told["missspelt"]


def test_a_stage_that_hangs_says_where(staged: Repository) -> None:
    """The limit is a flag, and the line that was running is named."""
    staged.write(STAGES, "import time\n\ndef hangs(dump):\n    print('before')\n    time.sleep(60)\n")
    staged.write(f"{FOLDER}/hangs.yaml", contract("stages/stages.py::hangs"))
    body = errors(staged, "--contracts-timeout", "4")["hangs"]
    assert body[:6] == [
        "error(timeout): calling stages/stages.py::hangs gave no result within 4 seconds",
        "  called by contracts/toy/hangs.yaml:6, in toy-1",
        "  it was at contracts/toy/stages/stages.py:5, in hangs",
        "  if it only needs longer: --contracts-timeout=SECONDS",
        "",
        "Last lines printed:",
    ]
    assert "  | before" in body


def test_a_stage_may_print_a_gigabyte(staged: Repository) -> None:
    """What is printed is read and let go: the stage passes, and the last lines stand where one fails after it."""
    flood = "    for _ in range(1024):\n        os.write(1, b'x' * (1 << 20))\n"
    staged.write(STAGES, f"{GOOD}\nimport os\n\ndef prints(dump, request):\n{flood}    return good(dump, request)\n")
    staged.edit(STAGES, {"for _ in range(1024)": "for _ in range(1024 if request == 0 else 0)"})
    staged.write(f"{FOLDER}/prints.yaml", contract("stages/stages.py::prints"))
    staged.run("-k", "prints").assert_outcomes(passed=1, warnings=1, deselected=7)


SPOILERS = {
    "removes": "import shutil\n\ndef spoils(dump, request):\n    out = good(dump, request)\n"
    "    (dump / str(request) / 'aux_0.pt').unlink()\n    return out\n",
    "overwrites": "def spoils(dump, request):\n    out = good(dump, request)\n"
    "    torch.save(torch.zeros(1), dump / str(request) / 'aux_0.pt')\n    return out\n",
    "edits in place": "def spoils(dump, request):\n    out = good(dump, request)\n"
    "    torch.load(dump / str(request) / 'aux_0.pt', mmap=True).zero_()\n    return out\n",
    "moves away": "import os\n\ndef spoils(dump, request):\n    out = good(dump, request)\n    os.chdir('/')\n"
    "    os.environ.clear()\n    return out\n",
}


def test_a_stage_that_spoils_what_it_is_given_spoils_its_own_copy(staged: Repository) -> None:
    """The dump is observed once; who reads it after the spoilers finds it as it was."""
    staged.build("toy-1", "toy-2")
    staged.write(STAGES, GOOD)
    for number, text in enumerate(SPOILERS.values()):
        staged.write(f"{FOLDER}/stages/spoiler_{number}.py", GOOD + text)
        staged.write(f"{FOLDER}/spoiler_{number}.yaml", contract(f"stages/spoiler_{number}.py::spoils"))
    staged.write(f"{FOLDER}/reader.yaml", contract("stages/stages.py::good"))
    staged.run("-k", "spoiler").assert_outcomes(passed=4, warnings=4, deselected=8)
    staged.run("-k", "reader").assert_outcomes(passed=1, warnings=1, deselected=11)
    assert staged.noted().count("dump") == 1


BREAKS_OF_NOTHING = {
    "drop: aux_7": (
        "the break names aux_7, and what it acts on has none of that name",
        "did you mean aux_1?",
    ),
    "swap: [aux_0, fin]": (
        "the break names fin, and what it acts on has none of that name",
        "it holds aux_0, aux_1",
    ),
}


def test_a_break_of_a_name_that_is_not_there_is_an_error(staged: Repository) -> None:
    """With the break's place and the names that there are."""
    entries = "".join(f"  - {{break: {{{broken}}}, as: permuted}}\n" for broken in BREAKS_OF_NOTHING)
    staged.write(f"{FOLDER}/stage.yaml", contract("stages/stages.py::good", f"must_catch:\n{entries}"))
    result = staged.run("-k", "stage and catches")
    result.assert_outcomes(errors=2, deselected=8)
    for line, (broken, (sentence, advice)) in enumerate(BREAKS_OF_NOTHING.items(), start=10):
        told = f"error(break): {sentence}\n  {advice}\n  the break: contracts/toy/stage.yaml:{line} ({broken})\n"
        assert f"\n{told}" in shown(result)


def test_a_module_that_is_not_there_is_told_with_the_place(staged: Repository) -> None:
    """A trainer's package in another version: the call's place, and what the import said."""
    staged.write(f"{FOLDER}/gone.yaml", contract("json.decoderr:loads"))
    staged.write(f"{FOLDER}/name.yaml", contract("json.decoder:JSONDecodr"))
    told = errors(staged)
    assert told["gone"][0] == (
        "error(stage): the module json.decoderr cannot be imported: ModuleNotFoundError: No module named"
    )
    assert "  called by contracts/toy/gone.yaml:6, in toy-1" in told["gone"]
    assert told["name"][0] == "error(stage): json.decoder:JSONDecodr: JSONDecodr is not there"
    assert told["name"][1] == "  did you mean JSONDecoder?"
