"""A verdict as text of at most 100 columns: what was declared and seen, the pattern, the remedy, the next command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from eagle_contracts.observation import Side, SlotSeen
from eagle_contracts.report.columns import COLUMNS, fit, wrapped
from eagle_contracts.verdict import Mismatch, Remedy, SlotEvidence, Verdict

_WORD = re.compile(r"(?:--contracts-set )?(?:'[^']*'|[^\s'])+")
"""A word of a shell command as it is written here, quotes included; an option stays with its value."""


def render(verdict: Verdict) -> str:
    """Return the report of a verdict that did not pass; its first line reads `DIAGNOSIS: sentence`."""
    lines = [*_headline(verdict), *_details(verdict), *_context(verdict)]
    for mismatch in verdict.mismatches:
        if len(verdict.mismatches) > 1 or mismatch.sentence != verdict.sentence:
            lines += ["", *wrapped(f"{mismatch.diagnosis or 'inconclusive'}: {mismatch.sentence}")]
        lines += _mismatch(mismatch)
    if verdict.log:
        lines += ["", "Last lines printed:", *_log(verdict.log)]
    if verdict.remedy is not None:
        lines += ["", *_remedy(verdict.remedy)]
    if verdict.next_command:
        lines += ["", "then run:", *_command(verdict.next_command)]
    return "\n".join(lines)


def _headline(verdict: Verdict) -> list[str]:
    if verdict.reason == "spec":
        return fit(verdict.sentence).splitlines()
    name = verdict.diagnosis or (verdict.status if verdict.status == "inconclusive" else "")
    title = name or f"{verdict.status}({verdict.reason})"
    return wrapped(f"{title}: {verdict.sentence}")


def _details(verdict: Verdict) -> Iterator[str]:
    for detail in verdict.details:
        yield from wrapped(f"  {detail}", indent=4)


def _context(verdict: Verdict) -> Iterator[str]:
    if not verdict.context:
        return
    yield ""
    name_width = max(len(name) for name, _, _ in verdict.context)
    for name, value, where in verdict.context:
        line = f"{name:<{name_width}}  {value}"
        if where and len(line) + len(where) + 2 <= COLUMNS:
            yield f"{line}  {where}"
            continue
        yield from wrapped(line, indent=name_width + 2)
        if where:
            yield from wrapped(" " * (name_width + 2) + where, indent=name_width + 2)


def _mismatch(mismatch: Mismatch) -> Iterator[str]:
    for detail in mismatch.details:
        yield from ("", *wrapped(detail, indent=2))
    for slot in mismatch.slots:
        yield from ("", *_slot(slot))


def _slot(slot: SlotEvidence) -> Iterator[str]:
    seen = slot.seen
    held = "" if seen is None else seen.best.label if _is_identified(seen) and seen.best else _unidentified(slot)
    yield from wrapped(f"{slot.name}  {_head(slot, held)}", indent=8)
    if seen is None:
        return
    if seen.best is None:
        return
    runner_up = f", next best {seen.second.label} {seen.second.error:.1e}" if seen.second else ""
    yield from wrapped(
        f"        error {seen.best.label} {seen.best.error:.1e}{runner_up} (tolerance {seen.tolerance:.0e})", indent=8
    )
    yield from _sides(slot)
    if seen.declared is not None and seen.smallest_tolerance is not None and not _is_right(slot):
        helps = "" if seen.tolerance_would_help else ", and another state would still fit better"
        yield f"        smallest tolerance that would pass: {seen.smallest_tolerance:.1e}{helps}"
    if seen.worst_row is not None and seen.sink_rows:
        rows = ", ".join(map(str, seen.sink_rows))
        worst = f"worst row {seen.worst_row[0]} ({seen.worst_row[1]:.1e})"
        yield from wrapped(f"        {worst}; attention sinks in rows {rows}", indent=8)


def _head(slot: SlotEvidence, held: str) -> str:
    declared = slot.declared or "nothing"
    if slot.sides is None:
        return f"declared {declared} ({slot.position}), " + (f"holds {held}" if held else "and there is no such slot")
    one, other = slot.sides
    return f"{one} holds {declared}, {other} " + (f"holds {held}" if held else "has no such slot")


def _is_identified(seen: SlotSeen) -> bool:
    return seen.outcome == "identified"


def _unidentified(slot: SlotEvidence) -> str:
    seen = slot.seen
    assert seen is not None
    if seen.outcome == "inconclusive":
        return "a state that two candidates fit almost alike"
    if seen.outcome == "non_finite":
        return f"values that are not numbers ({seen.non_finite})"
    if seen.outcome in ("wrong_width", "wrong_rows"):
        return (
            f"[{seen.shape[0]}, {seen.shape[1]}] where [{seen.expected_shape[0]}, {seen.expected_shape[1]}] is wanted"
        )
    return "no known state"


def _is_right(slot: SlotEvidence) -> bool:
    seen = slot.seen
    return bool(seen and seen.outcome == "identified" and seen.best == seen.declared)


def _sides(slot: SlotEvidence) -> Iterator[str]:
    seen, names = slot.seen, slot.sides or ("declared", "observed")
    assert seen is not None
    if seen.declared_side is not None:
        yield f"        {names[0]:<8}  {_numbers(seen.declared_side)}"
    if seen.slot_side is not None:
        yield f"        {names[1]:<8}  {_numbers(seen.slot_side)}"


def _numbers(side: Side) -> str:
    values = " ".join(f"{value:>10.4g}" for value in side.first_values)
    return f"{values} ...  norm {side.median_row_norm:.4g}"


def _remedy(remedy: Remedy) -> Iterator[str]:
    for sentence in remedy.before:
        yield from wrapped(sentence)
    for ids in remedy.lists:
        yield f"write {remedy.key}: {list(ids)}"
        yield from wrapped(f"  at {remedy.where}; {remedy.sentence}")
    if not remedy.lists and remedy.sentence:
        yield from wrapped(remedy.sentence)


def _command(command: str) -> list[str]:
    """Break a command between its words, so that it can be copied whole."""
    if len(command) + 2 <= COLUMNS:
        return [f"  {command}"]
    lines = ["  "]
    for word in _WORD.findall(command):
        if len(lines[-1]) + len(word) + 2 > COLUMNS and lines[-1].strip():
            lines[-1] += "\\"
            lines.append("    ")
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]


def _log(log: str) -> Iterable[str]:
    for line in log.splitlines():
        yield f"  | {line[: COLUMNS - 4]}"
