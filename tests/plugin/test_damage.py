"""A damaged config or patch is one pipeline's error; it never ends the run of the others."""

from __future__ import annotations

import json

import pytest

from .conftest import FOLDER, MAIN, Repository, flat, has_our_traceback

CONFIG = f"{FOLDER}/target.config.json"


def changed(repository: Repository, **values: object) -> str:
    """Return the target's config with other values."""
    return json.dumps({**json.loads((repository.root / CONFIG).read_text()), **values})


@pytest.mark.parametrize(
    ("key", "value"), [("rope_scaling", "nope"), ("rope_scaling", [1]), ("hidden_size", None), ("hidden_size", "wide")]
)
def test_a_config_that_gives_no_twin_is_an_error_of_its_own(repository: Repository, key: str, value: object) -> None:
    """Each item names the config; nothing of ours or of pytest's is shown."""
    repository.write(CONFIG, changed(repository, **{key: value}))
    result = repository.run()
    text = result.stdout.str()
    assert result.ret == 1
    assert "no twin can be made from target.config.json" in text
    assert "INTERNALERROR" not in text
    assert not has_our_traceback(text)


def test_a_promise_that_the_subject_cannot_make_is_refused(repository: Repository) -> None:
    """A promise that is never held against anything would be no promise."""
    repository.edit(MAIN, {"- slots: $trained.taps": "- slots: {}"})
    result = repository.run("-k", "slots")
    assert result.ret == 1
    assert "slots promises nothing: name taps, such as $trained.taps" in flat(result.stdout.str())
