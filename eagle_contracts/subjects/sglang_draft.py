"""`sglang.draft`: what SGLang's real EAGLE-3 draft class reads at its first step and at later ones.

The states of a capture are handed to the real worker in place of what the target's forward pass gives, so that `swap`,
`drop` and `slots` act on them. Where this run's own target hands over another shape than the capture recorded, the
draft gets that: it is what serving would do with this config. `request` runs in pytest's process, all else in a worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.subjects.draft_weights import CLASSES
from eagle_contracts.subjects.protocol import Subject

PARAMETERS: Mapping[str, str] = {
    "layer_ids": "the list written to eagle_config.eagle_aux_hidden_state_layer_ids of the draft's config.json",
}
OPTIONAL: Mapping[str, str] = {
    "config": "keys to set in the draft's config.json after that; null takes a key out, maps are merged",
    "slots": "which slots of the states the draft is given, in this order; all of them if left out",
}
HEAD = 0.5
"""The part of the target's vocabulary that the twin of a draft with a vocabulary of its own keeps."""


def request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    """Return the draft's config as the contract has it, and as its weights were trained; in pytest's process."""
    from eagle_contracts.spec.errors import fail
    from eagle_contracts.twin import with_layer_ids

    trained = dict(twin.draft)
    architecture = (trained.get("architectures") or [""])[0]
    if architecture not in CLASSES:
        known = " and ".join(CLASSES)
        raise fail(
            given["layer_ids"].position, f"sglang.draft knows {known}, and the draft's config has {architecture!r}"
        )
    if trained.get("target_hidden_size"):
        trained["target_hidden_size"] = twin.target["hidden_size"]
    if trained.get("draft_vocab_size"):
        trained["draft_vocab_size"] = int(trained["vocab_size"] * HEAD)
    config = with_layer_ids(trained, given["layer_ids"].data)
    if "config" in given:
        config = merged(config, given["config"].data)
    slots = given["slots"].data if "slots" in given else None
    return {"draft": config, "trained": trained, "seed": twin.seed, "slots": slots}


def merged(config: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    """Merge changes into a config: maps key by key, null takes a key out (RFC 7386)."""
    out = dict(config)
    for key, value in dict(changes).items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping):
            inner = out.get(key)
            out[key] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            out[key] = value
    return out


SUBJECT = Subject(
    name="sglang.draft",
    engine="sglang",
    parameters=PARAMETERS,
    optional=OPTIONAL,
    prepare="eagle_contracts.subjects.sglang_capture:prepare",
    gate="eagle_contracts.subjects.sglang_capture:gate",
    observe=f"{__name__}:observe",
    promises=("first_step", "later_steps", "fc_in", "pairing", "config", "reference"),
    request=request,
    on_device=True,
    reads=True,
)


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Run the real draft on the recorded states; an exception of the engine's own is a result too."""
    from eagle_contracts.subjects import draft_weights, sglang_draft_worker, sglang_engine, tensors, twin_weights
    from eagle_contracts.subjects.sglang_capture import refusal_of
    from eagle_contracts.workers import standins

    folder, draft = Path(params["folder"]), Path(params["out"]) / "draft"
    prompts = twin_weights.read_manifest(folder)["prompts"]
    hidden = twin_weights.candidates(folder)[0][1].shape[-1]
    recorded = _recorded(params)
    slots = recorded.shape[1] // hidden
    draft_weights.write(draft, params["draft"], params["trained"], slots, params["seed"])
    feed = _Feed(recorded, given=_broken(recorded, hidden, params))
    seen: dict[str, Any] = {"slots_recorded": slots, "target_width": hidden}
    try:
        worker = sglang_draft_worker.DraftWorker(folder / "target", draft, params["architecture"])
        seen |= _readers(worker, params, hidden)
        worker.run(prompts, feed)
    except sglang_engine.EngineRefused as refusal:
        return {"refused": refusal_of(refusal), **seen, **feed.seen(), "rows": 0}
    if standins.USED:
        raise standins.StandInUsed(f"the engine used stand-ins: {', '.join(sorted(set(standins.USED)))}")
    first = worker.records[0]
    tensors.save(Path(params["out"]), {"hidden_states": first["read"]}, prompts)
    return {"refused": None, **seen, **feed.seen(), **_measured(worker, feed, prompts, params)}


class _Feed:
    """What the draft is given in place of the target's states, and what the target had for it."""

    def __init__(self, recorded: Any, given: Any) -> None:
        self._recorded, self._given = recorded, given
        self.fed: Any = None
        self._own: Any = None

    def __call__(self, own: Any) -> Any:
        self._own = own
        self.fed = self._given if own is not None and own.shape == self._recorded.shape else own
        return self.fed

    def seen(self) -> dict[str, Any]:
        """Return both widths, and how far the target's own states are from the recorded ones."""
        from eagle_contracts.subjects.twin_weights import row_error

        if self._own is None:
            return {"fed_width": None if self.fed is None else self.fed.shape[-1], "own_width": None, "own_error": None}
        alike = self._own.shape == self._recorded.shape
        error = row_error(self._own.float(), self._recorded.float()) if alike else None
        return {"fed_width": self.fed.shape[-1], "own_width": self._own.shape[-1], "own_error": error}


def _recorded(params: dict[str, Any]) -> Any:
    """Return the states of the contract read by `from`, [tokens of all requests, slots x hidden]."""
    import torch

    from eagle_contracts.subjects import tensors

    if set(params["inputs"]) != {"states"}:
        raise LookupError(f"sglang.draft reads from: {{states: ...}}, and was given {', '.join(params['inputs'])}")
    return torch.cat([named["hidden_states"] for named in tensors.load(Path(params["inputs"]["states"]))])


def _broken(recorded: Any, hidden: int, params: dict[str, Any]) -> Any:
    """Return the states as the draft is to get them: slots chosen, exchanged or left out."""
    import torch

    parts = list(recorded.split(hidden, dim=1))
    broken = params.get("break", {})
    if "swap" in broken:
        one, other = (_slot(name, len(parts)) for name in broken["swap"])
        parts[one], parts[other] = parts[other], parts[one]
    if "drop" in broken:
        parts.pop(_slot(broken["drop"], len(parts)))
    if params.get("slots") is not None:
        parts = [parts[_slot(f"slot_{n}", len(parts))] for n in params["slots"]]
    return torch.cat(parts, dim=1)


def _slot(name: str, count: int) -> int:
    known = [f"slot_{n}" for n in range(count)]
    if name not in known:
        raise LookupError(f"the states have {', '.join(known)}, and no {name}")
    return known.index(name)


def _readers(worker: Any, params: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Return what each reader of the draft's config made of it, and what is written where."""
    config = params["draft"]
    nested = config.get("eagle_config")
    return {
        "draft_class": type(worker.model).__name__,
        "fc_in": worker.fc_width(),
        "draft_width": config["hidden_size"],
        "readers": {
            "ids": worker.ids_read(),
            "fc": worker.fc_width() / hidden,
            "buffer": worker.buffer_width() / hidden,
        },
        "written": {
            "use_aux_hidden_state": nested.get("use_aux_hidden_state", True) if isinstance(nested, Mapping) else True,
            **{f"eagle_config.{k}": v for k, v in _named(nested).items()},
            **_named(config),
        },
    }


def _named(config: Any) -> dict[str, Any]:
    names = ("eagle_aux_hidden_state_layer_ids", "num_aux_hidden_states")
    return {name: config[name] for name in names if name in config} if isinstance(config, Mapping) else {}


def _measured(worker: Any, feed: _Feed, prompts: list[list[int]], params: dict[str, Any]) -> dict[str, Any]:
    """Return what every step read and gave, and the first step's slots identified."""
    from eagle_contracts.subjects import sglang_capture

    first = worker.records[0]
    return {
        "steps": [_step(record) for record in worker.records],
        "pairs": _pairs(worker, feed, prompts),
        "fed_back": _fed_back(worker.records),
        "reference": _compared(worker, feed, prompts, params),
        **sglang_capture.identified(first["fc"][0] if first["fc"] else first["read"], Path(params["folder"]), params),
    }


def _step(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "mode": record["mode"],
        "read": list(record["read"].shape),
        "fc": [list(one.shape) for one in record["fc"]],
        "tokens": record["tokens"],
        "positions": record["positions"],
    }


def _pairs(worker: Any, feed: _Feed, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Return each request's pairs at the first step: tokens and positions, wanted and seen, and the states' error."""
    out, start = [], 0
    first = worker.records[0]
    for prompt, sampled in zip(prompts, worker.sampled, strict=True):
        here = slice(start, start + len(prompt))
        out.append(
            {
                "wanted": [*prompt[1:], sampled],
                "tokens": first["tokens"][here],
                "positions": first["positions"][here],
                "error": float((first["read"][here] - feed.fed[here]).abs().max()),
            }
        )
        start += len(prompt)
    return out


def _fed_back(records: list[dict[str, Any]]) -> list[float | None]:
    """Return how far what each later step read is from what the step before handed on; None for another shape."""
    return [
        float((later["read"] - before["hidden"]).abs().max()) if later["read"].shape == before["hidden"].shape else None
        for before, later in itertools.pairwise(records)
    ]


def _compared(worker: Any, feed: _Feed, prompts: list[list[int]], params: dict[str, Any]) -> list[Any] | None:
    """Return, by step, the largest relative errors of logits and hidden states over requests.

    None where the first step did not read what `fc` takes: then there is no such step to compare with.
    """
    from eagle_contracts.subjects import draft_reference

    fed = feed.fed.float()
    reference = draft_reference.Reference(
        Path(params["out"]) / "draft", params["trained"], Path(params["folder"]) / "target"
    )
    if fed.shape[-1] != reference.weights["fc.weight"].shape[1]:
        return None
    out = [{"logits": 0.0, "hidden": 0.0} for _ in worker.records]
    start = 0
    for number, (prompt, sampled) in enumerate(zip(prompts, worker.sampled, strict=True)):
        steps = reference.steps(prompt, fed[start : start + len(prompt)], sampled, len(worker.records))
        for worst, step, record in zip(out, steps, worker.records, strict=True):
            for what in ("logits", "hidden"):
                worst[what] = max(worst[what], _error(record[what][number], step[what]))
        start += len(prompt)
    return out


def _error(x: Any, h: Any) -> float:
    """Return the relative L2 error; 1e30 for what is no number."""
    error = float((x.float() - h).norm() / h.norm())
    return error if error == error else 1e30
