"""The project that every cell of the matrix runs, and what JUnit is told of its items."""

from __future__ import annotations

import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.plugin import conftest as toy

OTHERS = "  toy-3: {role: trainer, python: PYTHON, engine: toy==1.0}\n  gone-1: {role: trainer, engine: toy==9.0}\n"
ALONE = "in: serve", "in: toy-1"
KNOWN = "in: toy-3\nknown_violation: {as: shifted, engine: toy==1.0, link: https://example.org/1}"
CONTRACTS: Mapping[str, str] = {
    "sglang_capture_offset": toy.CAPTURE,
    "extraction_ordering": toy.STAGE,
    "parity": toy.PARITY.replace("run: toy.parity", "run: toy.parity\nin: toy-1"),
    "violated": toy.CAPTURE.partition("must_catch")[0].replace(*ALONE).replace("offset: 1", "offset: 0"),
    "known": toy.CAPTURE.partition("must_catch")[0].replace("in: serve", KNOWN).replace("offset: 1", "offset: 0"),
    "unproven": toy.CAPTURE.partition("must_catch")[0].replace(*ALONE),
    "uncaught": toy.CAPTURE.partition("must_catch")[0].replace(*ALONE)
    + "must_catch: [{break: {with.offset: 1}, as: shifted}]\n",
    "failing": toy.FAULTY.replace("ACT", "raise"),
    "unavailable": toy.CAPTURE.partition("must_catch")[0].replace("in: serve", "in: gone-1"),
    "mistaken": toy.CAPTURE.replace("why:", "wy:"),
}
MAIN = toy.MAIN
_WHERE = re.compile(r'^failed on setup with "')

UNPROVEN = "unproven::slots[toy-1]"
NO_PROOF = "unproven is unproven: it has no must_catch, so nothing shows that it can fail"
PASSED = (
    "extraction_ordering::catches-permuted[toy-1]",
    "extraction_ordering::catches-permuted[toy-2]",
    "extraction_ordering::slots[toy-1]",
    "extraction_ordering::slots[toy-2]",
    "parity::catches-permuted[toy-1]",
    "parity::same[toy-1]",
    "sglang_capture_offset::catches-embedding_in_slot[toy-1]",
    "sglang_capture_offset::catches-shifted-2[toy-1]",
    "sglang_capture_offset::catches-shifted[toy-1]",
    "sglang_capture_offset::catches-shifted[toy-2]",
    "sglang_capture_offset::slots[toy-1]",
    "sglang_capture_offset::slots[toy-2]",
    "uncaught::slots[toy-1]",
    UNPROVEN,
)
STOPPED: Mapping[str, tuple[str, str]] = {
    "failing::slots[toy-1]": (
        "error",
        "error(exception): running the subject gave no result: RuntimeError: the toy was told to raise",
    ),
    "known::slots[toy-3]": (
        "skipped",
        "known violation shifted of toy==1.0 (https://example.org/1), declared at contracts/toy/known.yaml:6",
    ),
    "mistaken::specification": ("error", "contracts/toy/mistaken.yaml:1:1: 'why' is missing"),
    "unavailable::slots[gone-1]": (
        "skipped",
        "unavailable(environment): The environment 'gone-1' (contracts/toy/pipeline.yaml:9) has no interpreter",
    ),
    "uncaught::catches-shifted[toy-1]": (
        "failure",
        "not_caught: the break at contracts/toy/uncaught.yaml:9 (with.offset: 1) was not caught",
    ),
    "violated::slots[toy-1]": ("failure", "shifted: every slot holds the state one layer earlier than declared (-1)"),
}
EXPECTED = {**dict.fromkeys(PASSED, ("passed", "")), **STOPPED}
"""What must come of every item: its outcome, and how its message begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What JUnit was told of one item: its outcome, its message, and its text without the engine's own last lines.

    Those hold a trace, which Python's versions write differently.
    """

    outcome: str
    first: str
    text: str


def write(root: Path, python: Path) -> dict[str, str]:
    """Write the project, whose environments are this interpreter; return what is to be set for its pytest."""
    files = {
        "pytest.ini": "[pytest]\n",
        f"{toy.INSTALLED}/METADATA": "Metadata-Version: 2.1\nName: toy-engine\nVersion: 1.0\n",
        ".site/toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n",
        f"{toy.INSTALLED}/entry_points.txt": toy.ENTRY_POINTS,
        f"{toy.FOLDER}/target.config.json": toy.TARGET,
        f"{toy.FOLDER}/draft.config.json": toy.DRAFT,
        f"{toy.FOLDER}/pipeline.yaml": (toy.PIPELINE + OTHERS.replace("PYTHON", sys.executable)).replace(
            sys.executable, str(python)
        ),
        toy.STAGE_FILE: toy.KEEP,
        **{f"{toy.FOLDER}/{name}.yaml": text for name, text in CONTRACTS.items()},
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(toy.TOY), str((root / toy.INSTALLED).parent)])}


def add(root: Path, act: str) -> str:
    """Add a contract whose engine does what the act says; return its file's name."""
    name = f"{toy.FOLDER}/{act}.yaml"
    (root / name).write_text(toy.FAULTY.replace("ACT", act), encoding="utf-8")
    return name


def items(junit: Path) -> dict[str, Item]:
    """Return what JUnit was told, by `contract::item`; the project's own folder, where the file lies, is left out."""
    out = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        contract = str(case.get("classname")).removesuffix(".yaml").rpartition(".")[2]
        name = f"{contract}::{case.get('name')}"
        told = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = ",".join(child.tag for child in told) or "passed"
        lines = [
            line
            for child in told
            for line in (child.text or "").replace(f"{junit.parent}/", "").splitlines()
            if not line.startswith("  | ")
        ]
        first = _WHERE.sub("", str(told[0].get("message")) if told else "")
        out[name] = Item(outcome=outcome, first=first, text="\n".join(lines).strip())
    return out
