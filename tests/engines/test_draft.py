"""The draft's side on the real engine: both of its classes, and faults in the engine that only the draft shows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle_contracts.verdict import Verdict

from .draft_faults import OVERLAY
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


FAULTS = {
    "swapped_slots": {"first_step": "permuted"},
    "one_row_behind": {"first_step": "unknown_state"},
    "a_row_of_another_request": {"first_step": "wrong_request"},
    "a_row_of_zeros": {"first_step": "other_state"},
    "a_request_behind": {"first_step": "other_state"},
    "slots_swapped_in_a_row": {"first_step": "permuted"},
    "fc_twice": {"first_step": "fc_repeated"},
    "fc_later": {"later_steps": "fc_repeated", "reference": "altered"},
    "same_token": {"pairing": "mispaired"},
    "states_behind": {"first_step": "unknown_state", "pairing": "mispaired"},
    "positions_ahead": {"pairing": "mispaired"},
    "positions_doubled": {"reference": "altered"},
    "positions_stuck": {"pairing": "mispaired"},
    "state_kept": {"later_steps": "other_state", "reference": "altered"},
    "normed_back": {"reference": "altered"},
    "residual_normed": {"reference": "altered"},
    "no_state_norm": {"reference": "altered"},
    "no_embedding_norm": {"reference": "altered"},
    "state_before_embedding": {"reference": "altered"},
    "columns_permuted": {"reference": "altered"},
    "norm_lost": {"reference": "altered"},
    "fc_lost": {"reference": "altered"},
    "own_embedding": {"reference": "altered"},
    "d2t_absolute": {"pairing": "mispaired"},
    "d2t_lost": {"pairing": "mispaired"},
}
"""Each fault of the overlay, and every promise that it breaks."""


@pytest.fixture(scope="module")
def faulty(engines: Engines) -> Path:
    """A pipeline whose engine has whatever fault the draft's config names."""
    draft = json.loads((KIMI / "draft.config.json").read_text())
    return folder(engines.project / "faulty", draft, [2, 4, 6], [2, 4, 6], overlay=OVERLAY)


@pytest.fixture(scope="module")
def with_faults(engines: Engines, faulty: Path) -> dict[str, dict[str, Verdict]]:
    """The verdicts with every fault, and without any."""
    contracts = {}
    for fault in ("none", *FAULTS):
        contract = faulty.with_name(f"{fault}.yaml")
        contract.write_text(faulty.read_text().replace("with: {", f"with: {{config: {{fault: {fault}}}, "))
        contracts[fault] = contract
    session = engines.session()
    cases = {(fault, case.name): case for fault, one in contracts.items() for case in cases_in(one, session)}
    named = [replace(case, name=f"{fault}/{case.name}") for (fault, _), case in cases.items()]
    found = judged_cases(named, session)
    out: dict[str, dict[str, Verdict]] = {fault: {} for fault in contracts}
    for name, verdict in found.items():
        fault, _, promise = name.partition("/")
        out[fault][promise.partition("[")[0]] = verdict
    return out


def test_an_engine_without_a_fault_keeps_every_promise(with_faults: dict[str, dict[str, Verdict]]) -> None:
    """The overlay alone changes nothing."""
    assert wrong(with_faults["none"]) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_the_drafts_side_breaks_the_promise_about_it(
    with_faults: dict[str, dict[str, Verdict]], fault: str
) -> None:
    """Each is caught under its name, and the promises that it does not touch are kept."""
    found = {name: one.diagnosis or one.status for name, one in with_faults[fault].items() if one.status != "passed"}
    assert found == FAULTS[fault], wrong(with_faults[fault])


@pytest.mark.parametrize(
    ("fault", "promise", "words"),
    [
        ("a_row_of_another_request", "first_step", "position 1 of request 0, which holds the states of position "),
        ("slots_swapped_in_a_row", "first_step", "request 0, which holds its slots in the order [1, 0, 2]"),
        ("same_token", "pairing", "mispaired: request 0: the state of position 0 is paired with token "),
        ("positions_ahead", "pairing", "mispaired: request 0: the pairs stand at positions [1, 2, 3"),
        ("positions_stuck", "pairing", "mispaired: request 0: step 3 stands at position 11, not at 12"),
        ("d2t_lost", "pairing", "mispaired: request 0: step 2 reads token "),
        ("normed_back", "reference", "they are those of a step with norm_before_residual: false, norm_output: true"),
        ("residual_normed", "reference", "they are those of a step with norm_before_residual: true, norm_output: fal"),
        ("fc_later", "later_steps", "fc_repeated: step 2 reads 64 values a token and calls fc once, where draft is 64"),
    ],
)
def test_what_is_said_of_a_fault(
    with_faults: dict[str, dict[str, Verdict]], fault: str, promise: str, words: str
) -> None:
    """The step, the request, and what stands there instead."""
    assert words in text(with_faults[fault][promise])


def test_training_is_compared_with_what_fc_reads(
    engines: Engines, faulty: Path, with_faults: dict[str, dict[str, Verdict]]
) -> None:
    """Slots exchanged between the capture and fc: what is captured agrees with training, and what fc reads does not."""
    parity = faulty.with_name("parity.yaml")
    parity.write_text(
        "spec: 1\nwhy: fc reads what is left of a capture.\nbetween: [trainer batch, draft]\nrun: compare\n"
        "with: {from: {train: capture, serve: [capture, none, swapped_slots, normed_back]}}\n"
        "expect: [{same: {slots: $trained.taps}}]\n"
    )
    verdicts = engines.judged(parity)
    assert wrong(with_faults["swapped_slots"]).keys() == {"first_step"}
    assert {name: verdict.diagnosis or verdict.status for name, verdict in verdicts.items()} == {
        f"same[{ENVIRONMENT}]": "passed",
        f"same[{ENVIRONMENT},none]": "passed",
        f"same[{ENVIRONMENT},swapped_slots]": "permuted",
        f"same[{ENVIRONMENT},normed_back]": "passed",
    }
    said = text(verdicts[f"same[{ENVIRONMENT},swapped_slots]"])
    assert said.startswith("permuted: serving against training: training's states are all there, in another order")
    assert f"serve swapped_slots in {ENVIRONMENT}" in said


def test_a_draft_with_all_that_a_llama_draft_can_have(engines: Engines) -> None:
    """Norms before fc, a bias, two layers, fed back after its norm, a scaling of its positions: the plain step too."""
    draft = json.loads((KIMI / "draft.config.json").read_text())
    draft |= {"bias": True, "norm_before_fc": True, "fc_norm": True, "norm_output": True, "num_hidden_layers": 2}
    draft["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    draft["rope_scaling"] |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    assert wrong(judged(engines, folder(engines.project / "rich", draft, [2, 4, 6], [2, 4, 6]))) == {}


@pytest.mark.parametrize("kind", ["LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"])
def test_a_draft_that_is_narrower_than_its_target(engines: Engines, kind: str) -> None:
    """It keeps its own embedding, and is compared with a plain step that does too."""
    own = json.loads((KIMI / "draft.config.json").read_text()) if kind.startswith("Llama") else dict(LATENT)
    draft = {**own, "hidden_size": 2048, "target_hidden_size": 7168}
    contract = folder(engines.project / f"narrow-{kind}", draft, [2, 4, 6], [2, 4, 6])
    assert wrong(judged(engines, contract)) == {}


def test_a_config_as_the_user_has_it(engines: Engines) -> None:
    """Ids at the top of the file, and a key of training that no reader has: neither is put right on the way.

    The capture has its ids where the file has them too, so the engine's default states are recorded.
    """
    draft = json.loads((KIMI / "draft.config.json").read_text())
    draft |= {"eagle_config": {"use_aux_hidden_state": True}, IDS: [2, 4, 6], "norm_before_residual": True}
    contract = folder(engines.project / "as_it_is", draft, [2, 4, 6], [2, 4, 6])
    [capture] = engines.judged(contract.with_name("capture.yaml")).values()
    assert capture.diagnosis == "config_ignored"
    assert "move it inside eagle_config" in text(capture)
    verdicts = judged(engines, contract)
    found = {name: verdict.diagnosis for name, verdict in verdicts.items() if verdict.status != "passed"}
    assert found == {"first_step": "other_state", "config": "config_ignored", "reference": "altered"}
    assert text(verdicts["config"]).startswith(
        f"config_ignored: {IDS} is [2, 4, 6] in the draft's config, and the target side reads no ids and falls back to "
        "its default"
    )
    assert (
        "norm_before_residual is true in the draft's config, and the draft's numbers are those of "
        "norm_before_residual: false: this engine does not go by the key"
    ) in text(verdicts["config"])


def kimi(**changes: Any) -> dict[str, Any]:
    """Kimi's draft with the ids of the eight-layer target, and with changes."""
    draft: dict[str, Any] = json.loads((KIMI / "draft.config.json").read_text())
    draft["eagle_config"][IDS] = [2, 4, 6]
    return {**draft, **changes}


def test_ids_in_the_file_that_are_not_those_of_the_recorded_states(engines: Engines) -> None:
    """The draft is given what was recorded, and serving would hand over what the file names: the first step says so."""
    nested = {"use_aux_hidden_state": True, IDS: [3, 5, 7]}
    contract = folder(engines.project / "moved", kimi(eagle_config=nested), [2, 4, 6], [2, 4, 6])
    contract.write_text(contract.read_text().replace("$draft.layer_ids", "[3, 5, 7]"))
    verdicts = judged(engines, contract)
    assert wrong(verdicts).keys() == {"first_step"}
    said = " ".join(text(verdicts["first_step"]).split())
    assert said.startswith(
        "shifted: by the draft's config the target hands over other states than the contract read by from recorded: "
        "every slot holds the state one layer later than declared (+1)"
    )
    assert "write draft.layer_ids: [2, 4, 6]" in said
    assert "capture recorded these states with them" in said


def test_what_set_hides_of_the_file(engines: Engines) -> None:
    """Ids that are run and that the file has not: a note where it has others, a violation where a key is misspelt."""
    other = folder(engines.project / "other", kimi(eagle_config={IDS: [3, 5, 7]}), [2, 4, 6], [2, 4, 6])
    verdicts = judged(engines, other)
    assert wrong(verdicts) == {}
    [note] = verdicts["config"].facts[-1]["notes"]
    assert note.startswith(f"{ENVIRONMENT} was run with the ids [2, 4, 6] of ")
    assert note.endswith("has [3, 5, 7]: a server that is given that file reads the file")
    near = {"use_aux_hidden_state": True, IDS[:-1]: [2, 4, 6]}
    misspelt = folder(engines.project / "misspelt", kimi(eagle_config=near), [2, 4, 6], [2, 4, 6])
    verdicts = judged(engines, misspelt)
    assert wrong(verdicts).keys() == {"config"}
    assert f"{IDS[:-1]} is a key that no reader has: did you mean {IDS}?" in " ".join(text(verdicts["config"]).split())


def test_a_refusal_names_the_line_and_is_told_once(engines: Engines) -> None:
    """Whole in the item that is judged first, in one line in the others."""
    draft = kimi(hidden_act="gelu_new_one")
    verdicts = judged(engines, folder(engines.project / "refused", draft, [2, 4, 6], [2, 4, 6]))
    said = {name: " ".join(one.split()) for name, one in wrong(verdicts).items()}
    [whole] = [name for name, one in said.items() if "Unsupported activation: gelu_new_one" in one]
    assert "the draft's config has that at " in said[whole]
    assert '"hidden_act": "gelu_new_one"' in said[whole]
    brief = (
        "engine_refused: the engine raised ValueError at building the target and the draft, as told whole at "
        f"{whole}[{ENVIRONMENT}]"
    )
    assert [one for name, one in said.items() if name != whole] == [brief] * 5


def test_a_draft_without_ids_by_default(engines: Engines) -> None:
    """As many published drafts are: the engine takes layers of its own, and these are held against the claim."""
    draft = kimi(eagle_config={"use_aux_hidden_state": True})
    contract = folder(engines.project / "default", draft, [2, 4, 5], [2, 4, 5])
    pipeline = contract.with_name("pipeline.yaml")
    pipeline.write_text(pipeline.read_text().replace("draft.layer_ids: [2, 4, 5]", "draft.layer_ids: default"))
    [capture] = engines.judged(contract.with_name("capture.yaml")).values()
    assert capture.status == "passed", text(capture)
    assert wrong(judged(engines, contract)) == {}
    pipeline.write_text(pipeline.read_text().replace("hidden_states: [2, 4, 5]", "hidden_states: [2, 4, 6]"))
    [other] = engines.judged(contract.with_name("capture.yaml")).values()
    assert other.diagnosis == "other_state"
    assert "write draft.layer_ids: [2, 4, 6]" in " ".join(text(other).split())


def test_a_draft_that_stops_the_targets_own_reader(engines: Engines) -> None:
    """The engine reads the draft's config for its target too: what it does not like is not the target's."""
    draft = folder(engines.project / "stops", kimi(model_type="kimi_none"), [2, 4, 6], [2, 4, 6])
    verdicts = engines.judged(draft.with_name("capture.yaml"))
    [verdict] = verdicts.values()
    said = " ".join(text(verdict).split())
    assert said.startswith("error(engine): sglang cannot run this draft's config here, whatever the parameters: it ra")
    assert re.search(r'the draft\'s config has that at \S+draft\.config\.json:1:\d+: "model_type": "kimi_none"', said)
    assert "pip install" not in said


def test_an_id_that_stands_twice(engines: Engines) -> None:
    """It is not called no layer: it is one, and an engine captures it once."""
    capture = folder(engines.project / "twice", kimi(), [2, 4, 6], [2, 4, 4]).with_name("capture.yaml")
    [verdict] = engines.judged(capture).values()
    assert "likely cause: 4 stands twice. An engine captures a layer once: it accepts [2, 4]." in text(verdict)
