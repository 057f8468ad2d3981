"""A second pipeline, written from the documentation: a Llama target, four slots, from the dump to the comparison."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from eagle_contracts.conclude import conclude
from eagle_contracts.facts import Fact
from eagle_contracts.project import home_folder
from eagle_contracts.verdict import Verdict

from . import targets
from .stories import ROOT, Engines, cases_in, judged_cases

CONTRACTS = ("dump", "dump_by_script", "sample", "batch", "capture", "parity")


@pytest.fixture(scope="module")
def judged(engines: Engines) -> Mapping[str, Mapping[str, Verdict]]:
    """The verdicts of every contract of the pipeline, by its name."""
    folder = engines.project / "llama"
    shutil.copytree(Path(__file__).with_name("llama"), folder)
    (folder / "target.config.json").write_text(json.dumps(targets.LLAMA))
    session = engines.session()
    cases = {name: cases_in(folder / f"{name}.yaml", session) for name in CONTRACTS}
    session.start([case for found in cases.values() for case in found])
    before = _installed()
    verdicts = {name: judged_cases(found, session) for name, found in cases.items()}
    assert _installed() == before
    return verdicts


def _installed() -> str:
    file = home_folder(ROOT) / "env" / "sglang-0.5.9" / "site" / "sglang" / "srt" / "models" / "llama.py"
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_promise_holds_and_every_break_is_caught(name: str, judged: Mapping[str, Mapping[str, Verdict]]) -> None:
    """Four slots, files named by their owner, on an engine class and with a patch that this package does not know."""
    assert {case: (v.status, v.sentence) for case, v in judged[name].items() if v.status != "passed"} == {}


def test_a_script_that_edits_the_installed_engine_is_run_as_it_is(
    judged: Mapping[str, Mapping[str, Verdict]],
) -> None:
    """Its edit reaches the engine, the installed file stays what it was, and its comment is held against its files."""
    verdict = judged["dump_by_script"]["slots[sglang-0.5.9]"]
    (patched,) = [value for name, value, _ in verdict.context if name == "patched"]
    assert patched.startswith("llama/patches/in_place.py (diff ")
    (fact,) = [Fact.from_json(data) for data in verdict.facts]
    assert fact.states == (1, 3, 5, 6)


def test_the_pipeline_is_found_right_as_a_whole(judged: Mapping[str, Mapping[str, Verdict]]) -> None:
    """Training and serving agree with the claim, on files that are called slot_0 to slot_3 and last."""
    facts = [Fact.from_json(data) for verdicts in judged.values() for v in verdicts.values() for data in v.facts]
    (conclusion,) = conclude(facts)
    assert conclusion.outcome == "agreed", conclusion.sentence
