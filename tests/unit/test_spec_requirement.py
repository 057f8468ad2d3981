"""Engine versions: a pin, a range, or any."""

from __future__ import annotations

import pytest

from eagle_contracts.spec.requirement import Requirement


def test_a_pin_names_one_version() -> None:
    """Only a single == pins."""
    assert Requirement.parse("sglang==0.5.9") == Requirement(name="sglang", specifier="==0.5.9")
    assert Requirement.parse("sglang==0.5.9").pinned == "0.5.9"
    assert Requirement.parse("sglang>=0.5.9,<0.6").pinned is None
    assert Requirement.parse("sglang").pinned is None
    assert str(Requirement.parse("sglang >= 0.5.9, < 0.6")) == "sglang>=0.5.9,<0.6"


@pytest.mark.parametrize(
    ("text", "version", "inside"),
    [
        ("sglang==0.5.9", "0.5.9", True),
        ("sglang==0.5.9", "0.5.9.0", True),
        ("sglang==0.5.9", "0.5.9.post1", False),
        ("sglang==0.5.9", "0.5.90", False),
        ("sglang==0.5.9.post1", "0.5.9.post1", True),
        ("torch==2.13.0", "2.13.0+cpu", True),
        ("torch==2.13.0+cpu", "2.13.0+cu126", False),
        ("torch==2.13.0+cpu", "2.13.0+cpu", True),
        ("sglang>=0.5.9,<0.6", "0.5.23", True),
        ("sglang>=0.5.9,<0.6", "0.5.8", False),
        ("sglang>=0.5.9,<0.6", "0.6", False),
        ("sglang>=0.5.9,<0.6", "0.6.0rc1", False),
        ("sglang>=0.5.9,<0.6", "0.5.23rc1", True),
        ("sglang>=0.5.9,<0.6", "0.5.9rc1", False),
        ("sglang>=0.5.9", "0.5.9.dev3", False),
        ("sglang>0.5.9", "0.5.9.post1", True),
        ("sglang<=0.5.9", "0.5.9", True),
        ("sglang!=0.5.9", "0.5.9", False),
        ("sglang!=0.5.9", "0.5.10", True),
        ("sglang", "0.1", True),
        ("sglang>=0.1", "unknown", False),
    ],
)
def test_a_range_holds_the_versions_between_its_ends(text: str, version: str, inside: bool) -> None:
    """Versions are compared as numbers, releases after their candidates."""
    assert Requirement.parse(text).contains(version) is inside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("==0.5.9", "'==0.5.9' does not start with the name of a package"),
        ("sglang=0.5.9", "'=0.5.9' is not a version clause"),
        ("sglang==0.5.*", "'==0.5.*' is not a version clause"),
        ("sglang>=0.5,", "'' is not a version clause"),
        ("sglang==0.5.x", "'0.5.x' is not a version"),
        ("sglang~=0.5", "'~=0.5' is not a version clause"),
        ("", "'' does not start with the name of a package"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    """No spelling is guessed at."""
    with pytest.raises(ValueError, match=r"is not a version|does not start") as caught:
        Requirement.parse(text)
    assert str(caught.value) == message
