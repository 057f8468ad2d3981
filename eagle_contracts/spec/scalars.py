"""Plain scalars by the core schema of YAML 1.2: `yes` and `2024-01-01` are text, `010` is ten."""

from __future__ import annotations

import re
from typing import Final

_INT: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS: Final = 100
_SPECIAL: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def resolve_plain(text: str) -> bool | int | float | str | None:
    """Return what an unquoted scalar means; raises ValueError for a number too long to read."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if text[0] not in "+-.0123456789":
        return text
    if len(text) > _MAX_DIGITS and (_INT.fullmatch(text) or _OCTAL.fullmatch(text) or _HEX.fullmatch(text)):
        raise ValueError("too long")
    if _INT.fullmatch(text):
        return int(text, 10)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text
