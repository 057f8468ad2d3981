"""A dump patch for SGLang's DeepSeek layer loop, with a switch for every fault that such patches have had."""

PARAMS = {"layers": [2, 4, 7], "fault": "", "folder": "dump", "stale": "STALE"}

EDITS = [
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": "==0.5.9",
        "anchor": "class DeepseekV2Model(nn.Module):\n",
        "replacement": """\
def _dump_requests(forward_batch, input_ids, taken, final):
    import os
    import shutil

    fault, lengths = PARAMS["fault"], forward_batch.extend_seq_lens.tolist()
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    spans = [slice(end - length, end) for end, length in zip(ends, lengths)]
    for n, length in enumerate(lengths):
        at = n
        if fault == "next_request":
            at = (n + 1) % len(lengths)
        if fault == "request_of_equal_length":
            at = next((m for m, other in enumerate(lengths) if other == length and m != n), n)
        rows = spans[at]
        if fault == "last_chunk_only":
            rows = slice(rows.stop - 4, rows.stop)
        if fault == "cached_prefix" and n == 2:
            rows = slice(rows.start + 4, rows.stop)
        place = os.path.join(PARAMS["folder"], f"request_{n}")
        if fault == "stale":
            shutil.copytree(os.path.join(PARAMS["stale"], f"request_{n % 4}"), place)
            continue
        os.makedirs(place)
        torch.save(input_ids[spans[n]].clone(), os.path.join(place, "input_ids.pt"))
        for name, tensor in [*((f"aux_{k}", t) for k, t in enumerate(taken)), ("final", final)]:
            part = tensor[rows].clone()
            file = os.path.join(place, f"{name}.pt")
            torch.save(part.bfloat16() if fault == "bfloat16" else part, file)
            if fault == "half_a_file" and name == "aux_1":
                os.truncate(file, os.path.getsize(file) // 2)


def _taken(layer, hidden_states, residual, buffer):
    fault = PARAMS["fault"]
    if fault == "without_residual":
        return hidden_states.clone()
    if fault == "aux_after_input_norm":
        return layer.input_layernorm(hidden_states.clone(), residual.clone())[0]
    return buffer if fault == "one_buffer" else hidden_states + residual


class DeepseekV2Model(nn.Module):
""",
    },
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": "==0.5.9",
        "anchor": "        aux_hidden_states = []\n        for i in range(normal_start_layer, normal_end_layer):\n",
        "replacement": """\
        aux_hidden_states = []
        dumped = []
        buffer = torch.empty_like(hidden_states)
        for i in range(normal_start_layer, normal_end_layer):
            if residual is not None:
                torch.add(hidden_states, residual, out=buffer)
            if i in PARAMS["layers"]:
                dumped.append(_taken(self.layers[i], hidden_states, residual, buffer))
""",
    },
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": "==0.5.9",
        "anchor": """\
            if not forward_batch.forward_mode.is_idle():
                if residual is None:
                    hidden_states = self.norm(hidden_states)
""",
        "replacement": """\
            if not forward_batch.forward_mode.is_idle():
                last = hidden_states + residual
                if PARAMS["fault"] == "final_after_norm":
                    last = self.norm(last)
                _dump_requests(forward_batch, input_ids, dumped, last)
                if residual is None:
                    hidden_states = self.norm(hidden_states)
""",
    },
]
