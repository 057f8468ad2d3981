"""What comments of patches and stages say of their tensors, beside what was measured: nobody believes them again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"(?<![=:>] )(?<!is )\b(?:aux_\d+|slot[ _]\d+|hs\[\d+\]|final(?! norm))(?![\w\[])")
_VALUE = re.compile(
    r"\b(?P<embed>embed(?:ding)?s?)\b"
    r"|(?P<normed>\b(?:after|with|post)[ -](?:the )?(?:final )?norm\b|\bnormed\b)"
    r"|\b(?P<noun>layers?|blocks?|outputs?(?: of layers?)?|h)\s*\[?\s*"
    r"(?P<numbers>-?\d+(?:\s*,\s*(?:and\s+)?-?\d+|\s+and\s+-?\d+)*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One thing that a comment says of one tensor."""

    line: int
    name: str
    words: str


def claims(source: str) -> Iterator[Said]:
    """Yield what comments say of named tensors: `aux_0: layer 2`, `hs[0] = embed`, `aux_0, aux_1: layers 2, 30`."""
    for number, line in enumerate(source.splitlines(), start=1):
        _, mark, comment = line.partition("#")
        if mark:
            yield from _pairs(number, comment)


def _pairs(line: int, comment: str) -> Iterator[Said]:
    """Pair names with what is said of them: one after each name, or as many after the last as there are names."""
    found = list(_NAME.finditer(comment))
    if not found:
        return
    ends = [*(match.start() for match in found[1:]), len(comment)]
    after = [list(_words(comment[match.end() : end])) for match, end in zip(found, ends, strict=True)]
    if not any(after[:-1]) and len(after[-1]) == len(found):
        after = [[words] for words in after[-1]]
    for match, words in zip(found, after, strict=True):
        if len(words) == 1:
            yield Said(line=line, name=match.group(), words=words[0])


def _words(comment: str) -> Iterator[str]:
    for match in _VALUE.finditer(comment):
        if match["embed"]:
            yield match["embed"]
        elif match["normed"]:
            yield match["normed"]
        else:
            yield from (_counted(match["noun"], n) for n in re.findall(r"-?\d+", match["numbers"]))


def _counted(noun: str, number: str) -> str:
    """Return one of a list's numbers in the comment's own words: a state, a layer and an output are three things."""
    singular = " ".join(word.removesuffix("s") for word in noun.lower().split())
    return f"h[{number}]" if singular == "h" else f"{singular} {number}"


def beside(source: str, shown: str, held: Mapping[str, str]) -> list[str]:
    """Return lines `FILE:LINE  NAME: says WORDS, holds STATE` for the tensors that were measured."""
    lines = []
    for said in claims(source):
        name = said.name.replace("slot_", "slot ")
        if name in held:
            lines.append(f"{shown}:{said.line}  {name}: says {said.words}, holds {held[name]}")
    return lines
