"""An overlay with one edit for each fault that a draft's side can have; a key of the draft's config chooses one."""

from __future__ import annotations

FAULT = '(getattr(self.config, "fault", ""))'
WORKERS = '(getattr(self.draft_runner.model_config.hf_config, "fault", ""))'


def _edit(module: str, anchor: str, replacement: str) -> dict[str, str]:
    return {"module": f"sglang.srt.{module}", "versions": "==0.5.23", "anchor": anchor, "replacement": replacement}


_LLAMA, _WORKER = "models.llama_eagle3", "speculative.eagle_worker_v2"
EDITS = [
    _edit(
        _LLAMA,
        "        hidden_states = forward_batch.spec_info.hidden_states\n",
        f"""\
        hidden_states = forward_batch.spec_info.hidden_states
        fault, first = {FAULT}, hidden_states.shape[-1] != embeds.shape[-1]
        if fault == "swapped_slots" and first:
            one, two, three = hidden_states.chunk(3, dim=-1)
            hidden_states = torch.cat([two, one, three], dim=-1)
        if fault == "one_row_behind" and first:
            hidden_states = hidden_states.roll(1, 0)
        if fault == "a_row_of_another_request" and first:
            hidden_states = hidden_states.index_copy(0, torch.tensor([1]), hidden_states[-1:])
        if fault == "a_row_of_zeros" and first:
            hidden_states = hidden_states.index_fill(0, torch.tensor([1]), 0)
        if fault == "a_request_behind" and first:
            hidden_states = torch.cat([hidden_states[:11], hidden_states[11:18].roll(1, 0), hidden_states[18:]])
        if fault == "slots_swapped_in_a_row" and first:
            one, two, three = hidden_states[1:2].chunk(3, dim=-1)
            hidden_states = hidden_states.index_copy(0, torch.tensor([1]), torch.cat([two, one, three], dim=-1))
        if fault == "fc_twice" and first:
            self.fc(hidden_states)
        if fault == "fc_later" and not first:
            hidden_states = self.fc(torch.cat([hidden_states] * 3, dim=-1))
        if fault == "positions_doubled":
            positions = positions * 2
""",
    ),
    _edit(
        _LLAMA,
        "            residual = hidden_states\n            hidden_states = self.hidden_norm(hidden_states)\n"
        "            embeds = self.input_layernorm(embeds)\n",
        f"""\
            fault = {FAULT.replace("self.config", "self.own_config")}
            residual = hidden_states
            hidden_states = hidden_states if fault == "no_state_norm" else self.hidden_norm(hidden_states)
            residual = hidden_states if fault == "residual_normed" else residual
            embeds = embeds if fault == "no_embedding_norm" else self.input_layernorm(embeds)
            embeds, hidden_states = (
                (hidden_states, embeds) if fault == "state_before_embedding" else (embeds, hidden_states)
            )
""",
    ),
    _edit(
        _LLAMA,
        "        # Input layer concats embeds + target_hidden before qkv (input dim 2x).\n",
        "        self.own_config = config\n",
    ),
    _edit(
        _LLAMA,
        "        aux = hidden_states_to_logits if self.norm_output else hidden_states_to_aux\n",
        "        aux = hidden_states_to_logits if self.norm_output else hidden_states_to_aux\n"
        f'        aux = hidden_states_to_logits if {FAULT} == "normed_back" else aux\n',
    ),
    _edit(
        _LLAMA,
        "                self.hot_token_id = loaded_weight + torch.arange(loaded_weight.shape[0])\n",
        f"""\
                self.hot_token_id = loaded_weight + torch.arange(loaded_weight.shape[0])
                self.hot_token_id = loaded_weight if {FAULT} == "d2t_absolute" else self.hot_token_id
                self.hot_token_id = None if {FAULT} == "d2t_lost" else self.hot_token_id
""",
    ),
    _edit(
        _LLAMA,
        '            if "t2d" in name:\n',
        f"""\
            if {FAULT} == "columns_permuted" and name == "fc.weight":
                loaded_weight = torch.cat(loaded_weight.chunk(3, dim=1)[::-1], dim=1)
            if {FAULT} == "norm_lost" and "hidden_norm" in name:
                continue
            if {FAULT} == "fc_lost" and name == "fc.weight":
                continue
            if "t2d" in name:
""",
    ),
    _edit(
        _LLAMA,
        "    def get_hot_token_id(self):\n",
        f"""\
    def set_embed(self, embed):
        if {FAULT} != "own_embedding":
            super().set_embed(embed)

    def get_hot_token_id(self):
""",
    ),
    _edit(
        _WORKER,
        "                    torch.cat((input_ids[1:], tail_tokens[i].reshape(1)))\n",
        f"""\
                    input_ids
                    if {WORKERS} == "same_token"
                    else torch.cat((input_ids[1:], tail_tokens[i].reshape(1)))
""",
    ),
    _edit(
        _WORKER,
        "        batch.spec_info = EagleDraftExtendInput(\n            hidden_states=target_hidden_states,\n"
        "            # draft mode is same with decode mode, only 1 token per req\n",
        f"""\
        batch.spec_info = EagleDraftExtendInput(
            hidden_states=target_hidden_states.roll(1, 0) if {WORKERS} == "states_behind" else target_hidden_states,
""",
    ),
    _edit(
        _WORKER,
        "            return_hidden_states_before_norm=False,\n            kv_loc_plan=kv_loc_plan,\n        )\n"
        "        forward_batch.return_logprob = False\n        if mm_input_embeds is not None:\n"
        "            forward_batch.mm_input_embeds = mm_input_embeds\n\n        # Seed the first",
        f"""\
            return_hidden_states_before_norm=False,
            kv_loc_plan=kv_loc_plan,
        )
        forward_batch.positions += 1 if {WORKERS} == "positions_ahead" else 0
        forward_batch.return_logprob = False
        if mm_input_embeds is not None:
            forward_batch.mm_input_embeds = mm_input_embeds

        # Seed the first""",
    ),
    _edit(
        _WORKER,
        "                forward_batch.input_ids = input_ids\n                # Qwen3-MoE MTP",
        f"""\
                forward_batch.positions -= 1 if {WORKERS} == "positions_stuck" and i else 0
                forward_batch.input_ids = input_ids
                # Qwen3-MoE MTP""",
    ),
    _edit(
        _WORKER,
        "                hidden_states = logits_output.hidden_states\n\n        draft_probs = (",
        f"""\
                if {WORKERS} != "state_kept":
                    hidden_states = logits_output.hidden_states

        draft_probs = (""",
    ),
]
OVERLAY = f"PARAMS = {{}}\n\nEDITS = {EDITS!r}\n"
