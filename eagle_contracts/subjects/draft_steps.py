"""What every step of a draft read and gave, held against what it was to read and against a plain step.

Runs inside a worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.subjects import draft_reference, row_by_row

SWITCHES = ("norm_before_residual", "norm_output")
"""Keys that change what a step computes and no tensor's shape, so that an engine can ignore one without a word."""
NEAR, REDUCED_NEAR = 1e-4, 2e-2
"""How far an engine may be from a plain step that computes the same, in float32 and in fewer bits."""


class Steps:
    """A worker's records after a run over prompts.

    `fed` is what was handed to the draft, and `slots` what `fc` read of it: the states themselves where only the
    draft's own norms stand between the two.
    """

    def __init__(self, worker: Any, fed: Any, prompts: list[list[int]], params: Mapping[str, Any], hidden: int) -> None:
        self._worker, self._fed, self._prompts, self._params = worker, fed, prompts, params
        self._hidden = hidden
        self._records = worker.records
        self._near = NEAR if "float32" in str(self._records[0]["read"].dtype) else REDUCED_NEAR
        self._reference = self._plain({})
        self.slots, self._strange = self._read()

    def measured(self) -> dict[str, Any]:
        """Return each step, the pairs, what was fed back, and the errors against a plain step."""
        reference = self._compared(self._reference)
        return {
            "steps": [_step(record) for record in self._records],
            "strange": self._strange,
            "pairs": [self._pair(number) for number in range(len(self._prompts))],
            "later": list(self._later()),
            "fed_back": _fed_back(self._records),
            "reference": reference,
            "behaves": None if reference is None else self._behaves(reference),
        }

    def _plain(self, changes: Mapping[str, bool]) -> Any:
        config = {**self._params["trained"], **changes}
        return draft_reference.Reference(
            Path(self._params["out"]) / "draft", config, Path(self._params["folder"]) / "target"
        )

    def _read(self) -> tuple[Any, dict[str, Any] | None]:
        """Return the slots that `fc` read, and the first row that is not as a plain step would give it.

        Both sides of that comparison are of this run, so each row is held to it: no median is needed.
        """
        first = self._records[0]
        if not first["fc"]:
            return first["read"], None
        read = first["fc"][0]
        if self._fed.shape != read.shape:
            return read, None
        wanted, lengths = self._reference.before_fc(self._fed.float()), [len(prompt) for prompt in self._prompts]
        strange = row_by_row.first_strange(read.float(), wanted, lengths, self._hidden, self._near)
        if strange is None:
            return self._fed, None
        normed = not bool((wanted == self._fed).all())
        return (read if not normed or 2 * strange["rows"] > strange["of"] else self._fed), strange

    def _span(self, number: int) -> slice:
        start = sum(map(len, self._prompts[:number]))
        return slice(start, start + len(self._prompts[number]))

    def _pair(self, number: int) -> dict[str, Any]:
        """Return a request's pairs at the first step: tokens and positions, wanted and seen, and the states' error."""
        here, first = self._span(number), self._records[0]
        return {
            "wanted": [*self._prompts[number][1:], self._worker.sampled[number]],
            "tokens": first["tokens"][here],
            "positions": first["positions"][here],
            "error": _apart(first["read"][here], self._fed[here]),
        }

    def _later(self) -> Iterator[list[dict[str, int]]]:
        """Yield for each later step, by request, its token and position, wanted and seen.

        Wanted is the likeliest token of the step before, as the target's vocabulary has it.
        """
        for ahead, (before, step) in enumerate(itertools.pairwise(self._records)):
            chosen = [self._reference.in_target_vocabulary(int(row.argmax())) for row in before["logits"]]
            yield [
                {
                    "wanted": chosen[number],
                    "token": step["tokens"][number],
                    "wanted_position": len(prompt) + ahead,
                    "position": step["positions"][number],
                }
                for number, prompt in enumerate(self._prompts)
            ]

    def _compared(self, reference: Any) -> list[dict[str, float]] | None:
        """Return, by step, the largest relative errors of logits and handed-on states over requests.

        The plain step is given what the engine's was: pairs and states are other promises' matter. None where the first
        step did not read what `fc` takes: then there is no such step to compare with.
        """
        if self.slots.shape[-1] != reference.weights["fc.weight"].shape[1]:
            return None
        out = [{"logits": 0.0, "hidden": 0.0} for _ in self._records]
        for number in range(len(self._prompts)):
            here, later = self._span(number), self._records[1:]
            tokens, positions = (
                [*self._records[0][what][here], *(record[what][number] for record in later)]
                for what in ("tokens", "positions")
            )
            read = draft_reference.Read(self.slots[here].float(), tokens, positions)
            for worst, step, record in zip(out, reference.steps(read, len(out)), self._records, strict=True):
                for what in ("logits", "hidden"):
                    worst[what] = max(worst[what], _error(record[what][number], step[what]))
        return out

    def _behaves(self, reference: list[dict[str, float]]) -> dict[str, bool] | None:
        """Return the switches with which a plain step gives the engine's numbers; None if it does with none."""
        trained = {name: bool(self._params["trained"].get(name)) for name in SWITCHES}
        if _worst(reference) <= self._near:
            return trained
        for values in itertools.product((False, True), repeat=len(SWITCHES)):
            switches = dict(zip(SWITCHES, values, strict=True))
            found = None if switches == trained else self._compared(self._plain(switches))
            if found is not None and _worst(found) <= self._near:
                return switches
        return None


def _step(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "mode": record["mode"],
        "read": list(record["read"].shape),
        "fc": [list(one.shape) for one in record["fc"]],
    }


def _fed_back(records: list[dict[str, Any]]) -> list[float | None]:
    """Return how far what each later step read is from what the step before handed on; None for another shape."""
    return [_apart(later["read"], before["hidden"]) for before, later in itertools.pairwise(records)]


def _apart(x: Any, h: Any) -> float | None:
    """Return the largest difference of any value, 1e30 for what is no number; None for another shape."""
    if x.shape != h.shape:
        return None
    apart = float((x - h).abs().max())
    return apart if apart == apart else 1e30


def _worst(errors: list[dict[str, float]]) -> float:
    return max(max(step.values()) for step in errors)


def _error(x: Any, h: Any) -> float:
    """Return the relative L2 error; 1e30 for what is no number."""
    error = float((x.float() - h).norm() / h.norm())
    return error if error == error else 1e30
