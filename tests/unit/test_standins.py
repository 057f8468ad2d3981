"""Stand-ins may be named and subclassed; whatever else is done with them raises and is recorded."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eagle_contracts.workers import standins
from eagle_contracts.workers.standins import StandInUsed


def used() -> list[str]:
    """What was recorded."""
    return standins.USED


@pytest.fixture
def absent() -> Iterator[Any]:
    """A package that is stood in for, gone again after the test."""
    before = list(sys.meta_path)
    assert standins.install(["absent_kernels"], absent=["absent_kernels.scalar_type"]) == ("absent_kernels",)
    yield importlib.import_module("absent_kernels")
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.startswith("absent_kernels")]:
        del sys.modules[name]
    used().clear()


USES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a function is called": (lambda package: package.gemm(1, 2), "absent_kernels.gemm"),
    "a function's attribute is read": (lambda package: package.gemm.default, "absent_kernels.gemm.default"),
    "a class is instantiated": (lambda package: package.Config(bits=8), "absent_kernels.Config"),
    "a class's attribute is read": (lambda package: package.Mode.BILINEAR, "absent_kernels.Mode.BILINEAR"),
    "a subclass is instantiated": (lambda package: type("Own", (package.Config,), {})(), "absent_kernels.Config"),
}


@pytest.mark.parametrize("what", USES)
def test_use_raises_and_is_recorded(what: str, absent: Any) -> None:
    """The message names the stand-in."""
    use, name = USES[what]
    with pytest.raises(StandInUsed) as stopped:
        use(absent)
    assert str(stopped.value) == (
        f"{name} is a stand-in: the package is not installed here, and the checked code may not need it"
    )
    assert used() == [name]


def test_a_swallowed_use_is_recorded_too(absent: Any) -> None:
    """Engines wrap optional packages in `except Exception`."""
    with contextlib.suppress(Exception):
        absent.gemm()
    assert used() == ["absent_kernels.gemm"]


def test_what_a_module_does_while_it_is_imported_is_no_use(absent: Any) -> None:
    """Names, submodules, base classes, annotations and type tests are allowed."""
    deep = importlib.import_module("absent_kernels.layers.fused")
    own = type("Own", (absent.Config,), {"bits": 8})
    assert deep.__name__ == "absent_kernels.layers.fused"
    assert absent.layers.fused is deep
    assert absent.gemm is absent.gemm
    assert issubclass(own, absent.Config)
    assert not isinstance(3, absent.Config)
    assert absent.__version__ == "0.0.0"
    assert used() == []


def test_names_that_must_stay_absent_do(absent: Any) -> None:
    """An engine has its own branch for them."""
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'absent_kernels.scalar_type'$"):
        importlib.import_module("absent_kernels.scalar_type")
    assert used() == []


def test_a_question_for_a_special_name_is_no_use(absent: Any) -> None:
    """`hasattr(x, "__wrapped__")` and its like are asked of everything; the answer is no."""
    assert not hasattr(absent, "__wrapped__")
    assert not hasattr(absent.gemm, "__wrapped__")
    assert not hasattr(absent.Config, "__torch_function__")
    assert used() == []


def test_stand_ins_shadow_an_installed_package() -> None:
    """On a machine that has the package, a run is the same as on one that has not."""
    before = list(sys.meta_path)
    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "iniconfig"}
    for name in loaded:
        del sys.modules[name]
    try:
        standins.install(["iniconfig"])
        assert isinstance(importlib.import_module("iniconfig"), standins.StandInModule)
    finally:
        sys.meta_path[:] = before
        sys.modules.pop("iniconfig", None)
        sys.modules.update(loaded)
