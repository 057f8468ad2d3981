"""Files that no editor leaves behind: the answer is a sentence with a position, never a traceback or a wait."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle_contracts.cli import main
from eagle_contracts.spec.document import parse_yaml
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.flow import show
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import Contract

from .cli_story import CAPTURE, write_project

Captured = pytest.CaptureFixture[str]
STORY = Path(__file__).parent / "spec_story"
FULL = re.compile(r"^[^\s:][^:\n]*:[1-9]\d*:[1-9]\d*: \S", re.MULTILINE)
MANY = 1000


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project's pipeline folder, with the command started at the root."""
    folder = write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EAGLE_CONTRACTS_HOME", raising=False)
    return folder


def bomb() -> str:
    lines = ["spec: 1", "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines) + "\n"


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"spec: 1\n")
        file.truncate(100 << 20)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "explodes": (lambda p: p.write_text(bomb()), "aliases expand to more than 10,000 values"),
    "deep": (lambda p: p.write_text("why: " + "[" * 100_000), ":1:1005: is nested more than 100 levels deep"),
    "tab": (lambda p: p.write_text("spec: 1\nwith:\n\tlayer_ids: [1]\n"), ":3:1: a tab cannot indent YAML"),
    "utf-16": (lambda p: p.write_bytes(CAPTURE.encode("utf-16")), ":1:1: is not UTF-8: byte 0xff"),
    "nul": (lambda p: p.write_bytes(b"spec: 1\nwhy: a\0b\n"), ":2:7: the character U+0000 is not allowed in YAML"),
    "huge": (huge, ":1:1: is larger than 1 MiB"),
    "pipe": (os.mkfifo, ":1:1: is a pipe, a socket or a device, not a file"),
    "dangling": (lambda p: p.symlink_to("nowhere.yaml"), ":1:1: cannot be read: No such file or directory"),
    "round": (lambda p: p.symlink_to(p.name), ":1:1: cannot be read: Too many levels of symbolic links"),
    "empty": (lambda p: p.touch(), ":1:1: is empty"),
    "itself": (lambda p: p.write_text("with: &a [*a]\n"), ":1:11: *a stands inside its own anchor &a"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_told_at_once(project: Path, capsys: Captured, name: str) -> None:
    """Beside a right contract, which is checked all the same."""
    make, message = HOSTILE[name]
    make(project / "hostile.yaml")
    start = time.monotonic()
    assert main(["validate"]) == 1
    assert time.monotonic() - start < 5
    out = capsys.readouterr().out
    assert f"contracts/small/hostile.yaml{message if message.startswith(':') else ':'}" in out
    assert message in out
    assert "2 contracts and 1 pipeline: " in out


def test_a_file_that_may_not_be_read_is_told(project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason; as root every file may be read, so the refusal is the story's own."""
    opened = Path.open

    def refused(path: Path, *arguments: object, **named: object) -> object:
        if path.name == "capture.yaml":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    assert main(["validate"]) == 1
    assert capsys.readouterr().out.startswith("contracts/small/capture.yaml:1:1: cannot be read: Permission denied\n")


def test_a_folder_called_like_a_contract_is_a_folder(project: Path, capsys: Captured) -> None:
    """What lies in it is looked at; named as a producer, it is no contract."""
    (project / "folder.yaml").mkdir()
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "1 contract and 1 pipeline: no mistake.\n"


@pytest.mark.parametrize("text", [f"\ufeff{CAPTURE}", CAPTURE.replace("\n", "\r\n"), CAPTURE.replace("\n", "\r")])
def test_what_other_editors_write_is_read(project: Path, capsys: Captured, text: str) -> None:
    """A byte order mark and other line ends change nothing."""
    (project / "capture.yaml").write_bytes(text.encode())
    assert main(["validate"]) == 0
    assert "no mistake" in capsys.readouterr().out


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=st.text(max_size=200) | st.text(alphabet=":-[]{}&*!|>'\"#%@`,? \t\n\rab1$<=~\\", max_size=120))
def test_any_text_is_a_document_or_a_mistake_inside_it(text: str) -> None:
    """A position outside the text would show an empty line."""
    try:
        parse_yaml(text, path=Path("x.yaml"), shown="x.yaml")
    except SpecError as error:
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for issue in error.issues:
            assert 1 <= issue.position.line <= len(lines)
            assert 1 <= issue.position.column <= len(lines[issue.position.line - 1]) + 1
            assert issue.message


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("abc_é", min_size=1, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ids=st.lists(st.integers(-9, 99), max_size=4), more=PLAIN)
def test_a_contract_that_is_written_out_again_is_the_same(tmp_path: Path, ids: list[int], more: object) -> None:
    """Whatever `with` holds: read, written as JSON (which is YAML), and read again."""
    for name in ("pipeline.yaml", "target.config.json", "draft.config.json"):
        shutil.copy(STORY / name, tmp_path / name)
    shutil.copytree(STORY / "patches", tmp_path / "patches", dirs_exist_ok=True)
    data = parse_yaml(CAPTURE.replace("in: mine, ", ""), path=Path("c"), shown="c").data
    assert isinstance(data, dict)
    data["with"] = {"layer_ids": ids, "more": more}
    read: list[Contract] = []
    for text in (json.dumps(data), json.dumps(data, indent=1, ensure_ascii=False)):
        path = tmp_path / "c.yaml"
        path.write_text(text, encoding="utf-8")
        read.append(load_contract(path, load_pipeline(tmp_path / "pipeline.yaml")))
    one, other = read
    assert {key: show(value.data) for key, value in one.with_.items()} == {
        key: show(value.data) for key, value in other.with_.items()
    }
    assert str(one.expect[0].value.data) == str(other.expect[0].value.data) == "$trained.taps"
    assert one.must_catch[0].text == other.must_catch[0].text


def mutated(text: str, source: random.Random) -> str:
    """Return a text with one to three spans removed, doubled, or replaced by pieces of syntax or of itself."""
    pieces = [
        "",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "\n",
        "\t",
        "*a",
        "&a ",
        "null",
        "-1",
        "1.5",
        "$trained.taps",
        "''",
        "#",
    ]
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(text) + 1)
        length = source.choice([0, 1, 4, 12])
        own = text[(start := source.randrange(len(text) + 1)) : start + source.choice([3, 10, 30])]
        text = text[:at] + source.choice([*pieces, own, own, own]) + text[at + length :]
    return text


def test_a_thousand_mutated_files_go_the_whole_way(project: Path, capsys: Captured) -> None:
    """Pipelines, contracts and configs: `validate` ends soon, and each mistake has file, line and column."""
    source = random.Random(20_251_201)
    texts = {name: (project / name).read_text() for name in ("capture.yaml", "pipeline.yaml", "target.config.json")}
    wrong = 0
    start = time.monotonic()
    for number in range(MANY):
        name = source.choice(["capture.yaml", "capture.yaml", "pipeline.yaml", "target.config.json"])
        text = mutated(texts[name], source)
        (project / name).write_text(text, encoding="utf-8")
        code = main(["validate", "--json"] if number % 2 else ["validate"])
        said = capsys.readouterr()
        (project / name).write_text(texts[name])
        assert (code, said.err) in ((0, ""), (1, "")), text
        wrong += code
        if number % 2 and code:
            mistakes = json.loads(said.out)["mistakes"]
            assert mistakes and all(one["line"] >= 1 and one["column"] >= 1 and one["message"] for one in mistakes), (
                text
            )
        elif code:
            assert FULL.match(said.out), (text, said.out)
        for word in ("Traceback", "None", "NoneType", "<class", "object at 0x"):
            assert word not in said.out or word in text, (text, said.out)
    assert wrong > MANY // 2
    assert time.monotonic() - start < 120
