"""Dumps what a draft is trained on from SGLang's DeepSeek layer loop: one folder a request, one file a tensor.

PARAMS: `layers` are the layers *before* which the stream is taken; `save` is what is taken there; `folder` is where to.
"""

PARAMS = {"layers": [3, 31, 59], "save": "hidden_plus_residual", "folder": "dump"}

EDITS = [
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": ">=0.5.5,<0.5.13",
        "anchor": "class DeepseekV2Model(nn.Module):\n",
        "replacement": """\
def _dump_requests(forward_batch, input_ids, taken, final):
    import os

    start = 0
    for n, length in enumerate(forward_batch.extend_seq_lens.tolist()):
        rows = slice(start, start + length)
        start += length
        place = os.path.join(PARAMS["folder"], f"request_{len(os.listdir(PARAMS['folder']))}")
        os.makedirs(place)
        torch.save(input_ids[rows].clone(), os.path.join(place, "input_ids.pt"))
        for k, tensor in enumerate(taken):
            # aux_0, aux_1, aux_2: the outputs of layers 2, 30, 58
            torch.save(tensor[rows].clone(), os.path.join(place, f"aux_{k}.pt"))
        torch.save(final[rows].clone(), os.path.join(place, "final.pt"))


class DeepseekV2Model(nn.Module):
""",
    },
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": ">=0.5.5,<0.5.13",
        "anchor": "        aux_hidden_states = []\n        for i in range(normal_start_layer, normal_end_layer):\n",
        "replacement": """\
        aux_hidden_states = []
        dumped = []
        for i in range(normal_start_layer, normal_end_layer):
            if i in PARAMS["layers"]:
                whole = PARAMS["save"] == "hidden_plus_residual" and residual is not None
                dumped.append((hidden_states + residual) if whole else hidden_states.clone())
""",
    },
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": ">=0.5.5,<0.5.13",
        "anchor": """\
            if not forward_batch.forward_mode.is_idle():
                if residual is None:
                    hidden_states = self.norm(hidden_states)
""",
        "replacement": """\
            if not forward_batch.forward_mode.is_idle():
                _dump_requests(forward_batch, input_ids, dumped, hidden_states + residual)
                if residual is None:
                    hidden_states = self.norm(hidden_states)
""",
    },
]
