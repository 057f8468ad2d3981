"""What can be said of a wrong file without an engine is said by `validate` and by a run, in the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_contracts.cli import main

from .cli_story import CAPTURE, started, write_project

Captured = pytest.CaptureFixture[str]
OVERLAY = "PARAMS = {'layers': [1]}\nEDITS = [{'module': 'm', 'versions': '>=1', 'anchor': 'a', 'replacement': 'b'}]\n"
DUMP = """\
spec: 1
why: What lands in the files decides.
between: [target forward, dump files]
run: sglang.dump
in: sglang-9
with: {overlay: patches/dump.py}
expect: [{slots: {aux: $trained.taps}}]
must_catch: [{break: {overlay.layers: [2]}, as: shifted}]
"""
STAGE = """\
spec: 1
why: The order is the only record.
between: [dump files, sample]
run: python
in: mine
with: {call: "stages/keep.py::keep", from: {dump: dump}}
expect: [{concat: {x: [aux_0, aux_1]}}, {width: {y: slots x target}}]
must_catch: [{break: {swap: [aux_0, aux_1]}, as: permuted}]
"""
PARITY = """\
spec: 1
why: Each side may be wrong.
between: [training, serving]
run: compare
with: {from: {train: stage, serve: capture}}
expect: [{same: {slots: $trained.taps}}]
must_catch: [{break: {swap: [slot_0, slot_1]}, as: permuted}]
"""
IDS = "{layer_ids: $draft.layer_ids}"
MISTAKES: dict[str, tuple[str, str, str, str]] = {
    "float": (CAPTURE, IDS, "{layer_ids: [2.0]}", "6:20: layer_ids must be a list of whole numbers, not 2.0"),
    "text": (CAPTURE, IDS, "{layer_ids: [a]}", "6:20: layer_ids must be a list of whole numbers, not the text 'a'"),
    "bool": (CAPTURE, IDS, "{layer_ids: [true]}", "6:20: layer_ids must be a list of whole numbers, not true"),
    "null": (CAPTURE, IDS, "{layer_ids: null}", "6:19: layer_ids must be a list of whole numbers, not nothing"),
    "number": (CAPTURE, IDS, "{layer_ids: 3}", "6:19: layer_ids must be a list of whole numbers, not 3"),
    "broken_ids": (
        CAPTURE,
        "{shift: {with.layer_ids: +1}}",
        "{with.layer_ids: [x]}",
        "10:13: layer_ids must be a list of whole numbers, not the text 'x'",
    ),
    "no_overlay": (DUMP, "dump.py", "dumb.py", "6:17: the overlay contracts/small/patches/dumb.py cannot be read"),
    "bad_overlay": (DUMP, "dump.py", "bad.py", "6:17: contracts/small/patches/bad.py:1: not Python: "),
    "params": (DUMP, "overlay.layers", "overlay.layer", "8:22: no overlay here has 'layer' in its PARAMS"),
    "no_stage": (STAGE, "keep.py", "kept.py", "6:14: the stage stages/kept.py cannot be read: No such file"),
    "bad_stage": (STAGE, "keep.py", "bad.py", "6:14: the stage is not Python: "),
    "no_function": (STAGE, "::keep", "::kept", "6:14: stages/keep.py has no 'kept'"),
    "from_pipeline": (
        STAGE,
        "{dump: dump}",
        "{dump: pipeline}",
        "6:51: no contract beside this one is called 'pipeline'",
    ),
    "from_text": (STAGE, "{dump: dump}", "dump", "6:44: 'from' is a map from a name to the contract"),
    "from_number": (STAGE, "{dump: dump}", "{dump: 3}", "6:51: 'dump' must be the name of a contract, or a list"),
    "from_side": (PARITY, "serve:", "server:", "5:14: 'from' must name train and serve here, not train, server"),
    "nowhere": (CAPTURE, "in: serve\n", "", "4:6: 'in' is missing: the role or the environments that this runs in"),
    "width": (STAGE, "slots x target", "slots x goal", "7:53: a width is a product such as slots x target"),
    "lone_width": (
        STAGE,
        "{concat: {x: [aux_0, aux_1]}}, {width: {y: slots x target}}",
        "{width: slots x target}",
        "7:18: a width alone is of what concat promises",
    ),
    "rows": (DUMP, "[{slots: {aux: $trained.taps}}]", "[{rows: null}]", "7:17: rows takes one_per_token, not nothing"),
    "variants": (STAGE, "{width: {y: slots x target}}", "{unchanged_by: [null]}", "7:57: there is no variant null"),
    "mark": (CAPTURE, "in: serve\n", "in: serve\nmarks: [skip]\n", "6:9: the mark 'skip' cannot stand here"),
    "known": (
        CAPTURE,
        "in: serve\n",
        "in: serve\nknown_violation: {as: shifted, engine: sglangg==9, link: x}\n",
        "6:40: no environment of contracts/small/pipeline.yaml has the engine 'sglangg'",
    ),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project's folder with an overlay and a stage; the command is started at the root."""
    folder = write_project(tmp_path)
    for name, text in {
        "patches/dump.py": OVERLAY,
        "patches/bad.py": "PARAMS = {\n",
        "stages/keep.py": "def keep(dump):\n    return {}\n",
        "stages/bad.py": "def keep(:\n",
        "dump.yaml": DUMP,
        "stage.yaml": STAGE,
        "parity.yaml": PARITY,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EAGLE_CONTRACTS_HOME", raising=False)
    return folder


def told(capsys: Captured) -> list[dict[str, object]]:
    main(["validate", "--json"])
    mistakes: list[dict[str, object]] = json.loads(capsys.readouterr().out)["mistakes"]
    return mistakes


def lines_of(mistakes: list[dict[str, object]]) -> list[str]:
    return [f"{one['path']}:{one['line']}:{one['column']}: {one['message']}" for one in mistakes]


def test_the_project_is_right_before_it_is_spoiled(project: Path, capsys: Captured) -> None:
    """Else the mistakes below would prove nothing; widths of other outputs are documented, and taken."""
    assert lines_of(told(capsys)) == []


def test_every_mistake_is_said_by_validate_and_by_a_run(project: Path, capsys: Captured) -> None:
    """Each at its place, with the same sentence, and without a line of Python."""
    for name, (text, old, new, _) in MISTAKES.items():
        assert text.count(old) == 1, name
        (project / f"{name}.yaml").write_text(text.replace(old, new))
    lines = lines_of(told(capsys))
    for name, (_, _, _, message) in MISTAKES.items():
        assert [line for line in lines if line.startswith(f"contracts/small/{name}.yaml:{message}")], (name, lines)
    run = " ".join(started(project.parent.parent, "run", "-p", "no:cacheprovider").stdout.split())
    assert [line for line in lines if " ".join(line.split()) not in run] == []
    assert "Traceback" not in run


def test_all_mistakes_of_a_file_are_said_at_once(project: Path, capsys: Captured) -> None:
    """A wrong shape, an unknown adapter's neighbour, a bare list and a mark: one run shows all of them."""
    text = CAPTURE.replace("why:", "whi:").replace("layer_ids: $draft", "layer_idz: $draft")
    text = text.replace("slots: $trained.taps", "slots: [3]").replace("in: serve", "in: serv")
    (project / "capture.yaml").write_text(text)
    found = [line.partition(": ")[2] for line in lines_of(told(capsys)) if "capture.yaml" in line]
    assert found == [
        "'why' is missing",
        "unknown key 'whi'",
        "sglang.capture needs with: {layer_ids: ...}",
        "'serv' is neither a role nor an environment of contracts/small/pipeline.yaml",
        "sglang.capture takes no 'layer_idz'",
        "a list of taps must say how it counts",
        "there is no 'with.layer_ids' to shift",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("9]}}\nenv", "9]}, final: h9}\nenv", "3:52: 'h9' names no state"),
        (
            "set: {draft.layer_ids: [2",
            "set: {trained.final: 3, draft.layer_ids: [2",
            "5:69: a tap must say how it counts",
        ),
        ("python: /no/such/python", "overlay: patches/bad.py", "6:41: contracts/small/patches/bad.py:1: not Python: "),
        ("python: /no/such/python", "lock: nothing", "6:3: no lock file is called nothing.txt"),
    ],
)
def test_a_mistake_of_the_pipeline_is_said_by_both(
    project: Path, capsys: Captured, old: str, new: str, message: str
) -> None:
    """Also what no contract reads; once, however many contracts there are."""
    path = project / "pipeline.yaml"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    lines = lines_of(told(capsys))
    assert len(lines) == 1
    assert lines[0].startswith(f"contracts/small/pipeline.yaml:{message}")
    run = started(project.parent.parent, "run", "-p", "no:cacheprovider").stdout
    assert " ".join(run.split()).count(f"_ {' '.join(lines[0].split())}") == 1


def test_a_contract_beside_a_wrong_pipeline_is_looked_at(project: Path, capsys: Captured) -> None:
    """What needs no pipeline is said too."""
    path = project / "pipeline.yaml"
    path.write_text(path.read_text().replace("spec: 1", "spec: 2"))
    (project / "capture.yaml").write_text(CAPTURE.replace("why:", "whi:"))
    assert [line.partition(": ")[2] for line in lines_of(told(capsys))] == [
        "'why' is missing",
        "unknown key 'whi'",
        "'spec' must be 1, not 2",
    ]


def test_an_adapter_that_raises_is_told_as_a_mistake(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter of somebody else's that cannot use its parameters is named; it does not end the command."""
    from eagle_contracts.subjects import sglang_dump

    def request(*_: object) -> dict[str, object]:
        raise KeyError("folder")

    monkeypatch.setattr(type(sglang_dump.SUBJECT), "request", property(lambda self: request), raising=False)
    try:
        lines = lines_of(told(capsys))
    finally:
        monkeypatch.undo()
    assert "contracts/small/dump.yaml:6:1: sglang.dump cannot use these parameters: KeyError: 'folder'" in lines
