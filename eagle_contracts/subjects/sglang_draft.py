"""`sglang.draft`: what SGLang's real EAGLE-3 draft class reads at its first step and at later ones.

The states of a capture are handed to the real worker in place of what the target's forward pass gives, so that `swap`,
`drop` and `slots` act on them. Where this run's own target hands over another shape than the capture recorded, the
draft gets that: it is what serving would do with this config. `request` runs in pytest's process, all else in a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle_contracts.subjects import draft_weights
from eagle_contracts.subjects.protocol import Subject

PARAMETERS: Mapping[str, str] = {
    "layer_ids": "the list written to the draft's config.json where it has its ids, else inside eagle_config; "
    "or default, for none",
}
OPTIONAL: Mapping[str, str] = {
    "config": "keys to set in the draft's config.json after that; null takes a key out, maps are merged",
    "slots": "which slots of the states the draft is given, in this order; all of them if left out",
}
READ = ("eagle_aux_hidden_state_layer_ids", "num_aux_hidden_states")
SAME = 1e-4
"""How far the target's own states may be from the recorded ones before they are identified themselves."""
HEAD = 0.5
"""The part of the target's vocabulary that the twin of a draft with a vocabulary of its own keeps."""


def request(given: Mapping[str, Any], twin: Any, folder: Path) -> dict[str, Any]:
    """Return the draft's config as the contract has it, and as its weights were trained; in pytest's process."""
    from eagle_contracts.spec.draft_config import BY_DEFAULT
    from eagle_contracts.spec.errors import fail
    from eagle_contracts.spec.references import check_ids
    from eagle_contracts.twin import with_layer_ids_in_place

    for key in ("layer_ids", "slots"):
        if key in given:
            check_ids(given[key], key)
    if "config" in given and not isinstance(given["config"].data, Mapping):
        raise fail(given["config"].position, "config is a map of what the draft's config.json is to hold instead")
    trained = _plain_rope(twin.draft)
    _check(trained, given["layer_ids"].position)
    if trained.get("draft_vocab_size"):
        trained["draft_vocab_size"] = int(trained["vocab_size"] * HEAD)
    config = with_layer_ids_in_place(trained, given["layer_ids"].data)
    if "config" in given:
        config = merged(config, given["config"].data)
    if trained["hidden_size"] != twin.target["hidden_size"] or trained.get("target_hidden_size"):
        trained["target_hidden_size"] = twin.target["hidden_size"]
    slots = given["slots"].data if "slots" in given else None
    by_default = given["layer_ids"].data == BY_DEFAULT
    return {"draft": config, "trained": trained, "seed": twin.seed, "slots": slots, "by_default": by_default}


def _check(draft: Mapping[str, Any], position: Any) -> None:
    """Refuse a draft of which no checkpoint can be written; raises `SpecError`."""
    from eagle_contracts.spec.draft_sizes import unusable
    from eagle_contracts.spec.errors import fail

    for wrong in unusable(draft):
        raise fail(position, f"in the draft's config {wrong.sentence}", wrong.write)


def _plain_rope(draft: Mapping[str, Any]) -> dict[str, Any]:
    """Return a draft's config whose positions turn as fast as its `rope_theta` says, without a scaling of them."""
    out = {key: value for key, value in draft.items() if key != "partial_rotary_factor"}
    parameters = out.get("rope_parameters")
    if isinstance(parameters, Mapping):
        kept = {key: parameters[key] for key in ("rope_theta",) if key in parameters}
        out["rope_parameters"] = {**kept, "rope_type": "default", "type": "default"}
        out["rope_scaling"] = None
    return out


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
    sources=("states",),
)


def observe(params: dict[str, Any]) -> dict[str, Any]:
    """Run the real draft on the recorded states; an exception of the engine's own is a result too."""
    from eagle_contracts.subjects import (
        draft_steps,
        sglang_capture,
        sglang_draft_worker,
        sglang_engine,
        tensors,
        twin_weights,
    )
    from eagle_contracts.workers import standins

    folder, draft = Path(params["folder"]), Path(params["out"]) / "draft"
    prompts = twin_weights.read_manifest(folder)["prompts"]
    hidden = twin_weights.candidates(folder)[0][1].shape[-1]
    recorded = _recorded(params)
    slots = recorded.shape[1] // hidden
    draft_weights.write(draft, params["draft"], params["trained"], slots, params["seed"])
    feed = _Feed(recorded, given=_broken(recorded, hidden, params), hidden=hidden)
    seen: dict[str, Any] = {"slots_recorded": slots, "target_width": hidden, "config": params["draft"]}
    try:
        worker = sglang_draft_worker.DraftWorker(folder / "target", draft, params["architecture"])
        seen |= _readers(worker, params, hidden)
        worker.run(prompts, feed)
    except sglang_engine.EngineRefused as refusal:
        return {"refused": sglang_capture.refusal_of(refusal), **seen, **feed.seen(), "rows": 0}
    if feed.is_other():
        seen["own"] = sglang_capture.identified(feed.own, folder, params, prompts)
    if standins.USED:
        raise standins.StandInUsed(f"the engine used stand-ins: {', '.join(sorted(set(standins.USED)))}")
    steps = draft_steps.Steps(worker, feed.fed, prompts, params, hidden)
    tensors.save(Path(params["out"]), {"hidden_states": steps.slots}, prompts)
    found = sglang_capture.identified(steps.slots, folder, params, prompts)
    return {"refused": None, **seen, **feed.seen(), **steps.measured(), **found}


class _Feed:
    """What the draft is given in place of the target's states, and what the target had for it."""

    def __init__(self, recorded: Any, given: Any, hidden: int) -> None:
        self._recorded, self._given, self._hidden = recorded, given, hidden
        self.fed: Any = None
        self.own: Any = None

    def __call__(self, own: Any) -> Any:
        self.own = own
        self.fed = self._given if own is not None and own.shape == self._recorded.shape else own
        return self.fed

    def seen(self) -> dict[str, Any]:
        """Return both widths, and how far the target's own states are from the recorded ones."""
        if self.own is None:
            return {"fed_width": None if self.fed is None else self.fed.shape[-1], "own_width": None, "own_error": None}
        return {"fed_width": self.fed.shape[-1], "own_width": self.own.shape[-1], "own_error": self._error()}

    def is_other(self) -> bool:
        """Tell whether the target's own states have the shape of the recorded ones and are not the same."""
        error = self._error()
        return error is not None and not error <= SAME

    def _error(self) -> float | None:
        """Return the largest error of any slot: over all of them a small one would drown."""
        from eagle_contracts.subjects.twin_weights import row_error

        if self.own is None or self.own.shape != self._recorded.shape:
            return None
        parts = zip(self.own.float().split(self._hidden, 1), self._recorded.float().split(self._hidden, 1), strict=True)
        errors = [row_error(own, recorded) for own, recorded in parts]
        return max(errors, key=lambda error: error if error == error else float("inf"))


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

    from eagle_contracts.subjects import breaks
    from eagle_contracts.subjects.protocol import WrongParameter

    parts = list(recorded.split(hidden, dim=1))
    parts = breaks.in_slots(parts, params.get("break", {}))
    if params.get("slots") is not None:
        beyond = [n for n in params["slots"] if not 0 <= n < len(parts)]
        if beyond:
            raise WrongParameter(f"slots\nthere is no slot {beyond[0]}: the states have slots 0 to {len(parts) - 1}")
        parts = [parts[n] for n in params["slots"]]
    return torch.cat(parts, dim=1)


def _readers(worker: Any, params: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Return what each reader of the draft's config made of it, and what is written where."""
    from eagle_contracts.subjects import draft_steps

    config = params["draft"]
    nested = config.get("eagle_config")
    return {
        "by_default": params["by_default"],
        "draft_class": type(worker.model).__name__,
        "fc_in": worker.fc_width(),
        "draft_width": params["trained"]["hidden_size"],
        "readers": {
            "ids": worker.ids_read(),
            "fc": worker.fc_width() / hidden,
            "buffer": worker.buffer_width() / hidden,
        },
        "written": {
            "use_aux_hidden_state": nested.get("use_aux_hidden_state", True) if isinstance(nested, Mapping) else True,
            **{f"eagle_config.{k}": v for k, v in _named(nested, READ).items()},
            **_named(config, READ),
        },
        "switches": {name: bool(config[name]) for name in draft_steps.SWITCHES if name in config},
    }


def _named(config: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: config[name] for name in names if name in config} if isinstance(config, Mapping) else {}
