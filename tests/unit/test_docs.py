"""The documentation says what is so: its examples load, and what it names exists."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle_contracts.cli import VERBS
from eagle_contracts.failures import BLAMED
from eagle_contracts.patterns import RULES, Slot, diagnose
from eagle_contracts.plan import Planner
from eagle_contracts.report.columns import COLUMNS
from eagle_contracts.report.terminal import render
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import DIAGNOSES, SETTABLE, Contract, Value
from eagle_contracts.spec.validate import schema
from eagle_contracts.subjects.protocol import GROUP, Subject
from eagle_contracts.verdict import Remedy, Verdict
from eagle_contracts.workers.own import own_interpreters

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REPOSITORY_PATH = re.compile(r"(?<![\w./:-])(?:contracts|docs|eagle_contracts|tests)/[\w./-]+|\bMakefile\b")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MADE_UP = "contracts/my_drafter"
"""The reader's own folder in the README's example."""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [text for found, text in FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def known_flags() -> frozenset[str]:
    """Every flag that pytest, with this plugin, and this package's own command know."""
    commands = (
        ("pytest", "--help"),
        *(("eagle_contracts.cli", *words, "--help") for words in ((), *((verb,) for verb in VERBS))),
        *(("eagle_contracts.cli", "env", verb, "--help") for verb in ("sync", "list")),
    )
    text = ""
    for module, *words in commands:
        start = ["-m", module] if module == "pytest" else ["-c", f"from {module} import main; main()"]
        done = subprocess.run([sys.executable, *start, *words], capture_output=True, text=True, check=True, cwd=ROOT)
        text += done.stdout
    return frozenset(FLAG.findall(text))


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    """The README's example folder, written as its reader would write it."""
    folder = tmp_path / "my_drafter"
    folder.mkdir()
    for name in ("target.config.json", "draft.config.json"):
        shutil.copy(ROOT / "contracts" / "qwen3" / name, folder / name)
    for text in blocks(ROOT / "README.md", "yaml"):
        path = text.splitlines()[0].removeprefix("# ")
        assert path.startswith(f"{MADE_UP}/")
        (folder / Path(path).name).write_text(text, encoding="utf-8")
    return folder


def no_sibling(name: str, named: Value) -> Contract:
    """The example reads no other contract."""
    raise AssertionError(f"{named.position} reads {name}")


def test_the_readmes_example_loads(drafter: Path) -> None:
    """A reader who copies the README's two files gets the items that it speaks of."""
    pipeline = load_pipeline(drafter / "pipeline.yaml")
    contract = load_contract(drafter / "sglang_capture_offset.yaml", pipeline)
    planner = Planner(pipeline=pipeline, labels={}, overrides={}, siblings=no_sibling)
    names = [case.name for case in planner.cases(contract)]
    assert names == ["slots[sglang-0.5.23]", "catches-shifted[sglang-0.5.23]"]


def sample_verdict() -> Verdict:
    """The README's failing example, as the judge would make it."""
    holds = {2: 3, 30: 31, 58: 59}
    slots = [
        Slot(index=index, declared=declared, outcome="identified", observed_kind="state", observed_k=observed)
        for index, (observed, declared) in enumerate(holds.items())
    ]
    diagnosis, sentence = diagnose(slots, 61)
    contract = "contracts/kimi_k25/sglang_capture_offset.yaml"
    return Verdict(
        status="violated",
        diagnosis=diagnosis,
        sentence=sentence,
        context=(
            ("slots", "{hidden_states: [3, 31, 59]}", "contracts/kimi_k25/pipeline.yaml:5"),
            ("layer_ids", "[2, 30, 58]", "--contracts-set draft.layer_ids"),
            ("engine", "sglang 0.5.23, DeepseekV3ForCausalLM twin of 61 layers, 43 tokens, cpu", ""),
        ),
        remedy=Remedy(
            key="draft.layer_ids",
            lists=((3, 31, 59),),
            where="contracts/kimi_k25/pipeline.yaml:9, environment sglang-0.5.23, "
            "where it stands already: drop the flag",
            sentence="verified by running the engine",
        ),
        next_command=f"pytest --contracts '{contract}::slots[sglang-0.5.23]' "
        "--contracts-set 'draft.layer_ids=[3,31,59]'",
    )


def test_the_readmes_sample_output_is_what_the_renderer_makes() -> None:
    """The headline, what was run, the remedy and the next command stand in the README as a failure shows them."""
    [sample] = blocks(ROOT / "README.md", "text")
    for part in render(sample_verdict()).split("\n\n"):
        assert f"{part}\n" in sample


def test_the_sample_names_the_lines_of_the_pipeline() -> None:
    """Line 5 of the pipeline is the claim, and line 9 is the entry that the remedy is about."""
    lines = (ROOT / "contracts" / "kimi_k25" / "pipeline.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[4].startswith("trained: {taps: {hidden_states: [3, 31, 59]}")
    assert lines[8].strip().startswith("sglang-0.5.23:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """Links lead somewhere, and paths of this repository are there."""
    text = page.read_text(encoding="utf-8")
    named = [path.rstrip(".") for path in REPOSITORY_PATH.findall(text) if not path.startswith(MADE_UP)]
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    missing = [path for path in named if not (ROOT / path).exists()]
    missing += [link for link in links if link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_heading_that_a_link_names_exists(page: Path) -> None:
    """A link to a part of a page leads to a heading there."""
    for link, heading in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert heading in {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_flag_that_a_page_names_exists(page: Path, known_flags: frozenset[str]) -> None:
    """A reader can type what a page shows."""
    assert set(FLAG.findall(page.read_text(encoding="utf-8"))) <= known_flags


def test_the_search_for_flags_finds_one_that_does_not_exist(known_flags: frozenset[str]) -> None:
    """The test above can fail."""
    assert set(FLAG.findall("`pytest --contract-set x`")) - known_flags == {"--contract-set"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_variable_that_a_page_names_is_read(page: Path) -> None:
    """An environment variable that a page names stands in the package's source."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "eagle_contracts").rglob("*.py"))
    for name in re.findall(r"\b(?:EAGLE_CONTRACTS|SGLANG)_[A-Z_]+\b", page.read_text(encoding="utf-8")):
        assert f'"{name}"' in source


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_fit_the_columns_of_a_report(page: Path) -> None:
    """Pages read well in a terminal."""
    assert [line for line in page.read_text(encoding="utf-8").splitlines() if len(line) > COLUMNS] == []


def test_the_vocabulary_lists_every_diagnosis() -> None:
    """The list of diagnoses is closed, and the page shows all of it."""
    text = prose(ROOT / "docs" / "vocabulary.md")
    rows = re.findall(r"^\| `(\w+)` \|", text[text.index("**Diagnosis**") :], re.MULTILINE)
    assert sorted(rows) == sorted(DIAGNOSES)


def test_the_precedence_is_that_of_the_rules() -> None:
    """How a verdict is reached shows the rules in the order in which they are asked."""
    text = prose(ROOT / "docs" / "verdict.md")
    part = text[text.index("## 6.") : text.index("## 7.")]
    assert re.findall(r"^\d+\. `(\w+)`", part, re.MULTILINE) == [name for name, _ in RULES]


def keys_of(kind: str) -> Iterator[str]:
    """The keys that a kind of file may have, as the page writes them."""
    described = schema("pipeline" if kind == "pipeline" else "contract")
    for key, entry in described["properties"].items():
        inner = entry.get("properties")
        yield from (f"{key}.{name}" for name in inner) if inner else (key,)
    for definition in described["definitions"].values():
        yield from definition.get("properties", {})


@pytest.mark.parametrize("kind", ["pipeline", "contract"])
def test_the_format_reference_names_every_key(kind: str) -> None:
    """Every key of the schemas has a row in a table."""
    rows = re.findall(r"^\| `([\w.]+)` \|", prose(ROOT / "docs" / "contracts.md"), re.MULTILINE)
    assert set(keys_of(kind)) <= set(rows)


def test_the_format_reference_names_every_value_that_can_be_overridden() -> None:
    """The keys of `--contracts-set` are all told."""
    text = prose(ROOT / "docs" / "contracts.md")
    assert [key for key in SETTABLE if f"`{key}`" not in text] == []


def test_the_adapter_example_is_an_adapter() -> None:
    """The page's Python makes a Subject with all fields, and its entry point is in the group that is searched."""
    page = ROOT / "docs" / "adapters.md"
    [code], [entry] = blocks(page, "python"), blocks(page, "toml")
    space: dict[str, object] = {}
    exec(compile(code, str(page), "exec"), space)
    subject = space["SUBJECT"]
    assert isinstance(subject, Subject)
    assert subject.package == "my_package"
    assert tomllib.loads(entry)["project"]["entry-points"][GROUP] == {subject.name: "my_package.capture:SUBJECT"}
    rows = re.findall(r"^\| `(\w+)` \|", prose(page), re.MULTILINE)
    assert rows == list(Subject.__dataclass_fields__)


def test_the_example_of_own_interpreters_loads(tmp_path: Path) -> None:
    """The file for one machine that the page shows is read as it says."""
    [text] = blocks(ROOT / "docs" / "environments.md", "yaml")
    (tmp_path / "environments.yaml").write_text(text, encoding="utf-8")
    own = own_interpreters(tmp_path)
    assert own["sglang-0.5.9"].python == "~/engines/sglang-0.5.9/bin/python"
    assert own["sglang-0.5.23"].command == ("docker", "exec", "-i", "serve", "python3")


HOLE = "\0"
"""Stands for what is put into a message: `{...}` in an f-string, `...` in a heading."""
CODE = re.compile(r"(?:error|unavailable)\(\w+\)")
TROUBLE = ROOT / "docs" / "troubleshooting.md"


@pytest.fixture(scope="module")
def sources() -> list[ast.AST]:
    """Every node of the package's modules."""
    files = sorted((ROOT / "eagle_contracts").rglob("*.py"))
    return [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]


def constant(node: ast.AST | None) -> str:
    """A text that stands in the source as it is, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def messages(nodes: list[ast.AST]) -> str:
    """Every text in the package's modules but docstrings, a line each, with a hole wherever values are put in."""
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [constant(node) for node in nodes if id(node) not in docstrings]
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(constant(part) or HOLE for part in node.values))
    return re.sub(f"{HOLE}+", HOLE, "\n".join(texts))


def codes(nodes: list[ast.AST]) -> set[str]:
    """Every code that `error(...)` and `unavailable(...)` can name in a report."""
    found = {f"error({code})" for code in BLAMED.values()} | set(CODE.findall(messages(nodes)))
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = {keyword.arg: constant(keyword.value) for keyword in node.keywords}
            if node.func.id == "Unrunnable" and constant(node.args[1]):
                found.add(f"{constant(node.args[0])}({constant(node.args[1])})")
            elif node.func.id == "Unavailable":
                found.add(f"unavailable({given['reason']})")
            elif node.func.id in ("Verdict", "Failure") and (code := given.get("reason") or given.get("kind")):
                found.add(f"error({code})")
        elif isinstance(node, ast.Dict):  # a worker's reply, which has no class of ours
            reply = {constant(key): constant(value) for key, value in zip(node.keys, node.values, strict=True)}
            found |= {f"error({reply['kind']})"} if {"ok", "kind", "traceback"} <= set(reply) else set()
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            ended = node.targets[0].attr == "_ended" and constant(node.value)
            found |= {f"error({ended})"} if ended else set()
    return found


def headings(text: str) -> list[str]:
    """The messages that have a section of their own."""
    return re.findall(r"^### `(.+)`$", text, re.MULTILINE)


def test_every_message_with_a_section_is_one_of_the_packages(sources: list[ast.AST]) -> None:
    """A heading quotes a message word by word, with `...` for what is put in; nothing there is out of date."""
    told, written = messages(sources), headings(TROUBLE.read_text(encoding="utf-8"))
    assert len(written) > 30
    assert [one for one in written if not CODE.fullmatch(one) and one.replace("...", HOLE) not in told] == []


def test_the_search_for_messages_misses_one_that_is_not_there(sources: list[ast.AST]) -> None:
    """The test above can fail: a word that has changed, or a value in place of a hole."""
    told = messages(sources)
    assert f"unknown key '{HOLE}'" in told
    assert f"unknown word '{HOLE}'" not in told
    assert "unknown key 'between'" not in told


def test_every_code_of_a_verdict_has_its_section(sources: list[ast.AST]) -> None:
    """Whatever stands in the brackets of a report can be looked up, and nothing that no report says."""
    written = headings(TROUBLE.read_text(encoding="utf-8"))
    assert {one for one in written if CODE.fullmatch(one)} == codes(sources)


@pytest.mark.parametrize("code", ["unavailable(device)", "error(spec)", "error(stage)", "error(died)", "error(store)"])
def test_a_code_without_a_section_is_noticed(code: str, sources: list[ast.AST]) -> None:
    """The test above can fail, for each way in which the source names a code."""
    text = TROUBLE.read_text(encoding="utf-8").replace(f"### `{code}`", "")
    assert codes(sources) - set(headings(text)) == {code}


def test_the_table_of_messages_has_every_code_and_every_outcome_of_a_control() -> None:
    """The table at the top leads from the word of a report to its section."""
    text = TROUBLE.read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    assert {one for one in headings(text) if CODE.fullmatch(one)} <= rows
    assert {"inconclusive", "not_caught", "caught_as_another", "unproven"} <= rows
