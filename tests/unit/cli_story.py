"""A small project for stories of the command, and what a person sees of a verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """\
spec: 1
target: {config: target.config.json}
trained: {taps: {hidden_states: [3, 5, 9]}}
environments:
  sglang-9: {role: serve, engine: sglang==9.0, set: {draft.layer_ids: [2, 4, 8]}}
  mine: {role: [train, serve], python: /no/such/python, set: {draft.layer_ids: [3, 5, 9]}}
"""
TARGET = """\
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 10,
 "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100}
"""
CAPTURE = """\
spec: 1
why: Ids are counted in two ways.
between: [serving config, target forward]
run: sglang.capture
in: serve
with: {layer_ids: $draft.layer_ids}
expect:
  - slots: $trained.taps
must_catch:
  - {break: {shift: {with.layer_ids: +1}}, in: mine, as: shifted}
"""


def write_project(folder: Path) -> Path:
    """Write a project with one pipeline and one contract; return its pipeline's folder."""
    there = folder / "contracts" / "small"
    there.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in {"pipeline.yaml": PIPELINE, "target.config.json": TARGET, "capture.yaml": CAPTURE}.items():
        (there / name).write_text(text)
    return there


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "eagle_contracts.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
