"""What a GPU is to run, on CPUs: twins with the widths of kernels, in bfloat16, and what cannot be run there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import pytest

from eagle_contracts.devices import Device
from eagle_contracts.spec.load import load_pipeline
from eagle_contracts.verdict import Verdict
from eagle_contracts.workers.environments import Resolved

from .stories import ROOT, Engines, cases_in, judged_cases, summary, text

KIMI = ROOT / "contracts" / "kimi_k25"
RUN = {
    "sglang_capture_offset": ("slots[sglang-0.5.9]", "slots[sglang-0.5.23]", "catches-shifted[sglang-0.5.23]"),
    "dump_patch_layers": ("slots[sglang-0.5.9]",),
    "draft_input_dims": ("first_step[sglang-0.5.23]", "reference[sglang-0.5.23]"),
}
ASK = """
from eagle_contracts.subjects import sglang_device
from eagle_contracts.subjects.sglang_cuda_platform import ReferenceCuda
one = ReferenceCuda()
print(one.device_type, one.is_out_of_tree(), one.get_dispatch_key_name(), one.supports_speculative_algorithm("EAGLE3"))
try:
    sglang_device.before_import("cuda")
except sglang_device.NoDevice as error:
    print(error)
"""


def told(verdicts: Mapping[str, Verdict]) -> str:
    return "\n".join(text(verdict) for verdict in verdicts.values() if verdict.status != "passed")


def test_twins_for_kernels_are_told_apart_in_bfloat16(engines: Engines) -> None:
    """61 layers of latent attention in bfloat16 stay within the tolerance, and neighbours outside, in both engines."""
    session = engines.session(device=Device(for_kernels=True))
    cases = [case for name, of in RUN.items() for case in cases_in(KIMI / f"{name}.yaml", session) if case.name in of]
    verdicts = judged_cases(cases[:3], session)
    assert summary(verdicts) == {
        "slots[sglang-0.5.9]": "passed",
        "slots[sglang-0.5.23]": "passed",
        "catches-shifted[sglang-0.5.23]": "shifted",
    }, told(verdicts)
    assert summary(judged_cases(cases[3:], session)) == dict.fromkeys(
        ("slots[sglang-0.5.9]", "first_step[sglang-0.5.23]", "reference[sglang-0.5.23]"), "passed"
    )


def test_the_reference_platform_loads_and_a_torch_for_cpus_is_refused(engines: Engines) -> None:
    """SGLang 0.5.23 takes the class that `cuda-reference` names; without a GPU the reason is said, not met later."""
    pipeline = load_pipeline(KIMI / "pipeline.yaml", "pipeline.yaml")
    found = engines.session().engines.environment(pipeline, pipeline.environments["sglang-0.5.23"])
    assert isinstance(found, Resolved)
    path = os.pathsep.join([str(ROOT), found.env["PYTHONPATH"]])
    environ = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*found.command, "-c", ASK], env=environ, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()[-2:]
    assert lines[0] == "cuda True native True", done.stderr
    assert "in this environment sees no GPU: it is " in lines[1]


@pytest.mark.parametrize("kind", ["cuda", "cuda-reference"])
def test_an_environment_for_cpus_is_unavailable_on_a_gpu(engines: Engines, kind: str) -> None:
    """A run on a GPU says of an environment with a torch for CPUs that it cannot be used."""
    device = Device(kind=kind, environ={"CUDA_VISIBLE_DEVICES": ""}, for_kernels=True)
    session = engines.session(device=device)
    (case,) = [
        c for c in cases_in(KIMI / "sglang_capture_offset.yaml", session) if c.name == f"slots[sglang-0.5.23,{kind}]"
    ]
    (verdict,) = judged_cases([case], session).values()
    assert (verdict.status, verdict.reason) == ("unavailable", "device")
    assert "in this environment sees no GPU" in verdict.sentence
