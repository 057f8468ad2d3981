"""Pipelines of other targets, written as a user writes them, on twins of eight layers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle_contracts.subjects.twin_weights import row_error
from eagle_contracts.verdict import Verdict
from eagle_contracts.workers.client import Answer
from eagle_contracts.workers.pool import Call, Result

from . import targets
from .stories import Engines, cases_in, pipeline, summary

SAME_IDS = {"0.5.9": [1, 3, 5], "0.5.23": [1, 3, 5]}
DEEPSEEK_IDS = {"0.5.9": [1, 3, 5], "0.5.23": [2, 4, 6]}
PIPELINES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, list[int]]]] = {
    "llama": (targets.LLAMA, SAME_IDS),
    "qwen3_moe": (targets.QWEN3_MOE, SAME_IDS),
    "deepseek_v3": (targets.DEEPSEEK_V3, DEEPSEEK_IDS),
    "deepseek_v2_lite": (targets.DEEPSEEK_V2_LITE, DEEPSEEK_IDS),
    "moonlight": (targets.MOONLIGHT, DEEPSEEK_IDS),
}


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """One contract for each pipeline."""
    root = tmp_path_factory.mktemp("pipelines")
    return {
        name: pipeline(root / name, target, trained=[1, 3, 5], ids=ids) for name, (target, ids) in PIPELINES.items()
    }


@pytest.fixture(scope="module")
def judged(contracts: Mapping[str, Path], engines: Engines) -> Mapping[str, Mapping[str, Verdict]]:
    """The verdicts of every pipeline, by its name."""
    return engines.judged_all({name: (file,) for name, file in contracts.items()})


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_of_another_target_is_judged(name: str, judged: Mapping[str, Mapping[str, Verdict]]) -> None:
    """Both engines give the trained states for their own ids, and ids one too high are caught as that."""
    assert {case: verdict.status for case, verdict in judged[name].items()} == {
        "slots[sglang-0.5.9]": "passed",
        "slots[sglang-0.5.23]": "passed",
        "catches-shifted[sglang-0.5.9]": "passed",
        "catches-shifted[sglang-0.5.23]": "passed",
    }, [verdict.sentence for verdict in judged[name].values()]


@pytest.mark.parametrize("name", ["llama", "deepseek_v3"])
def test_a_twin_is_the_same_whoever_writes_it(
    name: str, contracts: Mapping[str, Path], engines: Engines, tmp_path: Path
) -> None:
    """Transformers 4.57 and 5.19 write the same weights, byte for byte, and states that agree to 1e-6.

    The states agree only because config.json spells the rope scaling for both.
    """
    session = engines.session()
    written = {}
    for case in cases_in(contracts[name], session)[:2]:
        twin, folder = session.twin(case.pipeline), tmp_path / case.environment.name
        params = {"folder": str(folder), "twin": twin.as_json()}
        result = engines.pool.submit(session.engines.engine(case), partial(_make_twin, params)).result()
        assert isinstance(result, Answer), result
        written[result.value["transformers"]] = folder
    assert len(written) == 2
    one, two = written.values()
    assert _digest(one) == _digest(two)
    here, there = load_file(one / "states.safetensors"), load_file(two / "states.safetensors")
    assert set(here) == set(there)
    assert max(row_error(here[state], there[state]) for state in here) < 1e-6
    assert torch.equal(here["h.0"], there["h.0"])


def _make_twin(params: Mapping[str, Any], call: Call) -> Result:
    return call("eagle_contracts.subjects.twin_weights:make", params)


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "target" / "model.safetensors").read_bytes()).hexdigest()


def test_a_class_that_the_engine_cannot_run_is_an_error(engines: Engines, tmp_path: Path) -> None:
    """GPT-OSS wants kernels that need a GPU: no verdict, and the engine's own reason."""
    target = {**targets.QWEN3, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 4}
    contract = pipeline(tmp_path / "gpt_oss", target, trained=[1, 3, 5], ids={"0.5.9": [1, 3, 5]})
    verdicts = engines.judged(contract, only="slots")
    assert summary(verdicts) == {"slots[sglang-0.5.9]": "error"}
    verdict = verdicts["slots[sglang-0.5.9]"]
    assert verdict.reason == "engine"
    assert verdict.sentence.startswith(
        "sglang cannot run this model here, whatever the parameters: it raised AssertionError at checking its "
        "server arguments: GptOssForCausalLM "
        "requires one of ['triton', 'trtllm_mha', 'fa3', 'fa4', 'ascend'] attention backend"
    )
