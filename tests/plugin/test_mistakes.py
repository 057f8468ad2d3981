"""A mistake in a file is one error that says where; everything else still runs."""

from __future__ import annotations

from .conftest import CAPTURE, FOLDER, MAIN, Repository, flat, has_our_traceback

WRONG = f"{FOLDER}/wrong.yaml"
MISTAKES = {
    "adapter": (
        "run: toy.capture",
        "run: toy.captur",
        "4:6: no adapter is called 'toy.captur'\n    run: toy.captur\n         ^\n  did you mean 'toy.capture'?\n",
    ),
    "absent": (
        "run: toy.capture",
        "run: toy.absent",
        "4:6: adapter toy.absent (toy_engine.adapter:ABSENT) cannot be imported: "
        "module 'toy_engine.adapter' has no attribute 'ABSENT'\n    run: toy.absent\n         ^\n",
    ),
    "no_subject": (
        "run: toy.capture",
        "run: toy.number",
        "4:6: adapter toy.number (toy_engine.adapter:NUMBER) is int, not a Subject\n    run: toy.number\n",
    ),
    "parameter": (
        "layer_ids: $draft.layer_ids",
        "layer_idz: $draft.layer_ids",
        "6:8: toy.capture takes no 'layer_idz'\n    with: {layer_idz: $draft.layer_ids, offset: 1}\n           ^\n"
        "  did you mean 'layer_ids'?\n",
    ),
    "left_out": (
        ", offset: 1",
        "",
        "4:6: toy.capture needs with: {offset: ...}\n    run: toy.capture\n         ^\n"
        "  offset is what the engine adds to an id: 0 or 1\n",
    ),
    "expectation": (
        "- slots:",
        "- slot:",
        "8:5: no expectation is called 'slot'\n      - slot: $trained.taps\n        ^\n  did you mean 'slots'?\n",
    ),
    "mark": (
        "in: serve\n",
        "in: serve\nmarks: [nightli]\n",
        "6:9: pytest does not know the mark 'nightli'\n    marks: [nightli]\n            ^\n"
        "  register it in pytest's configuration: markers = nightli: WHAT IT MEANS\n",
    ),
    "key": (
        "why: The same list of ids names different layers in different engines.",
        "whi: Odd.",
        "2:1: unknown key 'whi'\n    whi: Odd.\n    ^\n  did you mean 'why'?\n",
    ),
    "environment": (
        "in: serve",
        "in: toy-3",
        "5:5: 'toy-3' is neither a role nor an environment of contracts/toy/pipeline.yaml\n    in: toy-3\n        ^\n"
        "  did you mean 'toy-2'?\n",
    ),
}


def test_a_mistake_is_one_error_beside_the_others(repository: Repository) -> None:
    """Each error names file, line, column and the nearest valid word; the right contract of the folder is checked."""
    for name, (old, new, _) in MISTAKES.items():
        text = CAPTURE.partition("must_catch")[0]
        assert old in text
        repository.write(f"{FOLDER}/{name}.yaml", text.replace(old, new))
    result = repository.run("--strict-markers")
    result.assert_outcomes(passed=6, errors=len(MISTAKES))
    shown = result.stdout.str()
    for name, (_, _, message) in MISTAKES.items():
        assert f"ERROR at setup of {name} specification" in shown
        assert flat(f"{FOLDER}/{name}.yaml:{message}") in flat(shown)
    assert not has_our_traceback(shown)


def test_a_broken_pipeline_takes_no_contract_away(repository: Repository) -> None:
    """Each contract beside a broken pipeline is an error that names the pipeline's line; another pipeline is run."""
    for name in ("target.config.json", "draft.config.json", "sglang_capture_offset.yaml"):
        repository.write(f"contracts/broken/{name}", (repository.root / FOLDER / name).read_text())
    pipeline = (repository.root / FOLDER / "pipeline.yaml").read_text()
    repository.write("contracts/broken/pipeline.yaml", pipeline.replace("role: serve, like", "roll: serve, like"))
    result = repository.run("-v")
    result.assert_outcomes(passed=6, errors=2)
    shown = result.stdout.str()
    assert "contracts/broken/sglang_capture_offset.yaml::specification ERROR" in shown
    assert "contracts/broken/pipeline.yaml::specification ERROR" in shown
    assert shown.count("contracts/broken/pipeline.yaml:7:11: unknown key 'roll'\n") == 1
    assert not has_our_traceback(shown)


def test_stray_yaml_is_an_error(repository: Repository) -> None:
    """A YAML file under the contracts path that belongs to no pipeline is not silently left out."""
    repository.write("contracts/notes/todo.yaml", "- write more contracts\n")
    result = repository.run("-k", "specification or toy-2")
    result.assert_outcomes(passed=2, errors=1, deselected=4)
    assert (
        "contracts/notes/todo.yaml:1:1: there is no pipeline.yaml beside this file\n"
        "  every YAML file under a contracts path is a contract or the pipeline beside it: write the\n"
        "  pipeline, or move this file elsewhere\n" in result.stdout.str()
    )


def test_text_that_is_no_yaml_is_an_error(repository: Repository) -> None:
    """A file that cannot be parsed is told by its place."""
    repository.write(WRONG, "spec: 1\nwhy: [\n")
    result = repository.run(WRONG)
    result.assert_outcomes(errors=1)
    assert result.ret == 1
    assert f"\n{WRONG}:3:1: " in result.stdout.str()
    assert not has_our_traceback(result.stdout.str())


def test_a_break_at_nothing_is_an_error_of_its_control(repository: Repository) -> None:
    """A control that breaks what is not there says so; the promises are judged."""
    repository.edit(MAIN, {"{with.layer_ids: [-1, 2, 4]}": "{with.layer_idz: [-1, 2, 4]}"})
    result = repository.run("-k", "toy-1")
    result.assert_outcomes(passed=3, errors=1, deselected=2)
    assert (
        f"\n{MAIN}:11:13: nothing here can be broken at 'with.layer_idz'\n"
        "      - {break: {with.layer_idz: [-1, 2, 4]}, in: toy-1, as: embedding_in_slot}\n                ^\n"
        "  did you mean 'with.layer_ids'?\n" in result.stdout.str()
    )
