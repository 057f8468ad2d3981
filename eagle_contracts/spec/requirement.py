"""Which versions of an engine an environment accepts: `sglang==0.5.9`, `sglang>=0.5.9,<0.6`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_CLAUSE = re.compile(r"(==|!=|>=|<=|<|>)([0-9][0-9A-Za-z.+]*)")
_VERSION = re.compile(
    r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)*))?"
)
_Key = tuple[tuple[int, ...], tuple[int, int], int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A distribution's name and the versions accepted; an empty specifier accepts every version."""

    name: str
    specifier: str

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read `name`, `name==version` or `name>=version,<version`; raises ValueError with a sentence."""
        match = _NAME.match(text)
        if match is None:
            raise ValueError(f"'{text}' does not start with the name of a package")
        rest = text[match.end() :].replace(" ", "")
        if rest:
            for clause in rest.split(","):
                _check_clause(clause)
        return cls(name=match.group(), specifier=rest)

    def __str__(self) -> str:
        return f"{self.name}{self.specifier}"

    @property
    def pinned(self) -> str | None:
        """Return the version if exactly one is accepted (a single `==`), else None."""
        clauses = _CLAUSE.findall(self.specifier)
        return clauses[0][1] if len(clauses) == 1 and clauses[0][0] == "==" else None

    def contains(self, version: str) -> bool:
        """Tell whether a version is accepted; a text that is no version is accepted by no clause.

        A local suffix (`+cpu`) counts only where the clause has one; `<0.6` leaves out pre-releases of 0.6.
        """
        return all(_accepts(operator, wanted, version) for operator, wanted in _CLAUSE.findall(self.specifier))


def _check_clause(clause: str) -> None:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise ValueError(f"'{clause}' is not a version clause")
    if _VERSION.fullmatch(match.group(2)) is None:
        raise ValueError(f"'{match.group(2)}' is not a version")


def _accepts(operator: str, wanted: str, version: str) -> bool:
    found, limit = _key(version), _key(wanted)
    if found is None or limit is None:
        return False
    same = found == limit and ("+" not in wanted or version.partition("+")[2] == wanted.partition("+")[2])
    before_final = operator == "<" and found[0] == limit[0] and limit[1] == _FINAL and limit[3] == _NO_DEV
    return {
        "==": same,
        "!=": not same,
        ">=": found >= limit,
        "<=": found <= limit,
        "<": found < limit and not before_final,
        ">": found > limit,
    }[operator]


_FINAL = (3, 0)
_NO_DEV = float("inf")
_STAGES = {"a": 0, "b": 1, "rc": 2}


def _key(version: str) -> _Key | None:
    """Return what orders versions as PEP 440 does, without epochs; None for a text that is no version."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    release = tuple(int(part) for part in match[1].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    stage = (_STAGES[match[2]], int(match[3])) if match[2] else _FINAL
    if match[5] and not match[2] and match[4] is None:
        stage = (-1, 0)
    post = int(match[4]) if match[4] is not None else -1
    return release, stage, post, int(match[5]) if match[5] else _NO_DEV
