"""What the framework knows of an adapter, and how adapters are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GROUP = "eagle_contracts.subjects"
"""The entry point group: a name such as `sglang.capture`, and `module:SUBJECT`."""

Given = Mapping[str, Any]


class WrongParameter(ValueError):
    """A parameter that only what was observed shows to be wrong; the first line is its key, the second a sentence."""


def _nothing(given: Given) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Subject:
    """An adapter: the engine it runs, its parameters, and the functions that a worker calls for it.

    `parameters` maps each key that `with` must have to a sentence, `optional` those that it may have; `reads` says that
    it takes other contracts' observations by `from`, and `sources` under which names, if it needs certain ones.
    `prepare`, `gate` and `observe` are `module:function` names, each taking and returning plain JSON: `prepare` imports
    the engine once in a worker, `gate` must agree with the reference on a twin before any verdict (None: nothing to
    agree on), `observe` runs in a forked child and may leave tensors in the folder `out`. The module is sent to the
    worker as source with its whole package, so it imports its engine inside functions. `promises` names the
    expectations that its observations can be held against; empty: every one.

    In pytest's process, `request` turns the resolved parameters, the twin and the pipeline's folder into what `observe`
    is given; `baseline` makes the same from the twin alone (where the engine refuses that too, it does not refuse the
    parameters); `prepare_params` adds to what `prepare` is given. `remedy` names the parameter that a failing contract
    is advised on, and the key a user writes it under; None for a subject without advice. `on_device` says that it runs
    where `--contracts-device` says: on a GPU `prepare` is told the `device`, and each observation has a process of its
    own, in which `prepare` is called again. Other subjects run on the CPU, and see no GPU.
    """

    name: str
    engine: str
    parameters: Mapping[str, str]
    prepare: str
    observe: str
    request: Callable[[Given, Any, Path], dict[str, Any]]
    gate: str | None = None
    baseline: Callable[[Any], dict[str, Any]] | None = None
    prepare_params: Callable[[Given], dict[str, Any]] = field(default=_nothing)
    remedy: tuple[str, str] | None = None
    reads: bool = False
    promises: tuple[str, ...] = ()
    optional: Mapping[str, str] = field(default_factory=dict)
    on_device: bool = False
    sources: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The top-level package whose sources a worker needs."""
        return self.observe.partition(":")[0].partition(".")[0]
