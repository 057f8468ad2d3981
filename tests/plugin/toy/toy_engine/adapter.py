"""`toy.capture` and `toy.faulty`: adapters of a user's own package, found by their entry points.

Every start and every observation is a line in the file that TOY_DIARY names, so that a story can tell what was run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from eagle_contracts.subjects.protocol import Subject

NUMBER = 7


def _capture_request(given: Mapping[str, Any], twin: Any) -> dict[str, Any]:
    return {"ids": given["layer_ids"].data, "offset": given["offset"].data, "act": None}


def _faulty_request(given: Mapping[str, Any], twin: Any) -> dict[str, Any]:
    return {"ids": given["layer_ids"].data, "offset": 1, "act": given["act"].data}


def _baseline(twin: Any) -> dict[str, Any]:
    return {"ids": [1], "offset": 1, "act": None}


CAPTURE = Subject(
    name="toy.capture",
    engine="toy",
    parameters={"layer_ids": "the list of ids to capture", "offset": "what the engine adds to an id: 0 or 1"},
    prepare=f"{__name__}:prepare",
    gate=f"{__name__}:gate",
    observe=f"{__name__}:observe",
    request=_capture_request,
    baseline=_baseline,
    remedy=("layer_ids", "draft.layer_ids"),
)

FAULTY = Subject(
    name="toy.faulty",
    engine="toy",
    parameters={"layer_ids": "the list of ids to capture", "act": "what goes wrong: raise, die, kill_worker, hang"},
    prepare=f"{__name__}:prepare",
    gate=f"{__name__}:gate",
    observe=f"{__name__}:observe",
    request=_faulty_request,
    baseline=_baseline,
)


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Say what was imported."""
    _note("start")
    return {"toy": "1.0", "overlay": None}


def gate(params: dict[str, Any]) -> dict[str, Any]:
    """Agree with the reference, as far as TOY_DISAGREES lets it."""
    worst = float(os.environ.get("TOY_DISAGREES", "0"))
    return {"worst": worst, "at": 4, "states": params["layers"] + 1, "transformers": "5.0"}


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Capture what the ids name, or do what the act says."""
    from . import model

    _note(f"observe {params['ids']}")
    if params["act"]:
        return model.misbehave(params["act"])
    return model.capture(params["ids"], params["offset"], params["declared"])


def _note(what: str) -> None:
    diary = os.environ.get("TOY_DIARY")
    if diary:
        with open(diary, "a") as file:
            file.write(f"{os.getpid()} {what}\n")
