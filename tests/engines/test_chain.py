"""The chain broken in every way: each break is told at the boundary where it enters, and the run names that side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from eagle_contracts.conclude import Conclusion, conclude
from eagle_contracts.engines import Unrunnable
from eagle_contracts.facts import Fact
from eagle_contracts.judge import judge
from eagle_contracts.plan import Case
from eagle_contracts.session import Session
from eagle_contracts.spec.model import Value
from eagle_contracts.spec.position import Position

from .stories import ROOT, Engines, cases_in, judged_cases

DUMP, EXTRACT, CONCAT, PARITY = CHAIN = (
    "dump_patch_layers",
    "extraction_ordering",
    "standardize_concat",
    "train_serve_parity",
)
GREEN, LOST = "green", "unavailable(upstream)"
Told = Mapping[str, str]


@pytest.fixture(scope="module")
def chain(engines: Engines) -> Path:
    """A copy of `contracts/kimi_k25` with eight layers, whose patch and stages have a switch for every fault."""
    folder = engines.project / "chain"
    shutil.copytree(Path(__file__).with_name("chain"), folder)
    kimi = ROOT / "contracts" / "kimi_k25"
    config = json.loads((kimi / "target.config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 8
    (folder / "target.config.json").write_text(json.dumps(config))
    shutil.copy(kimi / "draft.config.json", folder)
    patch = folder / "patches" / "dump.py"
    patch.write_text(patch.read_text().replace("STALE", str(engines.project / "stale")))
    return folder


@pytest.fixture(scope="module")
def session(engines: Engines, chain: Path) -> Session:
    """One run over the chain, with the files of an engine that counted layers from zero lying about."""
    session = engines.session()
    earlier = next(case for case in cases_in(chain / f"{DUMP}.yaml", session) if case.is_control)
    shutil.copytree(session.observe(earlier).folder / "files" / "base", engines.project / "stale")
    return session


@pytest.fixture(scope="module")
def cases(chain: Path, session: Session) -> Mapping[str, list[Case]]:
    """The cases of every contract of the chain."""
    return {name: cases_in(chain / f"{name}.yaml", session) for name in CHAIN}


def test_every_break_is_caught_where_it_enters(cases: Mapping[str, list[Case]], session: Session) -> None:
    """As negative controls: each gets its own diagnosis from its own contract, and the unbroken chain is green."""
    verdicts = {name: judged_cases(found, session) for name, found in cases.items()}
    assert {name: len(judged) for name, judged in verdicts.items()} == {DUMP: 14, EXTRACT: 6, CONCAT: 6, PARITY: 2}
    wrong = [v.sentence for judged in verdicts.values() for v in judged.values() if v.status != "passed"]
    assert wrong == []


BROKEN_DUMPS = {
    "overlay.layers: [1, 3, 6]": ("shifted", "shifted"),
    "overlay.fault: without_residual": ("missing_residual", "other_state"),
    "overlay.fault: final_after_norm": ("normed", GREEN),
    "overlay.fault: aux_after_input_norm": ("normed", "other_state"),
    "overlay.fault: one_buffer": ("duplicated", "other_state"),
    "overlay.fault: next_request": ("wrong_request", "other_state"),
    "overlay.fault: request_of_equal_length": ("wrong_request", "other_state"),
    "overlay.fault: stale": ("shifted", "shifted"),
    "overlay.fault: bfloat16": ("wrong_dtype", GREEN),
    "overlay.fault: last_chunk_only": ("missing_tokens", "other_state"),
    "overlay.fault: cached_prefix": ("missing_tokens", "other_state"),
}
"""By break of the patch: what the dump's contract says, and what the comparison with serving says in the end."""


@pytest.mark.parametrize("broken", BROKEN_DUMPS)
def test_a_broken_dump_is_not_blamed_on_the_stages(
    broken: str, cases: Mapping[str, list[Case]], session: Session
) -> None:
    """Extraction and concatenation stay green on whatever files they are given; only both ends can differ."""
    dump, parity = BROKEN_DUMPS[broken]
    assert told(DUMP, broken, cases, session) == {DUMP: dump, EXTRACT: GREEN, CONCAT: GREEN, PARITY: parity}


def test_a_file_that_ends_early_leaves_the_rest_without_a_verdict(
    cases: Mapping[str, list[Case]], session: Session
) -> None:
    """The dump's contract names the file, the stage that reads it cannot run, and nothing is said after it."""
    assert told(DUMP, "overlay.fault: half_a_file", cases, session) == {
        DUMP: "unreadable",
        EXTRACT: "error(stage)",
        CONCAT: LOST,
        PARITY: LOST,
    }


BROKEN_STAGES = {
    "swapped": ("permuted", "permuted"),
    "by_arrival": ("wrong_request", GREEN),
    "by_length": ("wrong_request", "altered"),
    "in_bfloat16": ("wrong_dtype", GREEN),
}


@pytest.mark.parametrize("function", BROKEN_STAGES)
def test_a_broken_extraction_is_not_blamed_on_the_trainer(
    function: str, cases: Mapping[str, list[Case]], session: Session
) -> None:
    """The dump before it and the concatenation after it stay green."""
    extraction, parity = BROKEN_STAGES[function]
    broken = f"with.call: stages/faulty.py::{function}"
    assert told(EXTRACT, broken, cases, session) == {DUMP: GREEN, EXTRACT: extraction, CONCAT: GREEN, PARITY: parity}


BROKEN_CONCATS = {
    "with_the_last": ("wrong_width", "missing_slot"),
    "along_tokens": ("wrong_width", "other_state"),
    "swapped": ("permuted", "permuted"),
}


@pytest.mark.parametrize("function", BROKEN_CONCATS)
def test_a_broken_concatenation_is_told_there(function: str, cases: Mapping[str, list[Case]], session: Session) -> None:
    """A user's own concatenation, with what stands before it green."""
    concat, parity = BROKEN_CONCATS[function]
    broken = f"with.call: stages/concat.py::{function}"
    assert told(CONCAT, broken, cases, session) == {DUMP: GREEN, EXTRACT: GREEN, CONCAT: concat, PARITY: parity}


def told(contract: str, broken: str, cases: Mapping[str, list[Case]], session: Session) -> Told:
    """Return what every contract of the chain says when one of them is broken and the others read what it made."""
    return {name: _said(with_break(cases[name][0], contract, broken, cases), session) for name in CHAIN}


def with_break(case: Case, contract: str, broken: str, cases: Mapping[str, list[Case]]) -> Case:
    """Return a case that reads, however far before it, a contract with one of its own breaks."""
    (control,) = [c.control for c in cases[contract] if c.control is not None and c.control.text == broken]
    producers = {name: with_break(producer, contract, broken, cases) for name, producer in case.producers.items()}
    own = control if case.contract.name == contract else None
    return replace(case, producers=producers, control=own, expectations=case.contract.expect)


def _said(case: Case, session: Session) -> str:
    """Return all diagnoses that a case gives, or why it gives none."""
    try:
        mismatches = session.mismatches(case, session.observe(case))
    except Unrunnable as stopped:
        return f"{stopped.status}({stopped.reason})"
    return ", ".join(sorted({mismatch.diagnosis or "inconclusive" for mismatch in mismatches})) or GREEN


def concluded(case: Case, session: Session) -> Conclusion:
    """Return what a run concludes from a comparison and all that it reads."""
    facts = [Fact.from_json(fact) for fact in judge(case, session).facts]
    (conclusion,) = conclude(facts)
    return conclusion


CONCLUSIONS = {
    (DUMP, "overlay.layers: [1, 3, 6]"): (
        "dump",
        "the dump is wrong: chain/patches/dump.py (chain/dump_patch_layers.yaml:6) writes h[1], h[3], h[6]",
    ),
    (EXTRACT, "with.call: stages/faulty.py::swapped"): (
        "extraction",
        "the extraction order is wrong: chain/stages/faulty.py (chain/extraction_ordering.yaml:11) puts [aux_1, aux_0, "
        "aux_2, final]",
    ),
    (CONCAT, "with.call: stages/concat.py::swapped"): (
        "concat",
        "the concatenation is wrong: chain/stages/concat.py (chain/standardize_concat.yaml:14) joins [aux_1, aux_0, "
        "aux_2]",
    ),
}


@pytest.mark.parametrize(("contract", "broken"), CONCLUSIONS)
def test_the_side_that_is_wrong_is_named(
    contract: str, broken: str, cases: Mapping[str, list[Case]], session: Session
) -> None:
    """One sentence with the file that was run and the line that names it."""
    outcome, sentence = CONCLUSIONS[contract, broken]
    conclusion = concluded(with_break(cases[PARITY][0], contract, broken, cases), session)
    assert conclusion.outcome == outcome, conclusion.sentence
    assert conclusion.sentence.startswith(sentence)


@pytest.fixture
def project(engines: Engines, chain: Path) -> Iterator[Path]:
    """The project of these tests as pytest's own rootdir, so that a run of pytest reads the same store."""
    (engines.project / "pytest.ini").write_text("[pytest]\n")
    before = (chain / "pipeline.yaml").read_text()
    yield engines.project
    (chain / "pipeline.yaml").write_text(before)


def conclusion_of_a_run(project: Path, *arguments: str) -> str:
    """Run pytest over the chain and return the sentences that it ends with, on one line."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--contracts", "chain", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    _, found, after = done.stdout.partition("chain/pipeline.yaml: ")
    assert found, done.stdout + done.stderr
    return " ".join(after.partition("\n=====")[0].split())


def test_a_relabelled_claim_is_what_is_wrong(project: Path, session: Session) -> None:
    """Both sides agree on other states than someone wrote down: the line is named, and neither side is to change."""
    file = project / "chain" / "pipeline.yaml"
    file.write_text(file.read_text().replace("[2, 4, 7]", "[0, 2, 4]"))
    sentence = conclusion_of_a_run(project, "-k", "same")
    assert sentence.startswith(
        "the declaration at chain/pipeline.yaml:4 is wrong: training and serving both give the draft h[2], h[4], "
        "h[7], not h[0], h[2], h[4]."
    )
    assert "change neither side" in sentence


def test_serving_is_what_is_wrong(engines: Engines, chain: Path) -> None:
    """Training gave what is claimed and serving does not: its line is named, and training is left alone."""
    session = engines.session("draft.layer_ids=[0,2,5]")
    conclusion = concluded(cases_in(chain / f"{PARITY}.yaml", session)[0], session)
    assert conclusion.sentence.startswith(
        "serving is wrong: sglang-0.5.9 gives h[1], h[3], h[6] (--contracts-set draft.layer_ids), and training gave "
        "h[2], h[4], h[7], as chain/pipeline.yaml:4 says."
    )
    assert conclusion.sentence.endswith("do not change training")


def advice(case: Case, session: Session) -> tuple[tuple[str, ...], str]:
    """Return what a violated case says to do, and to run then."""
    verdict = judge(case, session)
    assert verdict.status == "violated", verdict.sentence
    assert verdict.remedy is not None
    return verdict.remedy.before, verdict.next_command


def test_a_dump_of_other_states_says_what_to_write_in_the_patch_or_in_the_claim(engines: Engines, chain: Path) -> None:
    """A list that the engine was run with, and the claim that would be right for files that are there already."""
    session = engines.session("trained.taps={hidden_states: [1, 3, 6]}")
    case = next(case for case in cases_in(chain / f"{DUMP}.yaml", session) if case.name.startswith("slots"))
    verdict = judge(case, session)
    assert verdict.remedy is not None
    assert (verdict.remedy.key, verdict.remedy.lists) == ("layers", ((1, 3, 6),))
    assert verdict.remedy.where.startswith("chain/patches/dump.py:")
    assert verdict.remedy.before == (
        "A draft trained on these files was trained on h[2], h[4], h[7]. If it was, the patch is right and the claim "
        "is not: give --contracts-set trained.taps={hidden_states: [2, 4, 7]}, or drop that flag.",
    )
    assert all(slot.seen is not None and slot.seen.declared_side for m in verdict.mismatches for slot in m.slots)


def test_a_comparison_says_which_side_departs_from_the_claim(
    engines: Engines, chain: Path, cases: Mapping[str, list[Case]], session: Session
) -> None:
    """And names the contracts of that side, producers first."""
    wrong = with_break(cases[PARITY][0], EXTRACT, "with.call: stages/faulty.py::swapped", cases)
    assert advice(wrong, session) == (
        ("Serving holds what chain/pipeline.yaml:4 claims: training is the side to change.",),
        f"pytest --contracts chain/{DUMP}.yaml chain/{EXTRACT}.yaml chain/{CONCAT}.yaml",
    )
    other = engines.session("draft.layer_ids=[0,2,5]")
    before, command = advice(cases_in(chain / f"{PARITY}.yaml", other)[0], other)
    assert before == ("Training holds what chain/pipeline.yaml:4 claims: serving is the side to change.",)
    assert command == (
        "pytest --contracts chain/sglang_capture_offset.yaml --contracts-set 'draft.layer_ids=[0, 2, 5]'"
    )


def test_a_wrong_order_says_what_to_put_where(chain: Path, cases: Mapping[str, list[Case]], session: Session) -> None:
    """The function, the order that is declared, and where."""
    first = cases[EXTRACT][0]
    broken = replace(
        first, contract=replace(first.contract, with_={**first.contract.with_, "call": SWAPPED}), control=None
    )
    (sentence,), command = advice(broken, session)
    assert sentence.startswith("Let stages/faulty.py::swapped put hidden_states in the order aux_0, aux_1, aux_2, ")
    assert sentence.endswith(", or declare the order that was trained on.")
    assert command == f"pytest --contracts 'chain/{EXTRACT}.yaml::{first.name}'"


SWAPPED = Value(data="stages/faulty.py::swapped", position=Position(path="chain/x.yaml", line=1, column=1))
