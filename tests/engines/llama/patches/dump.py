"""Writes four states and the last one from SGLang's Llama layer loop, one folder a request."""

PARAMS = {"before": [1, 3, 5, 6], "folder": "dump"}

EDITS = [
    {
        "module": "sglang.srt.models.llama",
        "versions": "==0.5.9",
        "anchor": "class LlamaModel(nn.Module):\n",
        "replacement": """\
def _write(forward_batch, tensors):
    import os

    start = 0
    for number, length in enumerate(forward_batch.extend_seq_lens.tolist()):
        folder = os.path.join(PARAMS["folder"], f"request_{number}")
        os.makedirs(folder)
        for name, tensor in tensors.items():
            torch.save(tensor[start : start + length].clone(), os.path.join(folder, f"{name}.pt"))
        start += length


class LlamaModel(nn.Module):
""",
    },
    {
        "module": "sglang.srt.models.llama",
        "versions": "==0.5.9",
        "anchor": "            if i in self.layers_to_capture:\n",
        "replacement": """\
            if i == self.start_layer:
                taken = {"input_ids": input_ids}
            if i in PARAMS["before"]:
                state = hidden_states if residual is None else hidden_states + residual
                taken[f"slot_{PARAMS['before'].index(i)}"] = state.clone()
            if i in self.layers_to_capture:
""",
    },
    {
        "module": "sglang.srt.models.llama",
        "versions": "==0.5.9",
        "anchor": "            hidden_states, _ = self.norm(hidden_states, residual)\n",
        "replacement": """\
            _write(forward_batch, {**taken, "last": hidden_states + residual})
            hidden_states, _ = self.norm(hidden_states, residual)
""",
    },
]
