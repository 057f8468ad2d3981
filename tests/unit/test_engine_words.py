"""What an engine says, as a reader of a report can use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_contracts.observation import in_own_words
from eagle_contracts.spec.document import load_json
from eagle_contracts.targets import place_named_in


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("captured 2 of 3 aux hidden states", "captured 2 of 3 aux hidden states"),
        (
            "unknown type `x`. This could be because of an issue with the checkpoint, or pip install --upgrade",
            "unknown type `x`.",
        ),
        ("cannot open '/home/me/.store/tmp1/draft/config.json'", "cannot open 'the draft's twin/config.json'"),
        ("no file in /tmp/eagle_contracts_draft_ab12", "no file in the draft's twin"),
        ("/x/twins/0a/target: no weights", "the target's twin: no weights"),
        ("a target/draft pair, and /usr/lib/targets/x", "a target/draft pair, and /usr/lib/targets/x"),
    ],
)
def test_no_folder_of_a_run_and_no_advice_on_an_installation(said: str, words: str) -> None:
    """Both are the harness's own: nobody can write another path there, and the engine's version is the contract's."""
    assert in_own_words(said) == words


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Field 'hidden_act' expected str, got int", 3),
        ("Unsupported activation: gelu_none. Only silu is supported for now.", 3),
        ("KeyError: 'gelu_none'", 3),
        ("model type `kimi_none` is not known", 2),
        ("rms_norm_eps comes before hidden_act here", 4),
        ("something else", None),
    ],
)
def test_a_config_is_searched_for_what_an_engine_speaks_of(tmp_path: Path, said: str, line: int | None) -> None:
    """A key that is named counts before a value; of several, the first that is named."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "kimi_none", "hidden_act": "gelu_none", "rms_norm_eps": "x"}, indent=1))
    place = place_named_in(said, load_json(file))
    assert (place.line if place is not None else None) == line
