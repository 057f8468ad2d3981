"""What counts as an engine's own answer."""

from __future__ import annotations

import pytest

from eagle_contracts.engines import engine_variables, shown_variables
from eagle_contracts.subjects import sglang_engine
from eagle_contracts.subjects.sglang_engine import EngineRefused, step


def raises(error: Exception) -> None:
    raise error


@pytest.fixture(autouse=True)
def of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised here is raised by the engine's own code."""
    monkeypatch.setattr(sglang_engine, "_raised_by_engine", lambda error: True)


def test_an_exception_of_the_engine_is_its_refusal() -> None:
    """With the stage, and the exception itself."""
    with pytest.raises(EngineRefused, match="no residual") as caught:
        step("the forward pass", lambda: raises(TypeError("no residual")))
    assert caught.value.stage == "the forward pass"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.1"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
    ],
)
def test_a_machine_without_memory_is_no_answer(error: Exception) -> None:
    """It may have some a minute later, so nothing is concluded of it and nothing is kept."""
    with pytest.raises(type(error)) as caught:
        step("building the model", lambda: raises(error))
    assert caught.value is error


def test_a_report_shows_no_secret_of_the_environment() -> None:
    """A report may be public; the store's key is a digest over all of it."""
    environ = {"SGLANG_ALLOW": "1", "SGLANG_API_KEY": "abc", "TRANSFORMERS_TOKEN": "def", "HOME": "/x"}
    assert shown_variables("sglang", environ) == {
        "SGLANG_ALLOW": "1",
        "SGLANG_API_KEY": "(set)",
        "TRANSFORMERS_TOKEN": "(set)",
    }
    assert engine_variables("sglang", environ)["SGLANG_API_KEY"] == "abc"
