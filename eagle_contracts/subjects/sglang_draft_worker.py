"""SGLang 0.5.23's real EAGLE-3 worker in this process: target, draft, prefill, draft extend, and the draft's steps.

Runs in a forked child of a worker. The order of construction is the scheduler's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle_contracts.subjects import sglang_device, sglang_draft_cpu, sglang_engine

Replace = Callable[[Any], Any]
"""Takes what the target hands over, [tokens, width], and returns what the draft is to be given instead."""


class DraftWorker:
    """A target's worker with its draft's, ready for one batch."""

    def __init__(self, target: Path, draft: Path, architecture: str) -> None:
        sglang_draft_cpu.install(reference=sglang_device.is_reference())
        self.records: list[dict[str, Any]] = []
        self.sampled: list[int] = []
        attention = sglang_draft_cpu.BACKEND if sglang_device.is_reference() else None
        arguments = sglang_engine.server_args(target, draft, attention)
        self.target, self.worker = sglang_engine.step("building the target and the draft", lambda: _workers(arguments))
        self.draft = self.worker.draft_worker
        sglang_engine.assert_class(self.target.model_runner.model, architecture)

    @property
    def model(self) -> Any:
        """The draft model, as the engine built and loaded it."""
        return self.draft.draft_runner.model

    def ids_read(self) -> Any:
        """Return the layer ids that the target's side read from the draft's config."""
        return self.target.model_runner.spec_aux_config.eagle_aux_hidden_state_layer_ids

    def fc_width(self) -> int:
        """Return how wide the draft class made its `fc`'s input."""
        return int(self.model.model.fc.weight.shape[1])

    def buffer_width(self) -> int:
        """Return how wide the buffer of the draft's graph would be, from the reader that sizes it."""
        from sglang.srt.speculative.eagle_utils import get_draft_input_from_target_hidden_dim

        return int(get_draft_input_from_target_hidden_dim(self.draft.draft_runner))

    def run(self, prompts: list[list[int]], replace: Replace) -> None:
        """Prefill, then draft, leaving in `records` one entry for each forward pass of the draft.

        An entry has the draft's `mode`, `tokens`, `positions`, `read` (the states that it was given), `fc` (what each
        call of `fc` read), `logits` and `hidden` (what it hands to its next step). Raises `EngineRefused`.
        """
        import torch

        self._record()
        self._hand_over(replace)
        try:
            with torch.no_grad():
                batch = sglang_engine.batch_of(self.target.model_runner, prompts, "EAGLE3")
                sglang_engine.step("the draft's first step", lambda: self._prefill(batch))
                sglang_engine.step("the draft's later steps", lambda: self._later_steps(batch))
        except sglang_draft_cpu.StopBeforeVerify:
            return
        raise RuntimeError("the engine drafted without asking for a verification")

    def _prefill(self, batch: Any) -> None:
        result = self.worker.forward_batch_generation(batch)
        batch.spec_info = result.next_draft_input
        self.sampled = result.next_token_ids.tolist()
        for request, token in zip(batch.reqs, self.sampled, strict=True):
            request.output_ids.append(token)

    def _later_steps(self, batch: Any) -> None:
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        batch.prepare_for_decode()
        batch.forward_mode = ForwardMode.DECODE
        self.draft.draft(batch)

    def _hand_over(self, replace: Replace) -> None:
        """Stand between the target's forward pass and the draft's first step."""
        serve, runner = self.target.forward_batch_generation, self.target.model_runner

        def forward(*args: Any, **named: Any) -> Any:
            result = serve(*args, **named)
            own = result.logits_output.hidden_states
            given = replace(None if own is None else own.cpu())
            result.logits_output.hidden_states = None if given is None else given.to(runner.device, runner.dtype)
            return result

        self.target.forward_batch_generation = forward

    def _record(self) -> None:
        """Watch every forward pass of the draft, and every call of `fc` in it."""
        runner = self.draft.draft_runner
        forward = runner.forward
        fc: list[Any] = []
        self.model.model.fc.register_forward_pre_hook(lambda module, args: fc.append(_copied(args[0])))

        def watched(batch: Any, *args: Any, **named: Any) -> Any:
            fc.clear()
            record = {
                "mode": batch.forward_mode.name,
                "tokens": batch.input_ids.tolist(),
                "positions": batch.positions.tolist(),
                "read": _copied(batch.spec_info.hidden_states),
            }
            result = forward(batch, *args, **named)
            output = result.logits_output
            self.records.append(
                {
                    **record,
                    "fc": list(fc),
                    "logits": _copied(output.next_token_logits),
                    "hidden": _copied(output.hidden_states),
                }
            )
            return result

        runner.forward = watched


def _copied(tensor: Any) -> Any:
    """Copy a tensor to the CPU: kernels write into their inputs."""
    return tensor.detach().to("cpu", copy=True)


def _workers(arguments: Any) -> tuple[Any, Any]:
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.server_args import PortArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    ports = PortArgs.init_new(arguments)
    sglang_engine.publish(arguments, ports)
    target = TpModelWorker(server_args=arguments, gpu_id=0, nccl_port=ports.nccl_port)
    create = SpeculativeAlgorithm.EAGLE3.create_worker(arguments)
    worker = create(server_args=arguments, gpu_id=0, nccl_port=ports.nccl_port, target_worker=target)
    target.alloc_memory_pool(draft_parallel_layout=worker.draft_parallel_layout)
    pool, allocator = target.get_memory_pool()
    worker.alloc_memory_pool(
        memory_pool_config=target.model_runner.memory_pool_config,
        req_to_token_pool=pool,
        token_to_kv_pool_allocator=allocator,
    )
    for one in (target, worker):
        one.init_attention_backends()
    for one in (target, worker):
        one.init_cuda_graphs()
    return target, worker
