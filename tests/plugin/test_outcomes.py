"""Every verdict is one of pytest's outcomes, with a text that a person can act on."""

from __future__ import annotations

import pytest

from .conftest import CAPTURE, FOLDER, MAIN, Repository, flat, has_our_traceback, shown

NOTHING = (
    "contracts: no check was executed (none selected, or every environment unavailable: see -rs), so this run fails"
)
VIOLATED = """\
shifted: every slot holds the state one layer earlier than declared (-1): h[2], h[4], h[8] where
  h[3], h[5], h[9] are declared

slots      {hidden_states: [3, 5, 9]}  contracts/toy/pipeline.yaml:4
layer_ids  [2, 4, 8]  contracts/toy/draft.config.json:2
offset     0  contracts/toy/sglang_capture_offset.yaml:6
engine     toy 1.0, ToyForCausalLM twin of 10 layers, 43 tokens, cpu

slot 0  declared h[3] (contracts/toy/pipeline.yaml:4), holds h[2]
"""
ADVICE = """\
write draft.layer_ids: [3, 5, 9]
  at contracts/toy/draft.config.json:2; verified by running the engine

then run:
  pytest --contracts 'contracts/toy/sglang_capture_offset.yaml::slots[toy-1]' \\
    --contracts-set 'draft.layer_ids=[3,5,9]'
"""
SHARED = """\
The claim may be what is wrong, not serving: with the ids that they share, every environment shows
  h[2], h[4], h[8] (toy-1, toy-2).
Look first at what was trained. If it was h[2], h[4], h[8], write trained.taps: {hidden_states: [2,
  4, 8]} at contracts/toy/pipeline.yaml:4 and change no id.
write draft.layer_ids: [3, 5, 9]
  at contracts/toy/pipeline.yaml:6, as set: {draft.layer_ids: [3, 5, 9]} of environment toy-1 alone
  (contracts/toy/draft.config.json:2 is read by toy-2 too); only if the claim is right (verified by
  running the engine)
"""
DOUBT = """\
The claim may be what is wrong, not serving: with the ids of its own `set`, every environment shows
  h[2], h[4], h[8] (toy-1, toy-2).
Look first at what was trained. If it was h[2], h[4], h[8], write trained.taps: {hidden_states: [2,
  4, 8]} at contracts/toy/pipeline.yaml:4 and change no id.
write draft.layer_ids: [2, 4, 8]
  at contracts/toy/pipeline.yaml:6, environment toy-1; only if the claim is right (verified by
  running the engine)

then run:
  pytest --contracts contracts/toy --contracts-set 'trained.taps={hidden_states: [2, 4, 8]}'
"""


def test_a_violation_fails_with_its_evidence_and_a_remedy(repository: Repository) -> None:
    """The report starts with the diagnosis, shows both sides, and says what to write, without our code."""
    repository.edit(MAIN, {"offset: 1": "offset: 0"})
    repository.edit(f"{FOLDER}/pipeline.yaml", {"  toy-2: {role: serve, like: toy-1}\n": ""})
    result = repository.run(f"{MAIN}::slots[toy-1]")
    result.assert_outcomes(failed=1)
    assert result.ret == 1
    text = result.stdout.str()
    assert VIOLATED in text
    assert ADVICE in text
    assert not has_our_traceback(text)


def test_a_list_that_others_read_too_is_not_advised_to_be_changed(repository: Repository) -> None:
    """Two environments read one list: each is told its own `set`, and that the claim may be what is wrong."""
    repository.edit(MAIN, {"offset: 1": "offset: 0"})
    result = repository.run(f"{MAIN}::slots[toy-1]")
    result.assert_outcomes(failed=1)
    assert SHARED in result.stdout.str()


def test_the_command_of_the_remedy_passes(repository: Repository) -> None:
    """What the report says to run next is green."""
    repository.edit(MAIN, {"offset: 1": "offset: 0"})
    result = repository.run(f"{MAIN}::slots[toy-1]", "--contracts-set", "draft.layer_ids=[3,5,9]")
    result.assert_outcomes(passed=1)
    assert result.ret == 0


def test_overrides_are_in_the_header_and_leave_controls_out(repository: Repository) -> None:
    """Breaks are written for the file's own values, so with an override only promises run."""
    result = repository.run("--contracts-set", "draft.layer_ids=[2,4,8]")
    result.assert_outcomes(passed=2)
    assert (
        "contracts: overridden for every pipeline: draft.layer_ids=[2, 4, 8]; negative controls are not run"
        in result.outlines
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "draft.layer_id=[2,4,8]",
            "--contracts-set: unknown key 'draft.layer_id'\n    draft.layer_id=[2,4,8]\n    ^\n"
            "  did you mean 'draft.layer_ids'?",
        ),
        (
            "draft.layer_ids",
            "--contracts-set: 'draft.layer_ids' is not KEY=VALUE\n    draft.layer_ids\n    ^\n"
            "  write draft.layer_ids=[2,30,58]",
        ),
    ],
)
def test_a_wrong_override_is_a_usage_error(repository: Repository, given: str, message: str) -> None:
    """A key that does not exist is told with the nearest one, before anything is collected."""
    result = repository.run("--contracts-set", given)
    assert result.ret == 4
    assert message in shown(result)


def test_an_override_needs_the_flag(repository: Repository) -> None:
    """`--contracts-set` in a plain run would do nothing, so it is refused."""
    result = repository.run_plain("--contracts-set", "draft.layer_ids=[1]")
    assert result.ret == 4
    assert "--contracts-set changes a contracts run: give --contracts too" in shown(result)


def test_a_contract_without_controls_passes_with_a_warning(repository: Repository) -> None:
    """Nothing shows that an unproven contract can fail, and the run says so; as an error where warnings are errors."""
    repository.write(MAIN, CAPTURE.partition("must_catch")[0])
    sentence = "sglang_capture_offset is unproven: it has no must_catch, so nothing shows that it can fail"
    result = repository.run()
    result.assert_outcomes(passed=2, warnings=2)
    assert sentence in result.stdout.str()
    strict = repository.run("-W", "error", "-k", "toy-1")
    strict.assert_outcomes(errors=1)
    assert f"{sentence} (and warnings are errors in this run)" in strict.stdout.str()
    assert not has_our_traceback(strict.stdout.str())


def test_an_unavailable_environment_skips_its_items(repository: Repository) -> None:
    """A skip names its code, the environment's place, and the command that helps; the others are checked."""
    repository.edit(
        f"{FOLDER}/pipeline.yaml", {"toy-2: {role: serve, like: toy-1}": "gone-1: {role: serve, engine: toy==9.0}"}
    )
    result = repository.run("-rs")
    result.assert_outcomes(passed=4, skipped=2)
    assert result.ret == 0
    (line,) = (line for line in result.outlines if line.startswith("SKIPPED"))
    assert line.startswith(
        "SKIPPED [2] contracts/toy/sglang_capture_offset.yaml:5: unavailable(environment): The environment 'gone-1' "
        "(contracts/toy/pipeline.yaml:7) has no interpreter: toy==9.0 is not installed here"
    )
    assert line.endswith("build it: eagle-contracts env sync gone-1")


def test_a_run_without_a_check_fails(repository: Repository) -> None:
    """Nothing selected, or nothing available: a green run that checked nothing is not green."""
    nothing = repository.run("-k", "nothing")
    nothing.assert_outcomes(deselected=6)
    assert (nothing.ret, NOTHING in flat("\n".join(nothing.outlines))) == (1, True)
    repository.edit(f"{FOLDER}/pipeline.yaml", {"toy-1: {role: serve, python:": "toy-1: {role: serve, python: /no"})
    unavailable = repository.run()
    unavailable.assert_outcomes(skipped=6)
    assert unavailable.ret == 1
    told = flat(unavailable.stdout.str()).partition(NOTHING)[2]
    assert told.startswith(" unavailable(environment): /no")
    assert "named at contracts/toy/pipeline.yaml:6" in told
    assert repository.noted() == []


def test_a_control_must_be_caught_and_as_itself(repository: Repository) -> None:
    """A break that changes nothing, or that is diagnosed as something else, fails."""
    repository.edit(
        MAIN, {"as: embedding_in_slot": "as: permuted", "{shift: {with.layer_ids: -1}}": "{with.offset: 1}"}
    )
    result = repository.run("-m", "control")
    result.assert_outcomes(passed=2, failed=2, deselected=2)
    text = result.stdout.str()
    assert (
        "not_caught: the break at contracts/toy/sglang_capture_offset.yaml:12 (with.offset: 1) was not\n"
        "  caught: with it, every promise of this contract still holds\n"
        "  the break changes nothing: offset is 1 without it too (contracts/toy/sglang_capture_offset.yaml:6)\n" in text
    )
    assert (
        "caught_as_another: the break at contracts/toy/sglang_capture_offset.yaml:11 (with.layer_ids: [-1, 2,\n"
        "  4]) was to be caught as permuted, and was diagnosed as embedding_in_slot\n" in text
    )


def test_a_control_of_a_contract_that_is_broken_itself(repository: Repository) -> None:
    """A shift of ids that are off by one already may be right by accident: what to mend first is said."""
    result = repository.run("--contracts-set", "draft.layer_ids=[3,5,9]", "-k", "toy-1")
    result.assert_outcomes(failed=1, deselected=1)
    repository.edit(f"{FOLDER}/draft.config.json", {"[2, 4, 8]": "[3, 5, 9]"})
    result = repository.run("-k", "toy-1")
    text = flat(result.stdout.str())
    assert "not_caught: the break at contracts/toy/sglang_capture_offset.yaml:12 (shift: {with.layer_ids: -1})" in text
    assert "without the break the contract is broken too (shifted): mend that first, then this can be told" in text


def test_an_engine_that_breaks_is_an_error_of_its_item(repository: Repository) -> None:
    """A dead child, a dead worker and an adapter's exception are errors with the last lines; the others still run."""
    errors = {
        "die": "error(died): running the subject gave no result: ended by signal 9 (SIGKILL)\n"
        "  the usual sender of that signal is a system short of memory, which other engines take up too:\n"
        "    try this environment alone: -k toy-1\n",
        "raise": "error(exception): running the subject gave no result: RuntimeError: the toy was told to raise\n",
    }
    for act in errors:
        repository.write_faulty(act, name=act)
    repository.write_faulty("kill_worker", name="kill")
    result = repository.run("-v")
    result.assert_outcomes(passed=6, errors=3)
    text = result.stdout.str()
    for act, sentence in errors.items():
        assert f"\n{sentence}\nLast lines printed:\n  | the toy is about to {act}\n" in text
    assert "\nerror(died): running the subject gave no result: the worker ended by signal 9 (SIGKILL)\n" in text
    assert not has_our_traceback(text)


def test_a_worker_that_is_killed_once_is_started_once_more(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system short of memory takes a worker while its engine is compared with the reference: no item is lost."""
    mark = repository.write("kill_once", "")
    monkeypatch.setenv("TOY_KILLS_AT_GATE", str(mark))
    result = repository.run()
    result.assert_outcomes(passed=6)
    assert not mark.exists()
    assert repository.noted().count("gate") == 2


def test_an_observation_that_is_killed_once_is_made_once_more(repository: Repository) -> None:
    """A child that the system takes is tried again from an empty folder, whatever it had written."""
    repository.write_faulty("die_once")
    repository.run(f"{FOLDER}/faulty.yaml").assert_outcomes(passed=1, warnings=1)
    assert repository.noted().count("observe [2, 4, 8]") == 2


def test_a_worker_that_is_always_killed_is_an_error_of_each_item(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every item of the environment names the signal and what to do; the comparison is made twice, not for each."""
    monkeypatch.setenv("TOY_KILLS_AT_GATE", str(repository.write("kill_always", "always")))
    result = repository.run("-k", "toy-1")
    result.assert_outcomes(errors=4, deselected=2)
    text = result.stdout.str()
    assert (
        text.count(
            "error(died): comparing the engine's own states with transformers' gave no result: the worker ended\n"
            "  by signal 9 (SIGKILL)\n"
            "  the usual sender of that signal is a system short of memory, which other engines take up too:\n"
            "    try this environment alone: -k toy-1\n"
        )
        == 4
    )
    assert repository.noted().count("gate") == 2
    assert not has_our_traceback(text)


def test_a_claim_that_every_environment_contradicts_is_doubted(repository: Repository) -> None:
    """Where all environments agree with each other and not with the claim, that is said before any ids are."""
    own = ", set: {draft.layer_ids: [1, 3, 7]}}\n"
    pipeline = (repository.root / FOLDER / "pipeline.yaml").read_text()
    repository.write(f"{FOLDER}/pipeline.yaml", pipeline.replace("}\n  toy-2", own + "  toy-2"))
    result = repository.run(f"{MAIN}::slots[toy-1]")
    result.assert_outcomes(failed=1)
    assert DOUBT in result.stdout.str()


def test_oracles_that_disagree_give_no_verdict(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine's own states are not the reference's, nothing is judged."""
    monkeypatch.setenv("TOY_DISAGREES", "0.5")
    result = repository.run("-k", "slots and toy-1")
    result.assert_outcomes(errors=1, deselected=5)
    assert (
        "error(oracle): the engine's own states and transformers 5.0's differ by 5.0e-01 at h[4] of 10 layers\n"
        "  on the twin (allowed: 1e-05), so no slot can be judged here\n" in result.stdout.str()
    )
