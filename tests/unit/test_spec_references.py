"""What a reference stands for, and where that was written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import Contract, Value
from eagle_contracts.spec.overrides import parse_overrides
from eagle_contracts.spec.position import Position
from eagle_contracts.spec.references import Scope, check_ids, lookup, resolve

STORY = Path(__file__).parent / "spec_story"
HERE = Position(path="c.yaml", line=6, column=19)
MakeScope = Callable[..., Scope]


@pytest.fixture
def story(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORY, tmp_path / "story"))


@pytest.fixture
def scope(story: Path) -> MakeScope:
    """Return a maker of scopes for the story, by environment name, overrides and process environment."""

    def make(name: str | None = None, *texts: str, environ: Mapping[str, str] | None = None) -> Scope:
        pipeline = load_pipeline(story / "pipeline.yaml", "pipeline.yaml")
        environment = pipeline.environments[name] if name else None
        return Scope(
            pipeline=pipeline, environment=environment, overrides=parse_overrides(list(texts)), environ=environ or {}
        )

    return make


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def refused(scope: Scope, name: str = "draft.layer_ids") -> str:
    with pytest.raises(SpecError) as caught:
        lookup(name, scope, HERE)
    return caught.value.render()


def contract(story: Path, scope: Scope, name: str) -> Contract:
    return load_contract(story / f"{name}.yaml", scope.pipeline)


def test_ids_come_from_the_environment_first(scope: MakeScope) -> None:
    """Each engine has its own list, and the position says so."""
    value = lookup("draft.layer_ids", scope("sglang-0.5.23"), HERE)
    assert (value.data, value.position.full) == ([3, 31, 59], "pipeline.yaml:8:79")


def test_ids_fall_back_to_the_drafts_config(scope: MakeScope) -> None:
    """An environment that sets nothing reads what the published draft says."""
    value = lookup("draft.layer_ids", scope("speculators-0.6.0"), HERE)
    assert (value.data, str(value.position)) == ([2, 30, 58], "draft.config.json:4")


def test_ids_at_the_configs_top_level_count_too(story: Path, scope: MakeScope) -> None:
    """A null in eagle_config sets nothing."""
    config = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": None}, "eagle_aux_hidden_state_layer_ids": [1, 2]}
    (story / "draft.config.json").write_text(json.dumps(config))
    assert lookup("draft.layer_ids", scope(), HERE).data == [1, 2]


def test_an_override_wins_everywhere(scope: MakeScope) -> None:
    """Over the environment and over the claim, in every pipeline."""
    there = scope("sglang-0.5.9", "draft.layer_ids=[-1,2,30]", "trained.taps={hidden_states: [0,3,31]}")
    ids, taps = lookup("draft.layer_ids", there, HERE), lookup("trained.taps", there, HERE)
    assert (ids.data, str(ids.position)) == ([-1, 2, 30], "--contracts-set draft.layer_ids")
    assert (taps.data, str(taps.position)) == ({"hidden_states": [0, 3, 31]}, "--contracts-set trained.taps")


def test_references_inside_a_map_keep_their_own_positions(story: Path, scope: MakeScope) -> None:
    """The map stands in the contract, its parts in the pipeline."""
    there = scope("sglang-0.5.9")
    value = resolve(contract(story, there, "dump_patch_layers").expect[0].value, there)
    assert value.data == {"aux": {"hidden_states": [3, 31, 59]}, "final": "final"}
    assert value.position.line == 7
    assert value.child("aux").position.full == "pipeline.yaml:4:17"
    assert value.child("aux").at("hidden_states", 2).full == "pipeline.yaml:4:41"
    assert str(value.at("final")) == "pipeline.yaml:4"


def test_a_value_without_references_stays_as_it_is(scope: MakeScope) -> None:
    """Nothing is templated inside text."""
    value = Value(data="x $trained.taps ${HOME}", position=HERE)
    assert resolve(value, scope()) is value


def test_environment_variables_are_text(story: Path, scope: MakeScope) -> None:
    """$env.NAME is the variable as it is, never evaluated."""
    edit(story / "pipeline.yaml", "final: final}", "final: $env.FINAL}")
    assert lookup("trained.final", scope(environ={"FINAL": "[final]"}), HERE).data == "[final]"
    assert refused(scope(), "trained.final") == (
        "pipeline.yaml:4:54: the environment variable FINAL is not set\n"
        "    trained: {taps: {hidden_states: [3, 31, 59]}, final: $env.FINAL}           # the claim; ever\n"
        "                                                         ^\n  set it: export FINAL=..."
    )


def test_environment_variables_are_those_of_the_process(monkeypatch: pytest.MonkeyPatch, scope: MakeScope) -> None:
    """Without an explicit map, os.environ is read."""
    monkeypatch.setenv("EAGLE_TEST_VALUE", "42")
    assert lookup("env.EAGLE_TEST_VALUE", Scope(pipeline=scope().pipeline), HERE).data == "42"


def test_two_lists_in_one_config_are_shown_both(story: Path, scope: MakeScope) -> None:
    """Which one an engine reads depends on the engine."""
    edit(story / "draft.config.json", '"architectures"', '"eagle_aux_hidden_state_layer_ids": [3], "architectures"')
    assert refused(scope()) == (
        "draft.config.json:4:41: eagle_config.eagle_aux_hidden_state_layer_ids is [2, 30, 58], but "
        "eagle_aux_hidden_state_layer_ids at draft.config.json:2 is [3]\n"
        '        "eagle_aux_hidden_state_layer_ids": [2, 30, 58],\n'
        "                                            ^\n  engines read one or the other: keep one"
    )


def test_two_equal_lists_are_one(story: Path, scope: MakeScope) -> None:
    """Saying the same twice is no contradiction."""
    ids = '"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "architectures"'
    edit(story / "draft.config.json", '"architectures"', ids)
    assert lookup("draft.layer_ids", scope(), HERE).data == [2, 30, 58]


def test_a_config_without_ids_says_where_to_write_them(story: Path, scope: MakeScope) -> None:
    """The engine's silent default is not guessed."""
    (story / "draft.config.json").write_text('{"eagle_config": null}')
    assert refused(scope("speculators-0.6.0")) == (
        "c.yaml:6:19: no draft.layer_ids: draft.config.json has no eagle_aux_hidden_state_layer_ids\n"
        "  write eagle_aux_hidden_state_layer_ids in the eagle_config of draft.config.json, or set:\n"
        "  {draft.layer_ids: [...]} in speculators-0.6.0 (pipeline.yaml:9). If the engine's own default\n"
        "  layers are meant, write default for the list"
    )


def test_no_ids_are_a_word_and_no_list(story: Path, scope: MakeScope) -> None:
    """Only for the ids themselves, and only by that word."""
    word = Value(data="default", position=scope("sglang-0.5.9").pipeline.document.at())
    check_ids(word)
    check_ids(word, "layer_ids")
    with pytest.raises(SpecError, match="slots must be a list of whole numbers"):
        check_ids(word, "slots")


@pytest.mark.parametrize("key", ["eagle_aux_hidden_state_layer_id", "eagle_aux_hidden_states_layer_ids"])
def test_a_misspelt_key_is_named_before_any_other_way(story: Path, scope: MakeScope, key: str) -> None:
    """The file is what a server reads: `set` would hide the mistake."""
    (story / "draft.config.json").write_text(f'{{"eagle_config": {{\n"{key}": [2, 30, 58]}}}}')
    said = " ".join(refused(scope("speculators-0.6.0")).split())
    ids = "eagle_aux_hidden_state_layer_ids"
    assert said.endswith(
        f"draft.config.json:2: {key} is a key that no reader has: did you mean {ids}? Write {ids} for {key}, inside "
        f"eagle_config"
    )
    assert "set:" not in said


def test_a_pipeline_without_a_draft_says_so(story: Path, scope: MakeScope) -> None:
    """A pipeline that only checks training needs no draft."""
    edit(story / "pipeline.yaml", "draft: {config: draft.config.json}\n", "")
    assert refused(scope()) == (
        "c.yaml:6:19: no draft.layer_ids: the pipeline names no draft config\n"
        "  write set: {draft.layer_ids: [...]} in an environment, or give --contracts-set\n"
        "  draft.layer_ids=[...]"
    )


def test_an_undeclared_final_says_so(story: Path, scope: MakeScope) -> None:
    """The claim is never completed by a guess."""
    edit(story / "pipeline.yaml", ", final: final}", "}")
    assert refused(scope(), "trained.final") == (
        "c.yaml:6:19: '$trained.final' is not declared in pipeline.yaml\n  add final: final under trained"
    )


def test_an_unknown_name_gets_the_nearest_one(scope: MakeScope) -> None:
    """The list of names is closed."""
    assert refused(scope(), "trained.tap") == (
        "c.yaml:6:19: the reference '$trained.tap' names nothing\n  did you mean 'trained.taps'?"
    )


def test_a_circle_of_references_is_shown(story: Path, scope: MakeScope) -> None:
    """Two names that stand for each other stand for nothing."""
    edit(story / "pipeline.yaml", "draft.layer_ids: [3, 31, 59]", "draft.layer_ids: $trained.final")
    edit(story / "pipeline.yaml", "final: final}", "final: [$draft.layer_ids]}")
    assert refused(scope("sglang-0.5.23")).startswith(
        "pipeline.yaml:4:55: the reference goes in a circle: $draft.layer_ids -> $trained.final -> $draft.layer_ids\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{hidden_states: [3]}", "draft.layer_ids must be a list of whole numbers, not a map"),
        ("3", "draft.layer_ids must be a list of whole numbers, not 3"),
        ("[3, true]", "draft.layer_ids must be a list of whole numbers, not true"),
        ("[3, embed]", "draft.layer_ids must be a list of whole numbers, not the text 'embed'"),
    ],
)
def test_ids_are_a_list_of_whole_numbers(scope: MakeScope, text: str, message: str) -> None:
    """They are the engine's own numbers; conventions belong to taps."""
    with pytest.raises(SpecError) as caught:
        scope(None, f"draft.layer_ids={text}")
    assert caught.value.render().startswith(f"--contracts-set draft.layer_ids: {message}\n")
