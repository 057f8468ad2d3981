"""The draft's side on the real engine: both of its classes, and faults in the engine that only the draft shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.verdict import Verdict

from .stories import ROOT, Engines, cases_in, judged_cases, text

KIMI = ROOT / "contracts" / "kimi_k25"
ENVIRONMENT = "sglang-0.5.23"
IDS = "eagle_aux_hidden_state_layer_ids"
PROMISES = """\
expect:
  - first_step: {reads: slots x target, fc: once, slots: $trained.taps}
  - later_steps: {reads: draft, fc: never}
  - fc_in: slots x target
  - pairing: next_token
  - config: as_written
  - reference: {within: 1.0e-4}
"""
HEAD = f"""\
spec: 1
why: A width test stands in for the first step.
between: [target forward in serving, draft]
run: sglang.draft
in: {ENVIRONMENT}
with: {{layer_ids: $draft.layer_ids, from: {{states: capture}}}}
"""
LATENT = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 50000.0,
    "rope_scaling": None,
    "max_position_embeddings": 262144,
    "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "vocab_size": 163840,
    "draft_vocab_size": 163840,
}
"""A draft of Kimi's own kind, as published ones are laid out."""
FAULTS = """\
EDITS = [
    {
        "module": "sglang.srt.speculative.eagle_worker_v2",
        "versions": "==0.5.23",
        "anchor": "                    torch.cat((input_ids[1:], tail_tokens[i].reshape(1)))\\n",
        "replacement": "                    torch.cat((input_ids[:-1], tail_tokens[i].reshape(1)))\\n",
    },
]
"""


def folder(
    place: Path, draft: Mapping[str, Any], taps: list[int], ids: list[int], controls: str = "", overlay: str = ""
) -> Path:
    """Write a pipeline over an eight-layer Kimi target with a capture and a draft contract; return the latter."""
    place.mkdir(parents=True)
    target = json.loads((KIMI / "target.config.json").read_text())
    target["text_config"]["num_hidden_layers"] = 8
    (place / "target.config.json").write_text(json.dumps(target))
    (place / "draft.config.json").write_text(json.dumps(draft))
    patched = ""
    if overlay:
        (place / "overlay.py").write_text(overlay)
        patched = ", overlay: overlay.py"
    lines = [
        "spec: 1",
        "target: {config: target.config.json, part: text_config}",
        "draft: {config: draft.config.json}",
        f"trained: {{taps: {{hidden_states: {taps}}}}}",
        "environments:",
        f"  {ENVIRONMENT}: {{role: serve, engine: sglang==0.5.23, set: {{draft.layer_ids: {ids}}}{patched}}}",
    ]
    (place / "pipeline.yaml").write_text("\n".join(lines) + "\n")
    capture = HEAD.replace("sglang.draft", "sglang.capture").replace(", from: {states: capture}", "")
    (place / "capture.yaml").write_text(f"{capture}expect: [{{slots: $trained.taps}}]\n")
    contract = place / "draft.yaml"
    contract.write_text(HEAD + PROMISES + controls)
    return contract


def judged(engines: Engines, contract: Path) -> dict[str, Verdict]:
    session = engines.session()
    found = judged_cases(cases_in(contract, session), session)
    return {name.partition("[")[0]: verdict for name, verdict in found.items()}


def wrong(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    return {name: text(verdict) for name, verdict in verdicts.items() if verdict.status != "passed"}


def test_the_draft_of_kimis_own_kind(engines: Engines) -> None:
    """Latent attention too: every promise holds, and its reader of the count ignores what the other class reads."""
    controls = (
        "must_catch:\n"
        "  - {break: {with.config: {num_aux_hidden_states: 4}}, as: config_ignored}\n"
        "  - {break: {swap: [slot_1, slot_2]}, as: permuted}\n"
        "  - {break: {with.slots: [0]}, as: fc_skipped}\n"
        "  - {break: {drop: slot_0}, as: missing_slot}\n"
        "  - {break: {with.layer_ids: [2, 4]}, as: engine_refused}\n"
    )
    contract = folder(engines.project / "latent", LATENT, [2, 4, 6], [2, 4, 6], controls)
    verdicts = judged(engines, contract)
    assert wrong(verdicts) == {}
    assert len(verdicts) == 11


def test_two_states_and_a_key_that_nobody_reads(engines: Engines) -> None:
    """A pipeline of two slots: without ids in their place, the default of three meets a checkpoint of two."""
    draft = json.loads((KIMI / "draft.config.json").read_text())
    draft["eagle_config"][IDS] = [2, 5]
    draft["norm_output"] = True
    controls = (
        "must_catch:\n"
        f"  - {{break: {{with.config: {{eagle_config: {{{IDS}: null}}, {IDS}: [2, 5]}}}}, as: engine_refused}}\n"
        "  - {break: {with.config: {eagle_config: {num_aux_hidden_states: 3}}}, as: config_ignored}\n"
    )
    contract = folder(engines.project / "two", draft, [2, 5], [2, 5], controls)
    verdicts = judged(engines, contract)
    assert wrong(verdicts) == {}
    assert len(verdicts) == 8


@pytest.fixture(scope="module")
def unshifted(engines: Engines) -> dict[str, Verdict]:
    """A draft side that pairs the state of position p with the token at p: nothing crashes, nothing is narrow."""
    draft = json.loads((KIMI / "draft.config.json").read_text())
    return judged(engines, folder(engines.project / "unshifted", draft, [2, 4, 6], [2, 4, 6], overlay=FAULTS))


def test_a_state_beside_its_own_token(unshifted: dict[str, Verdict]) -> None:
    """The pairing names the position, and the plain reference sees other numbers; widths and states are as promised."""
    found = {name: verdict.diagnosis for name, verdict in unshifted.items() if verdict.status != "passed"}
    assert found == {"pairing": "mispaired", "reference": "altered"}
    assert text(unshifted["pairing"]).startswith("mispaired: request 0: the state of position 0 is paired with token ")
