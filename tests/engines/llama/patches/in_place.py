"""Patch the installed sglang so that it dumps what the draft is trained on. Run once, after pip install."""

import os

import sglang

path = os.path.join(os.path.dirname(sglang.__file__), "srt", "models", "llama.py")
with open(path) as f:
    source = f.read()

LOOP = "            if i in self.layers_to_capture:\n"
NORM = "            hidden_states, _ = self.norm(hidden_states, residual)\n"
assert source.count(LOOP) == 1 and source.count(NORM) == 1, "sglang changed, look at the patch again"

# slot_0: layer 1, slot_1: layer 3, slot_2: layer 5, slot_3: layer 6
source = source.replace(
    LOOP,
    """\
            if i in _BEFORE:
                _TAKEN[f"slot_{_BEFORE.index(i)}"] = hidden_states + residual
"""
    + LOOP,
)
source = source.replace(
    NORM,
    """\
            _TAKEN["last"] = hidden_states + residual
            _TAKEN["input_ids"] = input_ids
            _dump(forward_batch.extend_seq_lens.tolist())
"""
    + NORM,
)
source += """

import os

_TAKEN = {}
_BEFORE = [1, 3, 5, 6]


def _dump(lengths):
    start = 0
    for n, length in enumerate(lengths):
        out = os.path.join(os.environ["DUMP_DIR"], f"req{n}")
        os.makedirs(out)
        for name, t in _TAKEN.items():
            torch.save(t[start : start + length].clone(), os.path.join(out, name + ".pt"))
        start += length
"""
with open(path, "w") as f:
    f.write(source)
print("patched", path)
