"""Every mistake in a pipeline or a contract is shown where it stands, with the next step."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import Contract, Pipeline

STORY = Path(__file__).parent / "spec_story"


@pytest.fixture
def story(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORY, tmp_path / "story"))


def pipeline_in(folder: Path) -> Pipeline:
    return load_pipeline(folder / "pipeline.yaml", "pipeline.yaml")


def contract_in(folder: Path, name: str) -> Contract:
    return load_contract(folder / f"{name}.yaml", pipeline_in(folder), f"{name}.yaml")


def refused(folder: Path, old: str, new: str, name: str = "sglang_capture_offset") -> str:
    """Return what is said after one edit of a story file."""
    path = folder / f"{name}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError) as caught:
        pipeline_in(folder) if name == "pipeline" else contract_in(folder, name)
    return caught.value.render()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("spec: 1", "spec: 2", "c.yaml:1:7: 'spec' must be 1, not 2\n    spec: 2\n          ^"),
        ("spec: 1", "spec: 1\nwhi: x", "c.yaml:2:1: unknown key 'whi'\n    whi: x\n    ^\n  did you mean 'why'?"),
        (
            "run: sglang.capture\n",
            "",
            "c.yaml:1:1: 'run' is missing\n    spec: 1\n    ^\n"
            "  add run: the subject: the real code that is run, such as sglang.capture.",
        ),
        (
            "run: sglang.capture",
            "run: 3",
            "c.yaml:4:6: 'run' must be text, not 3\n    run: 3\n         ^\n  write \"3\"",
        ),
        ("run: sglang.capture", "run: ''", "c.yaml:4:6: 'run' is empty\n    run: ''\n         ^"),
        (
            "between: [serving config, target forward]",
            "between: [serving config]",
            "c.yaml:3:10: 'between' needs at least 2 entries, not 1\n    between: [serving config]\n             ^",
        ),
        (
            "between: [serving config, target forward]",
            "between: [a, b, c]",
            "c.yaml:3:10: 'between' needs at most 2 entries, not 3\n    between: [a, b, c]\n             ^",
        ),
        (
            "in: serve ",
            "in: sevre ",
            "c.yaml:5:5: 'sevre' is neither a role nor an environment of pipeline.yaml\n"
            "    in: sevre                                          # one item for every environment with tha\n"
            "        ^\n  did you mean 'serve'?",
        ),
        (
            "in: serve ",
            "in: [serve, serve] # ",
            "c.yaml:5:13: 'in' has the text 'serve' twice\n"
            "    in: [serve, serve] #                                          # one item for every environme\n"
            "                ^",
        ),
        (
            "$draft.layer_ids}",
            "$draft.layer_id}",
            "c.yaml:6:19: the reference '$draft.layer_id' names nothing\n    with: {layer_ids: $draft.layer_id}\n"
            "                      ^\n  did you mean '$draft.layer_ids'?",
        ),
        (
            "$draft.layer_ids}",
            "$HOME}",
            "c.yaml:6:19: the reference '$HOME' names nothing\n    with: {layer_ids: $HOME}\n"
            "                      ^\n  references: $trained.taps, $trained.final, $draft.layer_ids, $env.NAME",
        ),
        ("with: {layer_ids: $draft.layer_ids}", "with: 3", "c.yaml:6:7: 'with' must be a map, not 3\n"),
        (
            "  - slots: $trained.taps                           # by value; ids are never compared",
            "  - {slots: $trained.taps, rows: 3}",
            "c.yaml:8:5: entry 1 of 'expect' needs at most 1 key, not 2\n"
            "      - {slots: $trained.taps, rows: 3}\n        ^",
        ),
        (
            "as: shifted",
            "as: shiftd",
            "c.yaml:10:48: 'as' cannot be the text 'shiftd'\n"
            "      - {break: {shift: {with.layer_ids: +1}}, as: shiftd}          # relative, so wrong in ever\n"
            "                                                   ^\n  did you mean 'shifted'?",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {shift: {with.layer_ids: +1}}, as: odd}",
            "c.yaml:10:48: 'as' cannot be the text 'odd'\n"
            "      - {break: {shift: {with.layer_ids: +1}}, as: odd}\n"
            "                                                   ^\n"
            "  valid: shifted, permuted, embedding_in_slot, missing_residual, normed, duplicated,\n"
            "  missing_slot, wrong_width, fc_skipped, fc_repeated, wrong_request, missing_tokens,\n"
            "  wrong_dtype, unreadable, unstable, altered, engine_refused, other_state, unknown_state,\n"
            "  mispaired, config_ignored",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {shfit: {with.layer_ids: +1}}, as: shifted}",
            "c.yaml:10:14: unknown break 'shfit'\n"
            "      - {break: {shfit: {with.layer_ids: +1}}, as: shifted}\n"
            "                 ^\n  did you mean 'shift'?",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {layer_ids: [1]}, as: shifted}",
            "c.yaml:10:14: unknown break 'layer_ids'\n"
            "      - {break: {layer_ids: [1]}, as: shifted}\n"
            "                 ^\n  write shift, swap, drop, or a path to set, such as with.layer_ids or overlay.layers",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {shift: {with.layer_idz: +1}}, as: shifted}",
            "c.yaml:10:22: there is no 'with.layer_idz' to shift\n"
            "      - {break: {shift: {with.layer_idz: +1}}, as: shifted}\n"
            "                         ^\n  did you mean 'with.layer_ids'?",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {shift: {with.layer_ids: 0}}, as: shifted}",
            "c.yaml:10:38: 'with.layer_ids' cannot be 0: a shift by 0 changes nothing\n"
            "      - {break: {shift: {with.layer_ids: 0}}, as: shifted}\n"
            "                                         ^\n  write +1 or -1",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {shift: {with.layer_ids: 1.0}}, as: shifted}",
            "c.yaml:10:38: 'with.layer_ids' must be a whole number, not 1.0\n"
            "      - {break: {shift: {with.layer_ids: 1.0}}, as: shifted}\n"
            "                                         ^",
        ),
        (
            "{break: {shift: {with.layer_ids: +1}}, as: shifted}          # relative, so wrong in every environment",
            "{break: {drop: aux_0, with.layer_ids: [1]}, as: shifted}",
            "c.yaml:10:27: 'with.layer_ids' cannot stand beside 'drop': a break is one verb, or paths to set\n"
            "      - {break: {drop: aux_0, with.layer_ids: [1]}, as: shifted}\n"
            "                              ^\n  write two entries of must_catch",
        ),
        (
            "in: sglang-0.5.9+embed, as",
            "in: sglang-0.5.9+embd, as",
            "c.yaml:11:48: 'sglang-0.5.9+embd' is neither a role nor an environment of pipeline.yaml\n"
            "      - {break: {with.layer_ids: [-1, 2, 30]}, in: sglang-0.5.9+embd, as: embedding_in_slot}\n"
            "                                                   ^\n  did you mean 'sglang-0.5.9+embed'?",
        ),
        (
            "must_catch:",
            "marks: [a b]\nmust_catch:",
            "c.yaml:9:9: the text 'a b' is not a name\n    marks: [a b]\n            ^\n"
            "  use letters, digits and _, starting with a letter",
        ),
    ],
)
def test_a_mistake_in_a_contract_is_shown_where_it_stands(story: Path, old: str, new: str, message: str) -> None:
    """What was expected, the nearest valid word, and the next step."""
    assert refused(story, old, new).replace("sglang_capture_offset.yaml", "c.yaml").startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "target.config.json",
            "target.confg.json",
            "pipeline.yaml:2:18: there is no file 'target.confg.json' beside pipeline.yaml\n"
            "    target: {config: target.confg.json, part: text_config}\n"
            "                     ^\n  did you mean 'target.config.json'?",
        ),
        (
            "text_config",
            "text_confg",
            "pipeline.yaml:2:44: target.config.json has no part 'text_confg'\n"
            "    target: {config: target.config.json, part: text_confg}\n"
            "                                               ^\n  did you mean 'text_config'?",
        ),
        (
            "trained: {taps",
            "trained: {tap",
            "pipeline.yaml:4:1: 'taps' is missing\n",
        ),
        (
            "final: final}",
            "final: $trained.tap}",
            "pipeline.yaml:4:54: the reference '$trained.tap' names nothing\n",
        ),
        (
            "role: [train, serve]",
            "role: [train, serv]",
            "pipeline.yaml:6:32: entry 2 of 'role' cannot be the text 'serv'\n",
        ),
        ("role: serve, like", "role: server, like", "pipeline.yaml:7:30: 'role' cannot be the text 'server'\n"),
        (
            "like: sglang-0.5.9,",
            "like: sglang-0.5.8,",
            "pipeline.yaml:7:43: there is no environment 'sglang-0.5.8'\n"
            "      sglang-0.5.9+embed: {role: serve, like: sglang-0.5.8, overlay: patches/capture_embedding.p\n"
            "                                              ^\n  did you mean 'sglang-0.5.9'?",
        ),
        (
            "like: sglang-0.5.9,",
            "like: sglang-0.5.9+embed,",
            "pipeline.yaml:7:43: like goes in a circle: sglang-0.5.9+embed -> sglang-0.5.9+embed\n",
        ),
        (
            "capture_embedding.py",
            "capture_embeding.py",
            "pipeline.yaml:7:66: there is no file 'patches/capture_embeding.py' beside pipeline.yaml\n",
        ),
        (
            "overlay: patches/capture_embedding.py",
            "overlay: 3",
            "pipeline.yaml:7:66: 'overlay' must be text or a map, not 3\n"
            "      sglang-0.5.9+embed: {role: serve, like: sglang-0.5.9, overlay: 3}\n"
            '                                                                     ^\n  write "3"',
        ),
        (
            "overlay: patches/capture_embedding.py",
            "overlay: {scrip: patches/p.py}",
            "pipeline.yaml:7:57: 'script' is missing\n",
        ),
        (
            "overlay: patches/capture_embedding.py",
            "overlay: {script: patches/capture_embeding.py}",
            "pipeline.yaml:7:66: there is no file 'patches/capture_embeding.py' beside pipeline.yaml\n",
        ),
        (
            "engine: sglang==0.5.23",
            "engine: sglang=0.5.23",
            "pipeline.yaml:8:40: '=0.5.23' is not a version clause\n"
            "      sglang-0.5.23: {role: serve, engine: sglang=0.5.23, set: {draft.layer_ids: [3, 31, 59]}}\n"
            "                                           ^\n  write sglang==0.5.9 or sglang>=0.5.9,<0.6",
        ),
        (
            "draft.layer_ids: [3, 31, 59]",
            "draft.layer_id: [3, 31, 59]",
            "pipeline.yaml:8:62: unknown key 'draft.layer_id'\n"
            "      sglang-0.5.23: {role: serve, engine: sglang==0.5.23, set: {draft.layer_id: [3, 31, 59]}}\n"
            "                                                                 ^\n  did you mean 'draft.layer_ids'?",
        ),
        (
            "engine: speculators==0.6.0",
            "python: p, lock: l",
            "pipeline.yaml:9:49: 'lock' cannot stand beside 'python': each says where the code runs\n"
            "      speculators-0.6.0: {role: trainer, python: p, lock: l}\n"
            "                                                    ^\n  keep one of them",
        ),
        (
            "speculators-0.6.0:",
            "'spec ulators':",
            "pipeline.yaml:9:3: 'spec ulators' is not a name\n"
            "      'spec ulators': {role: trainer, engine: speculators==0.6.0}\n"
            "      ^\n  use letters, digits and . _ + -, starting with a letter or digit",
        ),
        (
            "{role: trainer, engine: speculators==0.6.0}",
            "",
            "pipeline.yaml:9:21: 'speculators-0.6.0' must be a map, not nothing\n",
        ),
    ],
)
def test_a_mistake_in_a_pipeline_is_shown_where_it_stands(story: Path, old: str, new: str, message: str) -> None:
    """The only file that names versions and paths is checked as far as that goes without running anything."""
    assert refused(story, old, new, "pipeline").startswith(message)


def test_a_longer_circle_of_environments_is_shown_once_for_each(story: Path) -> None:
    """Who inherits from whom is said in full."""
    path = story / "pipeline.yaml"
    path.write_text(
        path.read_text() + "  a: {role: serve, like: b}\n  b: {role: serve, like: a}\n  c: {role: serve, like: a}\n"
    )
    with pytest.raises(SpecError) as caught:
        pipeline_in(story)
    assert [issue.message for issue in caught.value.issues] == [
        "like goes in a circle: a -> b -> a",
        "like goes in a circle: b -> a -> b",
    ]


def test_all_mistakes_are_shown_at_once_in_reading_order(story: Path) -> None:
    """What the schema sees and what needs the pipeline stand together."""
    text = (story / "sglang_capture_offset.yaml").read_text()
    text = text.replace("spec: 1", "spec: 2").replace("in: serve ", "in: sevre ").replace("as: shifted", "as: shiftd")
    (story / "sglang_capture_offset.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        contract_in(story, "sglang_capture_offset")
    assert [issue.message for issue in caught.value.issues] == [
        "'spec' must be 1, not 2",
        "'sevre' is neither a role nor an environment of pipeline.yaml",
        "'as' cannot be the text 'shiftd'",
    ]


def test_a_role_that_nobody_has_would_run_nothing(story: Path) -> None:
    """A contract that selects no environment is a mistake, not a pass."""
    text = (story / "pipeline.yaml").read_text()
    (story / "pipeline.yaml").write_text(text.replace("role: trainer", "role: serve"))
    assert refused(story, "in: serve ", "in: trainer ").startswith(
        "sglang_capture_offset.yaml:5:5: no environment of pipeline.yaml has the role 'trainer'"
    )


def test_a_reference_to_an_undeclared_final_is_refused(story: Path) -> None:
    """What the pipeline does not declare cannot be expected."""
    text = (story / "pipeline.yaml").read_text()
    (story / "pipeline.yaml").write_text(text.replace(", final: final}", "}"))
    assert refused(story, "in: train\n", "in: train\n# \n", "dump_patch_layers") == (
        "dump_patch_layers.yaml:8:46: the reference '$trained.final' names nothing\n"
        "    expect: [{slots: {aux: $trained.taps, final: $trained.final}}, {rows: one_per_token}]\n"
        "                                                 ^\n"
        "  pipeline.yaml does not declare it: add final: final under trained"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1,}', "draft.config.json:1:9: is not JSON: "),
        ("[1]", "pipeline.yaml:3:17: draft.config.json holds no config: its outermost value is not a map"),
    ],
)
def test_a_broken_config_is_found_with_the_pipeline(story: Path, content: str, message: str) -> None:
    """The pipeline names it, so loading the pipeline reads it."""
    (story / "draft.config.json").write_text(content)
    with pytest.raises(SpecError) as caught:
        pipeline_in(story)
    assert caught.value.render().startswith(message)
