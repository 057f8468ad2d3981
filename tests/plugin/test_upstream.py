"""A contract that reads another's observation gets it, whatever is selected, and says where it does not."""

from __future__ import annotations

import pytest

from .conftest import (
    CONSUMER,
    FOLDER,
    KEEP,
    MAIN,
    PARITY,
    STAGE,
    STAGE_FILE,
    Repository,
    flat,
    has_our_traceback,
    shown,
)

PIPELINE = f"{FOLDER}/pipeline.yaml"
BOTH = f"{FOLDER}/train_serve_parity.yaml"
NEEDED = ["gate", "observe [2, 4, 8]", "stage", "start"]


@pytest.fixture
def chain(repository: Repository) -> Repository:
    """The repository with a second contract, which reads what the first observes."""
    repository.write_stage()
    return repository


def test_a_consumer_runs_where_its_producers_ran(chain: Repository) -> None:
    """Without `in` there is an item for each environment of the producer, named by it."""
    result = chain.run("--co", "-q", CONSUMER)
    assert [line for line in result.outlines if "::" in line] == [
        f"{CONSUMER}::slots[toy-1]",
        f"{CONSUMER}::slots[toy-2]",
        f"{CONSUMER}::catches-permuted[toy-1]",
        f"{CONSUMER}::catches-permuted[toy-2]",
    ]


def test_ids_name_both_environments(chain: Repository) -> None:
    """A consumer in an environment of its own is an item for each producer's environment, unless both ran in one."""
    chain.edit(PIPELINE, {"  toy-2:": "  own-1: {role: trainer, like: toy-1}\n  toy-2:"})
    chain.edit(CONSUMER, {"run: toy.stage\n": "run: toy.stage\nin: trainer\n"})
    result = chain.run("-v", f"{CONSUMER}::slots[own-1,toy-2]")
    result.assert_outcomes(passed=1)
    chain.edit(CONSUMER, {"in: trainer": "in: toy-2"})
    chain.write(BOTH, PARITY)
    result = chain.run("--co", "-q", "-k", "not capture and not catches")
    assert [line for line in result.outlines if "::" in line] == [
        f"{CONSUMER}::slots[toy-2]",
        f"{BOTH}::same[toy-2,toy-1]",
        f"{BOTH}::same[toy-2]",
    ]


def test_one_of_several_contracts_is_read_by_each_item(chain: Repository) -> None:
    """A list in `from` makes an item for each contract in it; the first one's ids are as without the list."""
    several = PARITY.replace("serve: sglang_capture_offset", "serve: [sglang_capture_offset, extraction_ordering]")
    chain.write(BOTH, several)
    result = chain.run("--co", "-q", "-k", "same")
    names = [line.rpartition("::")[2] for line in result.outlines if "::" in line]
    assert names == [
        "same[toy-1]",
        "same[toy-1,toy-2]",
        "same[toy-1,extraction_ordering]",
        "same[toy-1,toy-2,extraction_ordering]",
        "same[toy-2,toy-1]",
        "same[toy-2]",
        "same[toy-2,toy-1,extraction_ordering]",
        "same[toy-2,extraction_ordering]",
    ]


@pytest.mark.parametrize(
    ("listed", "column", "message"),
    [
        ("[]", 50, "'serve' must be the name of a contract, or a list of names, not []"),
        (
            "[sglang_capture_offset, sglang_capture_offset]",
            74,
            "sglang_capture_offset is named twice here: each contract makes items of its own",
        ),
        ("[sglang_capture_ofset]", 51, "no contract beside this one is called 'sglang_capture_ofset'"),
    ],
)
def test_a_list_of_contracts_that_is_none(chain: Repository, listed: str, column: int, message: str) -> None:
    """The place in the list, and what is wrong there."""
    chain.write(BOTH, PARITY.replace("serve: sglang_capture_offset", f"serve: {listed}"))
    result = chain.run(BOTH)
    assert f"{BOTH}:5:{column}: {message}" in " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("arguments", "deselected"), [((f"{CONSUMER}::slots[toy-1]",), 0), (("-k", "extraction and slots and toy-1"), 9)]
)
def test_a_selected_consumer_has_what_it_needs(chain: Repository, arguments: tuple[str, ...], deselected: int) -> None:
    """By an id or by words: the producer is observed, and none of its checks is run."""
    result = chain.run("-v", *arguments)
    result.assert_outcomes(passed=1, deselected=deselected)
    assert chain.news() == NEEDED
    assert "sglang_capture_offset.yaml::" not in result.stdout.str()


def test_a_selected_consumer_has_what_it_needs_in_two_processes(chain: Repository) -> None:
    """With pytest-xdist as well."""
    chain.build("toy-1", "toy-2")
    chain.run("-n", "2", "-k", "extraction").assert_outcomes(passed=4)
    assert chain.news().count("stage") == 2


def test_a_consumer_that_failed_last_has_what_it_needs(chain: Repository) -> None:
    """`--lf` runs the consumer again on a producer that had passed."""
    chain.write(STAGE_FILE, "def arrange(slots):\n    return [slots[1], slots[0], slots[2]]\n")
    chain.edit(CONSUMER, {"must_catch:\n  - {break: {swap: [slot_0, slot_1]}, as: permuted}\n": ""})
    chain.run("-k", "toy-1").assert_outcomes(passed=4, failed=1, deselected=3)
    chain.news()
    again = chain.run("--lf", "-v", "-k", "toy-1")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*extraction_ordering.yaml::slots[[]toy-1[]] FAILED*"])
    assert "permuted: " in again.stdout.str()
    assert chain.news() == NEEDED


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("raise", "running the subject gave no result: RuntimeError: the toy was told to raise"),
        ("die", "running the subject gave no result: ended by signal 9 (SIGKILL)"),
        ("refuse", "the engine raised IndexError: the toy was told to refuse"),
    ],
)
def test_a_producer_without_an_observation_makes_its_consumers_unavailable(
    chain: Repository, act: str, words: str
) -> None:
    """The consumer is skipped and names the producer, its environment and what went wrong there."""
    chain.write_faulty(act)
    chain.edit(CONSUMER, {"sglang_capture_offset": "faulty"})
    result = chain.run("-rs", FOLDER)
    lost = {"failed": 1} if act == "refuse" else {"errors": 1}
    result.assert_outcomes(passed=6, skipped=2, **lost)
    (line,) = (line for line in result.outlines if line.startswith("SKIPPED"))
    assert line == (
        f"SKIPPED [2] {CONSUMER}:5: unavailable(upstream): faulty in toy-1 gave nothing to read as states: {words}"
    )


def test_an_unavailable_producer_makes_its_consumers_unavailable(chain: Repository) -> None:
    """Where the producer's environment is missing, the consumer says which and why."""
    chain.edit(PIPELINE, {"toy-2: {role: serve, like: toy-1}": "gone-1: {role: serve, engine: toy==9.0}"})
    result = chain.run("-rs", CONSUMER)
    result.assert_outcomes(passed=2, skipped=2)
    assert "toy==9.0 is not installed here" in result.stdout.str()


def test_a_violated_producer_stops_nobody(chain: Repository) -> None:
    """What a producer promised and did not keep is its own failure; what it observed is read."""
    chain.edit(MAIN, {"offset: 1": "offset: 0"})
    chain.edit(CONSUMER, {"$trained.taps": "{hidden_states: [2, 4, 8]}"})
    result = chain.run("-k", "slots and toy-1")
    result.assert_outcomes(passed=1, failed=1, deselected=8)
    result.stdout.fnmatch_lines(["FAILED *sglang_capture_offset.yaml::slots[[]toy-1[]]*"])


def test_a_chain_of_three_is_read_to_its_end(chain: Repository) -> None:
    """A consumer's consumer has both observations, each made once."""
    chain.write(BOTH, PARITY)
    chain.run(f"{BOTH}::same[toy-1]").assert_outcomes(passed=1)
    assert chain.news() == sorted([*NEEDED, "parity"])


MISTAKES = {
    "nothing": (
        {"states: sglang_capture_offset": "states: sglang_capture_ofset"},
        f"{CONSUMER}:5:46: no contract beside this one is called 'sglang_capture_ofset'\n"
        "    with: {stage: stages/keep.py, from: {states: sglang_capture_ofset}}\n"
        "                                                 ^\n"
        "  did you mean 'sglang_capture_offset'?\n",
    ),
    "itself": (
        {"states: sglang_capture_offset": "states: extraction_ordering"},
        f"{CONSUMER}:5:37: contracts read each other in a circle: extraction_ordering -> extraction_ordering\n",
    ),
    "left out": (
        {", from: {states: sglang_capture_offset}": ""},
        f"{CONSUMER}:4:6: toy.stage needs with: {{from: ...}}\n    run: toy.stage\n         ^\n"
        "  from is a map from a name to another contract\n",
    ),
    "no map": (
        {"{states: sglang_capture_offset}": "sglang_capture_offset"},
        f"{CONSUMER}:5:37: ",
    ),
    "reads nothing": (
        {"run: toy.stage": "run: toy.capture", "stage: stages/keep.py": "layer_ids: [1], offset: 0"},
        f"{CONSUMER}:5:35: toy.capture takes no 'from'\n",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_from_is_shown_where_it_stands(chain: Repository, name: str) -> None:
    """File, line, column and the nearest valid word; the producer is checked all the same."""
    changes, message = MISTAKES[name]
    chain.edit(CONSUMER, changes)
    result = chain.run("-k", "specification or (capture and slots)")
    result.assert_outcomes(passed=2, errors=1, deselected=4)
    assert flat(message) in flat(result.stdout.str())
    assert not has_our_traceback(shown(result))


def test_a_circle_is_shown_from_both_sides(chain: Repository) -> None:
    """Each contract of a circle is an error that shows the way round."""
    chain.write(f"{FOLDER}/other.yaml", STAGE.replace("sglang_capture_offset", "extraction_ordering"))
    chain.edit(CONSUMER, {"sglang_capture_offset": "other"})
    result = chain.run("-k", "specification")
    result.assert_outcomes(errors=2, deselected=6)
    text = result.stdout.str()
    assert "contracts read each other in a circle: extraction_ordering -> other -> extraction_ordering " in flat(text)
    assert "contracts read each other in a circle: other -> extraction_ordering -> other " in flat(text)


def test_a_producer_that_cannot_be_read_is_named_at_its_consumer(chain: Repository) -> None:
    """The producer's item tells the mistake, and the consumer's says that it waits for it."""
    chain.write(MAIN, "spec: 1\nwhy: [\n")
    result = chain.run()
    result.assert_outcomes(errors=2)
    text = result.stdout.str()
    assert text.count(f"\n{MAIN}:3:1: ") == 1
    assert f"{CONSUMER}:1:1: not checked: {MAIN}:3:1 is wrong {MAIN}::specification says" in flat(text)
    alone = chain.run(CONSUMER)
    assert f"\n{MAIN}:3:1: " in alone.stdout.str()
    assert not has_our_traceback(shown(result))


@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["one process", "two processes"])
@pytest.mark.parametrize(
    ("stage", "sentence"),
    [
        (
            KEEP,
            "contracts/toy/pipeline.yaml: training and serving (toy-1, toy-2) both give the draft h[3], h[5], h[9], as "
            "contracts/toy/pipeline.yaml:4 says.",
        ),
        (
            "def arrange(slots):\n    return [slots[0], slots[0], slots[2]]\n",
            "contracts/toy/pipeline.yaml: training is wrong: it gave h[3], h[3], h[9], and serving gives h[3], h[5], "
            "h[9], as contracts/toy/pipeline.yaml:4 says.",
        ),
    ],
    ids=["agreed", "training"],
)
def test_what_was_found_out_is_concluded(chain: Repository, flags: tuple[str, ...], stage: str, sentence: str) -> None:
    """Facts of all processes meet in one sentence, the same however many there are."""
    chain.edit(MAIN, {"run: toy.capture": "run: toy.serving"})
    chain.write(STAGE_FILE, stage)
    chain.write(BOTH, PARITY)
    result = chain.run("-m", "not control", *flags)
    assert sentence in " ".join(result.stdout.str().split())
    assert result.stdout.str().count("contracts/toy/pipeline.yaml: ") == 1
