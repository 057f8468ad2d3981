"""Data as a user would write it in one line of YAML."""

from __future__ import annotations


def show(data: object) -> str:
    """Return lists and maps in flow style, null and booleans in YAML's words, all else as text."""
    if isinstance(data, (list, tuple)):
        return f"[{', '.join(show(item) for item in data)}]"
    if isinstance(data, dict):
        return f"{{{', '.join(f'{key}: {show(item)}' for key, item in data.items())}}}"
    if data is None:
        return "null"
    return str(data).lower() if isinstance(data, bool) else str(data)


def found(data: object) -> str:
    """Return what a value is, for `not ...` at the end of a message."""
    if data is None:
        return "nothing"
    if isinstance(data, dict):
        return "a map"
    if isinstance(data, list):
        return "a list"
    if isinstance(data, str):
        return f"the text '{clip(data)}'"
    return clip(show(data))


def clip(text: str, width: int = 60) -> str:
    """Return text cut to `width` characters, without line breaks."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[:width]}..."
