"""Comments: what they say of named tensors, beside what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_contracts.comments import Said, beside, claims

STORIES: list[tuple[str, list[tuple[str, str]]]] = [
    ("# aux_0: layer 2", [("aux_0", "layer 2")]),
    ("# aux_0, aux_1, aux_2: layers 2, 30, 58", [("aux_0", "layer 2"), ("aux_1", "layer 30"), ("aux_2", "layer 58")]),
    (
        "# aux_0, aux_1, aux_2: the outputs of layers 2, 30 and 58",
        [("aux_0", "output of layer 2"), ("aux_1", "output of layer 30"), ("aux_2", "output of layer 58")],
    ),
    ("# hs[0] = layer 2, hs[1] = layer 30, hs[3] = final", [("hs[0]", "layer 2"), ("hs[1]", "layer 30")]),
    ("# hs[0] = embed, hs[1] = layer 2", [("hs[0]", "embed"), ("hs[1]", "layer 2")]),
    ("# aux_0, aux_1: the embedding, layer 2", [("aux_0", "embedding"), ("aux_1", "layer 2")]),
    ("# aux_0 is layer -1", [("aux_0", "layer -1")]),
    ("# aux_0 = h[3], aux_1 = h[31]", [("aux_0", "h[3]"), ("aux_1", "h[31]")]),
    ("# aux_0 comes from block 2", [("aux_0", "block 2")]),
    ("# final: after the final norm", [("final", "after the final norm")]),
    ("# slot 0 is layer 2, slot_1 is layer 30", [("slot 0", "layer 2"), ("slot_1", "layer 30")]),
    ("names = load()  # aux_0: layer 2", [("aux_0", "layer 2")]),
    ("# aux_0, aux_1, aux_2: layers 2, 30", []),
    ("# aux_0 and aux_1 go to the trainer", []),
    ("# layers 2, 30, 58 as the paper says", []),
    ("# take the final norm of layer 60", []),
    ("aux_0 = layer(2)", []),
    ("x = y", []),
    ("", []),
]


@pytest.mark.parametrize(("source", "found"), STORIES, ids=[source or "nothing" for source, _ in STORIES])
def test_what_a_comment_says_of_a_tensor(source: str, found: list[tuple[str, str]]) -> None:
    """Names and claims are paired one by one or list by list; what cannot be paired is left out."""
    assert [(said.name, said.words) for said in claims(source)] == found


def test_a_claim_has_the_line_of_its_comment() -> None:
    """Lines are counted from one, as editors do."""
    assert list(claims("import os\n\nx = 1  # aux_0: layer 2\n")) == [Said(line=3, name="aux_0", words="layer 2")]


def test_claims_stand_beside_what_was_measured() -> None:
    """Only tensors that were measured are listed, each with the comment's own words."""
    source = "# aux_0: layer 2\n# aux_7: layer 9\n# slot_1: embed\n"
    assert beside(source, "patches/dump.py", {"aux_0": "h[3] (output of layer 2)", "slot 1": "h[31]"}) == [
        "patches/dump.py:1  aux_0: says layer 2, holds h[3] (output of layer 2)",
        "patches/dump.py:3  slot 1: says embed, holds h[31]",
    ]


words = st.sampled_from(["aux_0", "aux_", "hs[1]", "hs[", "layer", "layers", "-1", "2", ",", "and", "#", ":", "h", "["])


@given(st.one_of(st.text(), st.lists(words).map(" ".join).map("# {}".format)))
def test_no_source_is_too_strange(source: str) -> None:
    """Whatever stands in a file, reading its comments ends, and every claim is of a line of it."""
    lines = source.splitlines()
    for said in claims(source):
        assert said.name in lines[said.line - 1]
