"""SGLang's real target side in this process: config reading, model, setter, forward, logits processor.

Runs inside a worker: `prepare` once before any fork, the rest in a forked child. Differences between versions are small
functions here that name them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle_contracts.subjects import sglang_cpu, sglang_device
from eagle_contracts.workers import overlays, standins

_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory")
TOKENS = 2048
"""How many tokens an engine has room for: the largest batch of a twin has some hundred."""


class EngineRefused(Exception):
    """The engine's own code raised; `stage` says at what, `cause` is its exception."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.stage, self.cause = stage, cause


def prepare(params: dict[str, Any]) -> dict[str, Any]:
    """Import the engine once, with an overlay's edits where one is given; return versions and what was stood in for.

    Raises `overlays.OverlayError` when an edit does not fit this version.
    """
    warnings.filterwarnings("ignore")
    stood_in = sglang_device.before_import(params.get("device", sglang_device.CPU))
    applied = [overlays.install(overlay, engine="sglang") for overlay in params["overlays"]]
    import torch

    torch.set_num_threads(1)
    import sglang
    import sglang.srt.server_args
    import transformers
    from sglang.srt.model_executor import model_runner  # noqa: F401
    from sglang.srt.models import registry  # noqa: F401

    _bench()
    sglang_device.after_import()
    return {
        **sglang_device.facts(),
        "sglang": importlib.metadata.version("sglang"),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "stand_ins": list(stood_in),
        "overlays": applied,
        "source": str(Path(str(sglang.__file__)).parent),
    }


def _bench_module() -> str:
    """Name SGLang's one-batch benchmark, whose helpers set up a process (0.5.9 and 0.5.23 keep it in two places)."""
    for name in ("sglang.benchmark.one_batch", "sglang.bench_one_batch"):
        path = name.replace(".", "/") + ".py"
        if any(os.path.exists(os.path.join(entry, path)) for entry in sys.path):
            return name
    raise ModuleNotFoundError("SGLang's one-batch module is not where 0.5.5 to 0.5.23 keep it")


class Engine:
    """One `ModelRunner` of the target, ready for one forward pass."""

    def __init__(self, target: Path, *, draft: Path | None, architecture: str) -> None:
        arguments = server_args(target, draft, sglang_device.attention_backend())
        self.runner = step("reading its configuration and building the model", lambda: _runner(arguments))
        self.model = self.runner.model
        assert_class(self.model, architecture)

    def forward(self, prompts: list[list[int]]) -> Any:
        """Prefill all prompts in one batch, nothing kept of earlier ones.

        Returns the logits processor's `hidden_states`, [tokens, width], on the CPU.
        """
        import torch
        from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

        self.runner.req_to_token_pool.clear()
        self.runner.token_to_kv_pool_allocator.clear()
        with torch.no_grad():
            batch = batch_of(self.runner, prompts)
            forward = _forward_batch(batch, self.runner)
            forward.capture_hidden_mode = CaptureHiddenMode.FULL
            output = step("the forward pass", lambda: self.runner.forward(forward))
        output = getattr(output, "logits_output", output)
        return (output[0] if isinstance(output, tuple) else output).hidden_states.cpu()

    def ids_read(self) -> Any:
        """Return the layer ids that the engine itself read from the draft's config."""
        return self._read("eagle_aux_hidden_state_layer_ids")

    def uses_aux(self) -> bool:
        """Tell whether the engine hands over states of inner layers at all, by its own reading of that config."""
        return bool(self._read("eagle_use_aux_hidden_state"))

    def _read(self, name: str) -> Any:
        """Return what a reader kept: 0.5.9 does on the runner, 0.5.23 in a `SpecAuxHiddenStateConfig` of it."""
        for holder in (self.runner, *vars(self.runner).values()):
            if name in _names(holder):
                return getattr(holder, name)
        raise LookupError(f"this SGLang keeps {name} neither on ModelRunner nor in a part of it")


def _names(holder: Any) -> Any:
    return getattr(type(holder), "__struct_fields__", None) or getattr(holder, "__dict__", {})


def step(stage: str, run: Callable[[], Any]) -> Any:
    """Run engine code; an exception raised by the engine is its refusal, one of ours or of a stand-in is not."""
    try:
        return run()
    except standins.StandInUsed:
        raise
    except Exception as error:
        if is_of_memory(error) or not _raised_by_engine(error):
            raise
        raise EngineRefused(stage, error) from error


def is_of_memory(error: BaseException) -> bool:
    """Tell whether an exception speaks of the machine's memory: that is no answer of the engine to a config."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OF_MEMORY)


def _raised_by_engine(error: BaseException) -> bool:
    """Tell whether the engine's frames are the last that called on: below them only libraries it called."""
    import sglang

    engine = str(Path(str(sglang.__file__)).parent) + os.sep
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    theirs = max((i for i, name in enumerate(files) if name.startswith(engine) or overlays.is_edited(name)), default=-1)
    ours = max((i for i, name in enumerate(files) if name.startswith("<sent>/")), default=-1)
    return theirs > ours


def assert_class(model: Any, architecture: str) -> None:
    """Refuse another class than the config's: a model module that fails to import is only logged by the registry,

    which then builds `TransformersForCausalLM` without a word (seen on 0.5.5 to 0.5.23).
    """
    if type(model).__name__ != architecture:
        raise RuntimeError(
            f"SGLang built {type(model).__name__} instead of {architecture}: its registry falls back in silence when a "
            f"model's module fails to import (see the log for 'Ignore import error')"
        )


def server_args(target: Path, draft: Path | None, attention: str | None) -> Any:
    """Return SGLang's arguments for a target in its own type, with a draft's folder where there is one."""
    from sglang.srt.server_args import ServerArgs

    wanted: dict[str, Any] = {
        "model_path": str(target),
        "device": sglang_device.torch_device(),
        "dtype": json.loads((target / "config.json").read_text())["torch_dtype"],
        "skip_tokenizer_init": True,
        "disable_cuda_graph": True,
        **sglang_device.memory(TOKENS),
        "disable_overlap_schedule": True,
        "sampling_backend": "pytorch",
        "load_format": "auto",
    }
    if attention is not None:
        wanted["attention_backend"] = attention
    if draft is not None:
        wanted |= {
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": str(draft),
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
        }
    unknown = set(wanted) - set(inspect.signature(ServerArgs).parameters)
    if unknown:
        raise LookupError(f"ServerArgs of this SGLang has no {', '.join(sorted(unknown))}")
    return step("checking its server arguments", lambda: ServerArgs(**wanted))


def _runner(arguments: Any) -> Any:
    """Build the real `ModelRunner`; older versions take the ranks as arguments, newer ones publish them first."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.server_args import PortArgs

    ports = PortArgs.init_new(arguments)
    config = publish(arguments, ports) if sglang_cpu.has_platform_plugins() else ModelConfig.from_server_args(arguments)
    ranks = {"tp_rank": 0, "tp_size": 1, "moe_ep_rank": 0, "moe_ep_size": 1, "pp_rank": 0, "pp_size": 1}
    given = {
        "model_config": config,
        "mem_fraction_static": arguments.mem_fraction_static,
        "gpu_id": 0,
        "nccl_port": ports.nccl_port,
        "server_args": arguments,
        **ranks,
    }
    taken = inspect.signature(ModelRunner.__init__).parameters
    runner = ModelRunner(**{name: value for name, value in given.items() if name in taken})
    for step in ("alloc_memory_pool", "init_attention_backends", "init_cuda_graphs"):
        if hasattr(runner, step):
            getattr(runner, step)()
    return runner


def publish(arguments: Any, ports: Any) -> Any:
    """Set up the process as SGLang 0.5.23's own one-batch benchmark does."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.runtime_context import SpawnRanks, publish

    one_batch = _bench()
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    one_batch._init_process_global_configs()
    config = ModelConfig.from_server_args(arguments)
    one_batch.bootstrap.init_parallel_runtime(
        server_args=arguments, device=sglang_device.torch_device(), dist_port=ports.nccl_port
    )
    one_batch.bootstrap.init_layer_runtime(model_config=config)
    return config


def _bench() -> Any:
    """Return SGLang's one-batch benchmark, whose tree cache shares nothing between requests."""
    return importlib.import_module(_bench_module())


def batch_of(runner: Any, prompts: list[list[int]], algorithm: str = "NONE") -> Any:
    """Make a batch of requests whose whole prompts are to be prefilled, for a speculative algorithm by name."""
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    batch = ScheduleBatch.init_new(
        reqs=[request(number, tokens) for number, tokens in enumerate(prompts)],
        req_to_token_pool=runner.req_to_token_pool,
        token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        tree_cache=_bench().TreeCacheNamespace(
            page_size=1,
            device=sglang_device.torch_device(),
            token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        ),
        model_config=runner.model_config,
        enable_overlap=False,
        spec_algorithm=getattr(SpeculativeAlgorithm, algorithm),
    )
    batch.prepare_for_extend()
    if getattr(batch, "input_ids", None) is None:
        batch.input_ids = batch.prefill_input_ids_cpu
    return batch


def request(number: int, tokens: list[int]) -> Any:
    """Make a request whose whole prompt is to be prefilled (0.5.9: a list; from 0.5.14 an array and an end)."""
    from array import array

    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.utils import common

    as_array = hasattr(common, "flatten_arrays_to_pinned_cpu")
    request = Req(
        rid=str(number),
        origin_input_text="",
        origin_input_ids=array("q", tokens) if as_array else list(tokens),
        sampling_params=SamplingParams(temperature=0, max_new_tokens=4),
    )
    request.logprob_start_len = -1
    if as_array:
        request.full_untruncated_fill_ids = request.origin_input_ids
    else:
        request.fill_ids = request.origin_input_ids
    if hasattr(request, "set_extend_range"):
        request.set_extend_range(0, len(tokens))
    elif hasattr(request, "set_extend_input_len"):
        request.set_extend_input_len(len(tokens))
    elif as_array:
        request.extend_end = len(tokens)
    else:
        request.extend_input_len = len(tokens)
    return request


def _forward_batch(batch: Any, runner: Any) -> Any:
    """Make the batch that a forward pass takes; older versions start from the worker's view of it."""
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

    source = batch.get_model_worker_batch() if hasattr(batch, "get_model_worker_batch") else batch
    taken = inspect.signature(ForwardBatch.init_new).parameters
    named = {"return_hidden_states_before_norm": False} if "return_hidden_states_before_norm" in taken else {}
    return ForwardBatch.init_new(source, runner, **named)
