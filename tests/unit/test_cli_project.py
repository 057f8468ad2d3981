"""validate, list, explain, schema and run: what a person types, and what they read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eagle_contracts.cli import VERBS, main
from eagle_contracts.spec.validate import schema

from .cli_story import CAPTURE, ROOT, started, write_project

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project, with the command started at its root."""
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EAGLE_CONTRACTS_HOME", raising=False)
    return tmp_path


def edit(project: Path, old: str, new: str, name: str = "capture.yaml") -> None:
    path = project / "contracts" / "small" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_right_project_is_said_to_be_right(project: Path, capsys: Captured) -> None:
    """The count says what was read: nothing read would be no success."""
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "1 contract and 1 pipeline: no mistake.\n"


def test_all_mistakes_are_shown_at_once(project: Path, capsys: Captured) -> None:
    """A parameter and a promise are wrong in one file, and the adapter of another file."""
    edit(project, "{layer_ids: $draft.layer_ids}", "{layer_ids: $draft.layer_ids, layer_idz: 1}")
    edit(project, "- slots: $trained.taps", "- slotz: $trained.taps\n  - rows: one")
    (project / "contracts" / "small" / "other.yaml").write_text(
        CAPTURE.replace("run: sglang.capture", "run: sglang.captur")
    )
    assert main(["validate"]) == 1
    out = capsys.readouterr().out
    assert "capture.yaml:6:37: sglang.capture takes no 'layer_idz'\n" in out
    assert "  did you mean 'layer_ids'?\n" in out
    assert "capture.yaml:8:5: no expectation is called 'slotz'\n" in out
    assert "other.yaml:4:6: no adapter is called 'sglang.captur'\n" in out
    assert out.endswith("2 contracts and 1 pipeline: 5 mistakes in 2 files.\n")


def test_two_unknown_promises_are_both_shown(project: Path, capsys: Captured) -> None:
    """Planning stops at the first mistake, and validate does not."""
    edit(project, "- slots: $trained.taps", "- slotz: $trained.taps\n  - rowz: one_per_token")
    assert main(["validate"]) == 1
    out = capsys.readouterr().out
    assert "capture.yaml:8:5: no expectation is called 'slotz'\n" in out
    assert "capture.yaml:9:5: no expectation is called 'rowz'\n" in out


def test_a_value_that_no_check_would_take_is_found_without_an_engine(project: Path, capsys: Captured) -> None:
    """A bare list of taps, twice: every one is told."""
    edit(project, "- slots: $trained.taps", "- slots: [3, 5]\n  - slots: [4]")
    assert main(["validate"]) == 1
    assert capsys.readouterr().out.startswith(
        "contracts/small/capture.yaml:8:12: a list of taps must say how it counts\n"
        "      - slots: [3, 5]\n"
        "               ^\n"
        "  write {hidden_states: [3, 5]} for h[3], h[5], or {layer_outputs: [3, 5]} for h[4], h[6]\n"
        "contracts/small/capture.yaml:9:12: a list of taps must say how it counts\n"
    )


def test_a_promise_that_the_subject_cannot_be_held_to_is_found(project: Path, capsys: Captured) -> None:
    """A capture has no rows a request, so a promise of them could never be judged."""
    edit(project, "- slots: $trained.taps", "- slots: $trained.taps\n  - rows: one_per_token")
    assert main(["validate"]) == 1
    assert capsys.readouterr().out.startswith(
        "contracts/small/capture.yaml:9:5: sglang.capture cannot promise rows\n"
        "      - rows: one_per_token\n"
        "        ^\n"
        "  its expectations: slots\n"
    )


def test_the_claim_is_checked_against_the_targets_depth(project: Path, capsys: Captured) -> None:
    """Ten layers have no eleventh output."""
    edit(project, "[3, 5, 9]}}\nenv", "[3, 5, 11]}}\nenv", "pipeline.yaml")
    assert main(["validate", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(one["path"], one["line"], one["column"], one["message"]) for one in found["mistakes"]] == [
        ("contracts/small/pipeline.yaml", 3, 40, "hidden_states of a target with 10 layers are 0 to 9, not 11")
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "engine: sglang==9.0",
            "engine: vllm==9.0",
            "capture.yaml:5:5: sglang-9 has vllm, and sglang.capture runs in sglang",
        ),
        (
            "engine: sglang==9.0, ",
            "",
            "pipeline.yaml:5:3: sglang-9 names no engine, and sglang.capture runs in sglang",
        ),
        (
            "layer_ids: [2, 4, 8]",
            "layer_ids: [2, 4, 18]",
            "pipeline.yaml:5:78: 18 names no layer of a target with 10 layers",
        ),
    ],
    ids=["another engine", "no engine", "too deep"],
)
def test_what_no_engine_here_could_run_is_found(project: Path, capsys: Captured, old: str, new: str, said: str) -> None:
    """An environment without the subject's engine, and ids beyond the target's depth, each at its place."""
    edit(project, old, new, "pipeline.yaml")
    assert main(["validate"]) == 1
    assert f"contracts/small/{said}\n" in capsys.readouterr().out


def test_an_environment_with_an_interpreter_of_ones_own_needs_no_engine_key(project: Path, capsys: Captured) -> None:
    """What a user names in environments.yaml may have any engine."""
    edit(project, "engine: sglang==9.0, ", "", "pipeline.yaml")
    own = project / ".eagle_contracts" / "environments.yaml"
    own.parent.mkdir()
    own.write_text("sglang-9: {python: /no/such/python}\n")
    assert main(["validate"]) == 0


def test_validate_needs_no_torch(project: Path) -> None:
    """A machine that only edits contracts can check them; the same probe notices torch where it is imported."""
    code = (
        "import sys; from eagle_contracts.cli import main; code = main(['validate', *sys.argv[1:]]);"
        "print('torch' in sys.modules, code)"
    )
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", code], cwd=project, env=env, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "False 0"
    probe = code.replace("import sys;", "import sys, torch;")
    run = subprocess.run(
        [sys.executable, "-c", probe], cwd=project, env=env, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "True 0"


def test_a_hundred_contracts_are_validated_within_half_a_second(project: Path, capsys: Captured) -> None:
    """An editor can validate at every save."""
    for number in range(99):
        (project / "contracts" / "small" / f"c{number}.yaml").write_text(CAPTURE)
    main(["validate"])
    capsys.readouterr()
    took = []
    for _ in range(3):
        start = time.process_time()
        assert main(["validate"]) == 0
        took.append(time.process_time() - start)
    assert capsys.readouterr().out.startswith("100 contracts and 1 pipeline: no mistake.\n")
    assert min(took) < 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["validate", "contracts/smal"], "there is no file or folder contracts/smal: did you mean 'small'?"),
        (["validate", "pytest.ini"], "pytest.ini is no contract: contracts end in .yaml or .yml"),
        (["explain", "captur"], "no contract is called 'captur': did you mean 'capture'?"),
        (
            ["explain", "contracts/small/pipeline.yaml"],
            "contracts/small/pipeline.yaml is a pipeline: name one of the contracts beside it",
        ),
        (
            ["explain", "capture", "--environment", "mien"],
            "'mien' is neither a role nor an environment of contracts/small/pipeline.yaml: did you mean 'mine'?",
        ),
        (["schema", "pipelines"], "no schema is called 'pipelines': did you mean 'pipeline'?"),
        (["valdate"], "no command is called 'valdate': did you mean 'validate'?"),
        (["--verson"], "no option is called '--verson': did you mean '--version'?"),
        (["--colour"], "no option is called '--colour': options: --help, --version"),
    ],
)
def test_wrong_usage_names_what_is_near(project: Path, capsys: Captured, words: list[str], message: str) -> None:
    """Exit code 2, one sentence, and nothing on standard output."""
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"eagle-contracts: {message}\n")


def test_an_unknown_option_names_the_nearest(project: Path, capsys: Captured) -> None:
    """Argument errors have the same code and say where help is."""
    assert main(["validate", "--jsno"]) == 2
    assert capsys.readouterr().err == (
        "eagle-contracts validate: unrecognized arguments: --jsno; did you mean '--json'?\n"
        "  help: eagle-contracts validate --help\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["validate", "nowhere", "--json"], 2, "there is no file or folder nowhere"),
        (["list", "--jsonn", "--json"], 2, "unrecognized arguments: --jsonn; did you mean '--json'?"),
        (["explain", "--json"], 2, "the following arguments are required: CONTRACT"),
        (["explain", "captur", "--json"], 2, "no contract is called 'captur': did you mean 'capture'?"),
        (["schema", "env", "--json"], 2, "no schema is called 'env': schemas: contract, pipeline"),
        (["env", "lst", "--json"], 2, "no command is called 'lst': did you mean 'list'?"),
        (["lst", "--json"], 2, "no command is called 'lst': did you mean 'list'?"),
    ],
)
def test_with_json_a_failure_is_json_too(
    project: Path, capsys: Captured, words: list[str], code: int, message: str
) -> None:
    """A program reads one document on standard output, whatever happens, and nothing stands beside it."""
    assert main(words) == code
    out, err = capsys.readouterr()
    found = json.loads(out)["error"]
    assert (found["message"].splitlines()[0], found["exit_code"], found["mistakes"]) == (message, code, [])
    assert err == ""


def test_mistakes_in_a_file_are_places_in_the_json_of_a_failure(project: Path, capsys: Captured) -> None:
    """A pipeline that cannot be read stops `explain`; where and why are data."""
    edit(project, "role: serve", "rolle: serve", "pipeline.yaml")
    assert main(["explain", "capture", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["error"]
    assert [(one["path"], one["line"], one["column"], one["hint"]) for one in found["mistakes"]] == [
        (
            "contracts/small/pipeline.yaml",
            5,
            3,
            "add role: what runs here: train (dump and extraction), trainer (the training code), serve (the engine); "
            "one or a list.",
        ),
        ("contracts/small/pipeline.yaml", 5, 14, "did you mean 'role'?"),
    ]


@pytest.mark.parametrize("words", [["list"], ["schema"], ["--help"], ["validate", "--help"], ["explain", "capture"]])
def test_a_reader_that_has_seen_enough_ends_the_command_in_silence(project: Path, words: list[str]) -> None:
    """`| head -1` leaves no complaint, neither of ours nor of the interpreter."""
    command = [sys.executable, "-m", "eagle_contracts", *words]
    with subprocess.Popen(
        command,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


def test_output_that_cannot_be_written_is_said(project: Path) -> None:
    """A full disk behind `>` is no success."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "eagle_contracts", "schema", "--json"],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "eagle-contracts: standard output: No space left on device\n")


@pytest.mark.parametrize("words", [["validate"], ["list"], ["explain", "capture"], ["env", "list"], ["--help"]])
def test_nothing_is_coloured(project: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A log and an editor get plain text, even where colours are forced on other tools."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = started(project, *words)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr


def test_python_m_is_the_command(project: Path) -> None:
    """Where the script is not on PATH, the module is."""
    done = subprocess.run(
        [sys.executable, "-m", "eagle_contracts", "validate"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 contract and 1 pipeline: no mistake.\n", "")


def test_a_project_in_a_path_with_blanks_and_from_its_subfolders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Paths are meant from the folder one stands in, as pytest means them."""
    folder = write_project(tmp_path / "my pröject")
    monkeypatch.chdir(folder)
    assert main(["validate"]) == main(["validate", "capture.yaml"]) == main(["validate", str(folder)]) == 0
    assert main(["explain", "capture.yaml"]) == 0
    assert main(["list", "--json"]) == 0
    out = capsys.readouterr().out
    assert "\ncapture.yaml\n" in out
    assert '"id": "contracts/small/capture.yaml::slots[sglang-9]"' in out
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "my pröject"]) == 0


def test_a_project_without_contracts_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A green check that read nothing is what this tool exists against."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 1
    said = "eagle-contracts: there is no contract in contracts: name a folder, or write a first contract there\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("where", [".", "contracts/small"])
def test_list_shows_what_pytest_collects(project: Path, where: str) -> None:
    """The ids are those of `pytest --contracts`, in its order, mistakes too, from the root and from a folder."""
    (project / "contracts" / "small" / "wrong.yaml").write_text("spec: 1\n")
    listed = json.loads(started(project / where, "list", "--json").stdout)["items"]
    collected = started(project / where, "run", "--co", "-q", "-p", "no:cacheprovider").stdout
    ids = [line for line in collected.splitlines() if "::" in line]
    assert len(ids) == 4
    assert [item["id"] for item in listed] == ids


def test_list_names_contract_environments_and_roles(project: Path, capsys: Captured) -> None:
    """One row an item."""
    assert main(["list", "contracts/small/capture.yaml"]) == 0
    assert capsys.readouterr().out == (
        "ITEM                                                 CONTRACT  ENVIRONMENTS  ROLES\n"
        "contracts/small/capture.yaml::slots[sglang-9]        capture   sglang-9      serve\n"
        "contracts/small/capture.yaml::slots[mine]            capture   mine          train, serve\n"
        "contracts/small/capture.yaml::catches-shifted[mine]  capture   mine          train, serve\n"
    )


def test_explain_says_where_every_value_is_from(project: Path, capsys: Captured) -> None:
    """The ids come from the environment, the taps from the claim, and both readings of the taps are shown."""
    assert main(["explain", "capture", "--environment", "mine"]) == 0
    assert capsys.readouterr().out == (
        "contracts/small/capture.yaml\n"
        "  why           Ids are counted in two ways.            contracts/small/capture.yaml:2\n"
        "  between       serving config -> target forward        contracts/small/capture.yaml:3\n"
        "  run           sglang.capture (engine: sglang)         contracts/small/capture.yaml:4\n"
        "  in            serve                                   contracts/small/capture.yaml:5\n"
        "  target        target.config.json                      contracts/small/pipeline.yaml:2\n"
        "  draft         none named                              default\n"
        "  twin          LlamaForCausalLM, 10 layers, 43 tokens  made of the two configs\n"
        "                width 64, random weights\n"
        "  trained.taps  {hidden_states: [3, 5, 9]}              contracts/small/pipeline.yaml:3\n"
        "                hidden_states: [3, 5, 9] = layer_outputs: [2, 4, 8]\n"
        "\n"
        "in mine (contracts/small/pipeline.yaml:6)\n"
        "  role                train, serve                 contracts/small/pipeline.yaml:6\n"
        "  engine              none named                   default\n"
        "  interpreter         unavailable(environment)\n"
        "                      /no/such/python, named at contracts/small/pipeline.yaml:6, does not exist.\n"
        "                      Correct the path there.\n"
        "  layer_ids           [3, 5, 9]                    contracts/small/pipeline.yaml:6\n"
        "                      by $draft.layer_ids at contracts/small/capture.yaml:6\n"
        "  expect slots        {hidden_states: [3, 5, 9]}   contracts/small/pipeline.yaml:3\n"
        "                      by $trained.taps at contracts/small/capture.yaml:8\n"
        "                      h[3], h[5], h[9]\n"
        "                      hidden_states: [3, 5, 9] = layer_outputs: [2, 4, 8]\n"
        "  must catch shifted  shift: {with.layer_ids: +1}  contracts/small/capture.yaml:10\n"
        "                      then layer_ids: [4, 6, 10]\n"
        "  items               slots[mine], catches-shifted[mine]\n"
    )


def test_a_known_violation_is_explained(project: Path, capsys: Captured) -> None:
    """What is expected to fail, of which engine, and where to read about it."""
    known = "known_violation: {as: shifted, engine: 'sglang>=9', link: https://example.org/1}\n"
    edit(project, "must_catch:", f"{known}must_catch:")
    assert main(["explain", "capture", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["values"]}
    row = rows["known violation"]
    assert (row["value"], row["position"], row["notes"]) == (
        "shifted of sglang>=9",
        "contracts/small/capture.yaml:9",
        ["https://example.org/1"],
    )


def test_what_an_environment_inherits_stands_where_it_was_written(project: Path, capsys: Captured) -> None:
    """`like` fills in an engine, ids and an overlay: their lines are those of the parent, and its parent's."""
    edit(
        project,
        "  mine: {role: [train, serve]",
        "  child: {role: serve, like: sglang-9, overlay: patch.py}\n  grandchild: {role: serve, like: child}\n"
        "  mine: {role: [train, serve]",
        "pipeline.yaml",
    )
    patch = '"""PARAMS: none."""\nPARAMS = {"layers": [3]}\nEDITS = [\n  {"module": "sglang.x", "versions": ">=9",'
    (project / "contracts" / "small" / "patch.py").write_text(f'{patch} "anchor": "a", "replacement": "b"}}]\n')
    assert main(["explain", "capture", "--environment", "grandchild"]) == 0
    shown = capsys.readouterr().out
    assert (
        "  like          child                       contracts/small/pipeline.yaml:7\n"
        "  role          serve                       contracts/small/pipeline.yaml:7\n"
        "  engine        sglang==9.0                 contracts/small/pipeline.yaml:5\n"
        "  overlay       patch.py                    contracts/small/pipeline.yaml:6\n"
        "                layers: [3] at contracts/small/patch.py:2\n"
        "                edits sglang.x of versions >=9\n"
    ) in shown
    assert "  layer_ids     [2, 4, 8]                   contracts/small/pipeline.yaml:5\n" in shown


@pytest.mark.parametrize(
    "file", sorted(str(path) for path in (ROOT / "contracts").glob("*/*.yaml") if path.stem != "pipeline")
)
def test_every_explained_value_stands_at_the_line_that_is_named(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """For this repository's contracts: the line of a value holds its words, or a note says where a part was written."""
    monkeypatch.chdir(ROOT)
    assert main(["explain", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [*found["values"], *(row for place in found["environments"] for row in place["values"])]
    checked = 0
    for row in rows:
        path, _, line = row["position"].rpartition(":")
        if not line.isdigit() or row["name"] == "must_catch":
            continue
        lines = 1 if path.endswith("pipeline.yaml") else 3
        here = " ".join((ROOT / path).read_text().splitlines()[int(line) - 1 : int(line) - 1 + lines])
        elsewhere = " ".join(note for note in row["notes"] if "is written at" in note)
        words = re.findall(r"\w[\w+.-]*", row["value"].partition(" (engine")[0].partition(" in ")[0])
        assert elsewhere or [word for word in words if word not in here and word != "0.0001"] == [], row
        checked += 1
    assert checked >= 12


def test_explain_shows_an_override_as_its_origin(project: Path, capsys: Captured) -> None:
    """The position of an overridden value is the flag of a run, and controls are left out then."""
    assert main(["explain", "capture", "--environment", "sglang-9", "--set", "draft.layer_ids=[1,2,3]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [place] = found["environments"]
    values = {row["name"]: (row["value"], row["position"]) for row in place["values"]}
    assert values["layer_ids"] == ("[1, 2, 3]", "--contracts-set draft.layer_ids")
    assert place["items"] == ["slots[sglang-9]"]
    values = {row["name"]: (row["value"], row["position"]) for row in found["values"]}
    assert values["must_catch"] == ("not run: a value is overridden", "contracts/small/capture.yaml:10")


def test_explain_says_why_a_value_does_not_resolve(project: Path, capsys: Captured) -> None:
    """No ids anywhere: the sentence of a run, and exit code 1."""
    edit(project, ", set: {draft.layer_ids: [2, 4, 8]}", "", "pipeline.yaml")
    assert main(["explain", "capture", "--environment", "sglang-9"]) == 1
    assert (
        "contracts/small/capture.yaml:6:19: no draft.layer_ids: the pipeline names no draft config; "
        "write set: {draft.layer_ids: [...]} in sglang-9 (contracts/small/pipeline.yaml:5)"
    ) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [["contract"], ["contract", "--json"], []])
def test_schema_prints_what_validate_reads(capsys: Captured, words: list[str]) -> None:
    """An editor can be given the output as it is."""
    assert main(["schema", *words]) == 0
    assert json.loads(capsys.readouterr().out) == schema("contract")


def test_run_passes_pytests_exit_code_on(project: Path) -> None:
    """A run in which every environment is unavailable checks nothing and ends with 1; wrong usage is pytest's 4."""
    assert started(project, "run", "-q", "-p", "no:cacheprovider").returncode == 1
    assert started(project, "run", "--no-such-flag").returncode == 4


@pytest.mark.parametrize("verb", [*sorted(VERBS), "env list", "env sync"])
def test_every_verb_has_help_with_examples_and_exit_codes(capsys: Captured, verb: str) -> None:
    """Help shows how a verb is used and what its exit code means."""
    assert main([*verb.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"examples:\n  eagle-contracts {verb}" in out
    assert "exit codes: " in out


def test_help_lists_every_verb_and_the_exit_codes(capsys: Captured) -> None:
    """Without a word the same is shown, as wrong usage."""
    assert (main(["--help"]), main([])) == (0, 2)
    out = capsys.readouterr().out
    assert [verb for verb in VERBS if f"\n  {verb} " not in out] == []
    assert "  0  done, and nothing is wrong\n  1  something is wrong" in out


def test_the_pages_table_of_exit_codes_is_so(project: Path) -> None:
    """Every row of the table in docs/cli.md that shows a command, typed in the small project."""
    page = (ROOT / "docs" / "cli.md").read_text()
    rows = re.findall(r"^\| `eagle-contracts ([^`]*)` \| (\d) \|", page, re.MULTILINE)
    assert len(rows) >= 12
    assert {words: started(project, *shlex.split(words)).returncode for words, _ in rows} == {
        words: int(code) for words, code in rows
    }
    assert {words.split()[0] for words, _ in rows if not words.startswith("-")} >= set(VERBS) - {"identify"}


def test_the_pages_explanation_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """The documentation's sample is real, but for what each machine has built."""
    monkeypatch.chdir(ROOT)
    assert main(["explain", "kimi_k25/sglang_capture_offset", "--environment", "sglang-0.5.23"]) == 0
    page = (ROOT / "docs" / "cli.md").read_text()
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("  interpreter"))
    end = next(n for n, line in enumerate(lines) if line.startswith("  layer_ids"))
    assert "\n".join(lines[:start]) in page
    assert "\n".join(lines[end:]) in page
