"""Adapters of a user's own package, found by their entry points: one that captures, and two that read what it left.

Every start and every observation is a line in the file that DIARY_OF_TOY names, so that a story can tell what was run.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eagle_contracts.subjects.protocol import Subject

NUMBER = 7
LEFT = "slots.json"
"""The file in which an observation leaves its slots for those that read it."""


def _capture_request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    return {"ids": given["layer_ids"].data, "offset": given["offset"].data, "act": None}


def _faulty_request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    return {"ids": given["layer_ids"].data, "offset": 1, "act": given["act"].data}


def _stage_request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    return {"stage": (folder / str(given["stage"].data)).read_text(encoding="utf-8")}


def _parity_request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    return {}


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
    on_device=True,
)

FAULTY = Subject(
    name="toy.faulty",
    engine="toy",
    parameters={
        "layer_ids": "the list of ids to capture",
        "act": "what goes wrong: raise, flake, die, die_once, kill_worker, hang, programs, refuse, nap, full, "
        "full_in_worker",
    },
    prepare=f"{__name__}:prepare",
    gate=f"{__name__}:gate",
    observe=f"{__name__}:observe",
    request=_faulty_request,
    baseline=_baseline,
)

STAGE = Subject(
    name="toy.stage",
    engine="toy",
    parameters={"stage": "a file with a function `arrange` from slots to slots, relative to the pipeline"},
    prepare=f"{__name__}:prepare",
    observe=f"{__name__}:observe_stage",
    request=_stage_request,
    reads=True,
)

DUMP = Subject(
    name="toy.dump",
    engine="toy",
    parameters={},
    prepare=f"{__name__}:prepare",
    gate=f"{__name__}:gate",
    observe=f"{__name__}:observe_dump",
    request=_parity_request,
)

# What a run concludes depends on these names: facts are taken from the framework's own adapters alone.
SERVING = replace(CAPTURE, name="sglang.capture")

PARITY = Subject(
    name="compare",
    engine="toy",
    parameters={},
    prepare=f"{__name__}:prepare",
    observe=f"{__name__}:observe_parity",
    request=_parity_request,
    reads=True,
)


class NoDevice(RuntimeError):
    """What an adapter raises where its environment cannot use the run's device."""


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Put the overlays on the engine, and say what was imported, after TOY_START_SECONDS."""
    from eagle_contracts.workers import overlays

    _note("start")
    if (device := params.get("device", "cpu")) != "cpu":
        _note(f"on {device} {os.environ['CUDA_VISIBLE_DEVICES']}")
    elif "CUDA_VISIBLE_DEVICES" in os.environ.get("TOY_TELLS", ""):
        _note(f"sees GPUs '{os.environ['CUDA_VISIBLE_DEVICES']}'")
    if device in os.environ.get("TOY_LACKS", "").split(","):
        raise NoDevice("torch 2.0 in this environment sees no GPU: it is a build for CPUs")
    time.sleep(float(os.environ.get("TOY_START_SECONDS", "0")))
    return {"toy": "1.0", "overlays": [overlays.install(overlay, engine="toy") for overlay in params["overlays"]]}


def gate(params: dict[str, Any]) -> dict[str, Any]:
    """Write the twin's manifest, and agree with the reference as far as TOY_DISAGREES lets it."""
    _note("gate")
    if "TOY_REFUSES" in os.environ:
        raise ValueError(os.environ["TOY_REFUSES"])
    killed = Path(os.environ.get("TOY_KILLS_AT_GATE", "/nowhere"))
    if killed.exists():
        if not killed.read_text(encoding="utf-8"):
            killed.unlink()
        os.kill(os.getppid(), 9)
        time.sleep(300)
    folder = Path(params["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"prompts": params["twin"]["prompts"]}
    (folder / "twin.json").write_text(json.dumps(manifest), encoding="utf-8")
    worst = float(os.environ.get("TOY_DISAGREES", "0"))
    return {"worst": worst, "at": 4, "states": params["layers"] + 1, "transformers": "5.0"}


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Capture what the ids name, or do what the act says."""
    from . import model

    _note(f"observe {params['ids']}")
    if params["act"] and (told := model.misbehave(params["act"], Path(params["out"]))):
        return told
    held = model.capture(params["ids"], params["offset"] + _shift())
    return _leave(params, held) if isinstance(held, list) else held


def observe_stage(params: dict[str, Any]) -> dict[str, Any]:
    """Arrange the slots that another observation left, after the break that the control asks for."""
    (place,) = params["inputs"].values()
    _note("stage" + _told(params))
    space: dict[str, Any] = {}
    exec(compile(params["stage"], "stage", "exec"), space)
    return _leave(params, space["arrange"](_broken(_left(place), params)))


def observe_dump(params: dict[str, Any]) -> dict[str, Any]:
    """Write two files a request, as a dump patch would, of values that are a state's of no model."""
    import torch

    from eagle_contracts.subjects import tensors

    _note("dump")
    prompts = json.loads((Path(params["folder"]) / "twin.json").read_text(encoding="utf-8"))["prompts"]
    requests = []
    for number, prompt in enumerate(prompts):
        place = Path(params["out"], "files", "base", str(number))
        place.mkdir(parents=True)
        ids = torch.arange(8 * len(prompt), dtype=torch.float32).reshape(-1, 8) + 1000 * number
        requests.append({"aux_0": ids, "aux_1": -ids})
        for name, tensor in requests[-1].items():
            torch.save(tensor, place / f"{name}.pt")
    tensors.save_named(Path(params["out"]), requests)
    return {"refused": None, "rows": [{name: len(t) for name, t in named.items()} for named in requests]}


def observe_parity(params: dict[str, Any]) -> dict[str, Any]:
    """Compare what two observations left, slot by slot."""
    from . import model

    _note("parity" + _told(params))
    sides = {name: _left(place) for name, place in params["inputs"].items()}
    sides["serve"] = _broken(sides["serve"], params)
    between = [
        {"error": model.match(one, other, 0).error, "dtypes": ["float32", "float32"]}
        for one, other in zip(sides["train"], sides["serve"], strict=False)
    ]
    reports = {name: model.seen(slots, None)["slots"] for name, slots in sides.items()}
    return {"refused": None, "sides": reports, "between": between}


def _left(place: str) -> list[Any]:
    slots: list[Any] = json.loads(Path(place, LEFT).read_text(encoding="utf-8"))
    return slots


def _told(params: dict[str, Any]) -> str:
    return f" {params['break']['swap']}" if "break" in params else ""


def _broken(slots: list[Any], params: dict[str, Any]) -> list[Any]:
    """Exchange the slots that a control names."""
    if "break" in params:
        one, other = (int(name.removeprefix("slot_")) for name in params["break"]["swap"])
        slots[one], slots[other] = slots[other], slots[one]
    return slots


def _leave(params: dict[str, Any], slots: list[Any]) -> dict[str, Any]:
    from . import model

    Path(params["out"], LEFT).write_text(json.dumps(slots), encoding="utf-8")
    return model.seen(slots, params["declared"])


def _shift() -> int:
    """Return what the installed engine adds to every id, where there is one: its source is what a story edits."""
    try:
        return int(importlib.import_module("toy_core").SHIFT)
    except ImportError:
        return 0


def _note(what: str) -> None:
    diary = os.environ.get("DIARY_OF_TOY")
    if diary:
        with open(diary, "a") as file:
            file.write(f"{os.getpid()} {what}\n")
