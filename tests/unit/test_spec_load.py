"""The story's pipeline and contracts load; every mistake in one is shown where it stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.load import is_spec_file, kind_of, load_contract, load_pipeline, pipeline_beside
from eagle_contracts.spec.model import Break, Contract, Pipeline, Ref

STORY = Path(__file__).parent / "spec_story"


@pytest.fixture
def story(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORY, tmp_path / "story"))


def pipeline_in(folder: Path) -> Pipeline:
    return load_pipeline(folder / "pipeline.yaml", "pipeline.yaml")


def contract_in(folder: Path, name: str) -> Contract:
    return load_contract(folder / f"{name}.yaml", pipeline_in(folder), f"{name}.yaml")


def test_the_storys_pipeline_loads(story: Path) -> None:
    """Target, draft, claim and environments are what the file says."""
    pipeline = pipeline_in(story)
    assert pipeline.folder == story
    assert pipeline.target_config == story / "target.config.json"
    assert pipeline.target_part == "text_config"
    assert pipeline.draft_config == story / "draft.config.json"
    assert {name: value.data for name, value in pipeline.trained.items()} == {
        "taps": {"hidden_states": [3, 31, 59]},
        "final": "final",
    }
    assert pipeline.trained["taps"].at("hidden_states", 1).full == "pipeline.yaml:4:37"
    assert list(pipeline.environments) == ["sglang-0.5.9", "sglang-0.5.9+embed", "sglang-0.5.23", "speculators-0.6.0"]


def test_an_environment_inherits_all_but_the_role(story: Path) -> None:
    """The patched engine is the same engine with the same ids, only serving."""
    patched = pipeline_in(story).environments["sglang-0.5.9+embed"]
    assert patched.roles == ("serve",)
    assert str(patched.engine) == "sglang==0.5.9"
    assert patched.set["draft.layer_ids"].data == [2, 30, 58]
    assert patched.set["draft.layer_ids"].position.line == 6
    assert patched.overlay is not None and patched.overlay.data == "patches/capture_embedding.py"
    assert patched.like == "sglang-0.5.9"
    assert patched.position.full == "pipeline.yaml:7:3"


def test_roles_and_names_select_environments(story: Path) -> None:
    """`in:` takes either."""
    pipeline = pipeline_in(story)
    assert [each.name for each in pipeline.environments_of("serve")] == [
        "sglang-0.5.9",
        "sglang-0.5.9+embed",
        "sglang-0.5.23",
    ]
    assert [each.name for each in pipeline.environments_of("sglang-0.5.23")] == ["sglang-0.5.23"]
    assert pipeline.environments_of("nobody") == ()


def test_inheritance_goes_through_chains_in_any_order(story: Path) -> None:
    """A child may stand before its parent; its own `set` is merged key by key, its own interpreter replaces the lot."""
    (story / "pipeline.yaml").write_text(
        "spec: 1\ntarget: {config: target.config.json}\ntrained: {taps: {hidden_states: [3]}}\nenvironments:\n"
        "  c: {role: serve, like: b, set: {draft.layer_ids: [9]}, command: [ssh, box, python3]}\n"
        "  b: {role: train, like: a, set: {trained.final: final_normed}}\n"
        "  a: {role: trainer, engine: sglang, python: /opt/python, set: {trained.taps: {layer_outputs: [2]}}}\n"
    )
    environments = pipeline_in(story).environments
    assert list(environments) == ["c", "b", "a"]
    assert {key: value.data for key, value in environments["c"].set.items()} == {
        "trained.taps": {"layer_outputs": [2]},
        "trained.final": "final_normed",
        "draft.layer_ids": [9],
    }
    assert (environments["b"].python, environments["b"].command) == ("/opt/python", None)
    assert (environments["c"].python, environments["c"].command) == (None, ("ssh", "box", "python3"))


def test_the_storys_capture_contract_loads(story: Path) -> None:
    """Everything a plan needs, with references still unresolved."""
    contract = contract_in(story, "sglang_capture_offset")
    assert contract.name == "sglang_capture_offset"
    assert contract.between == ("serving config", "target forward")
    assert (contract.run, contract.run_position.line) == ("sglang.capture", 4)
    assert (contract.in_, contract.in_position.full) == (("serve",), "sglang_capture_offset.yaml:5:5")
    ids = contract.with_["layer_ids"]
    assert ids.data == Ref(name="draft.layer_ids", position=ids.position)
    assert [(each.kind, str(each.value.data)) for each in contract.expect] == [("slots", "$trained.taps")]
    assert contract.expect[0].position.full == "sglang_capture_offset.yaml:8:5"


def test_the_storys_negative_controls_load(story: Path) -> None:
    """A relative break runs wherever the contract does, an absolute one where it says."""
    controls = contract_in(story, "sglang_capture_offset").must_catch
    assert [(each.text, each.in_, each.diagnosis) for each in controls] == [
        ("shift: {with.layer_ids: +1}", None, "shifted"),
        ("with.layer_ids: [-1, 2, 30]", ("sglang-0.5.9+embed",), "embedding_in_slot"),
        ("with.layer_ids: [-1, 2, 30]", ("sglang-0.5.9", "sglang-0.5.23"), "engine_refused"),
    ]
    assert controls[0].break_ == Break(
        verb="shift", edits=(("with.layer_ids", 1),), position=controls[0].break_.position
    )
    assert controls[1].break_.verb == "set"
    assert controls[1].break_.edits == (("with.layer_ids", [-1, 2, 30]),)
    assert controls[2].position.full == "sglang_capture_offset.yaml:12:5"


def test_the_storys_other_contracts_load(story: Path) -> None:
    """References inside maps, several promises, swaps and settings of overlays."""
    dump = contract_in(story, "dump_patch_layers")
    assert [each.kind for each in dump.expect] == ["slots", "rows"]
    assert str(dump.expect[0].value.child("final").data) == "$trained.final"
    assert [each.break_.edits for each in dump.must_catch] == [
        (("overlay.layers", [2, 30, 58]),),
        (("overlay.save", "hidden_without_residual"),),
    ]
    order = contract_in(story, "extraction_ordering")
    assert order.with_["from"].data == {"dump": "dump_patch_layers"}
    assert order.must_catch[0].break_.edits == (("swap", ("aux_0", "aux_1")),)
    assert order.must_catch[0].text == "swap: [aux_0, aux_1]"


def test_a_dropped_input_is_a_break(story: Path) -> None:
    """The third verb, with marks and without optional keys."""
    path = story / "small.yaml"
    path.write_text(
        "spec: 1\nwhy: yes\nbetween: [a, b]\nrun: python\nin: [serve, speculators-0.6.0]\nexpect: [{finite: }]\n"
        "must_catch: [{break: {drop: aux_0}, as: missing_slot}]\nmarks: [slow]\n"
    )
    contract = contract_in(story, "small")
    assert contract.why == "yes"
    assert contract.in_ == ("serve", "speculators-0.6.0")
    assert contract.with_ == {}
    assert contract.expect[0].value.data is None
    assert contract.must_catch[0].break_.edits == (("drop", "aux_0"),)
    assert contract.marks == ("slow",)


def test_files_are_told_apart_by_their_names(story: Path) -> None:
    """pipeline.yaml is the pipeline, every other YAML file a contract."""
    assert is_spec_file(Path("a.yaml")) and is_spec_file(Path("a.yml")) and not is_spec_file(Path("a.json"))
    assert kind_of(story / "pipeline.yaml") == "pipeline"
    assert kind_of(story / "dump_patch_layers.yaml") == "contract"
    assert pipeline_beside(story / "dump_patch_layers.yaml") == story / "pipeline.yaml"


def test_a_contract_without_a_pipeline_says_what_to_write(story: Path) -> None:
    """So does one with two."""
    shutil.copy(story / "pipeline.yaml", story / "pipeline.yml")
    with pytest.raises(SpecError) as caught:
        kind_of(story / "a.yaml", "c/a.yaml")
    assert str(caught.value) == ("c/a.yaml:1:1: has both pipeline.yaml and pipeline.yml beside it\n  keep one of them")
    (story / "pipeline.yaml").unlink()
    (story / "pipeline.yml").unlink()
    with pytest.raises(SpecError) as caught:
        kind_of(story / "a.yaml", "c/a.yaml")
    assert str(caught.value) == "c/a.yaml:1:1: has no pipeline.yaml beside it\n  write c/pipeline.yaml"


def test_the_fixtures_configs_are_what_the_story_says() -> None:
    """The draft's published list is 2, 30, 58."""
    config = json.loads((STORY / "draft.config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 30, 58]
