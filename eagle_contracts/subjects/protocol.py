"""What the framework knows of an adapter, and how adapters are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GROUP = "eagle_contracts.subjects"
"""The entry point group: a name such as `sglang.capture`, and `module:SUBJECT`."""


@dataclass(frozen=True)
class Subject:
    """An adapter: the engine it runs, its parameters, and the functions that a worker calls for it.

    `parameters` maps each key that `with` may have to a sentence. `prepare`, `gate` and `observe` are `module:function`
    names, each taking and returning plain JSON: `prepare` imports the engine once in a worker, `gate` must agree with
    the reference on a twin before any verdict, `observe` runs in a forked child. `remedy` names the parameter that a
    failing contract is advised on, and the key a user writes it under; None for a subject without advice. The module is
    sent to the worker as source with its whole package, so it imports its engine inside functions. `request` runs in
    pytest's process: it turns the resolved parameters and the twin into what `observe` is given, beside the twin's
    folder. `baseline` makes the same from the twin alone: where the engine refuses that too, it does not refuse the
    parameters.
    """

    name: str
    engine: str
    parameters: Mapping[str, str]
    prepare: str
    gate: str
    observe: str
    request: Callable[[Mapping[str, Any], Any], dict[str, Any]]
    baseline: Callable[[Any], dict[str, Any]]
    remedy: tuple[str, str] | None = None

    @property
    def package(self) -> str:
        """The top-level package whose sources a worker needs."""
        return self.observe.partition(":")[0].partition(".")[0]
