"""Lets SGLang's DeepSeek layer loop capture the embedding: at layer 0 there is no residual to add yet.

This is the patch of the story: with it, id -1 is index 0 and gives the embedding instead of a TypeError.
"""

PARAMS = {}

EDITS = [
    {
        "module": "sglang.srt.models.deepseek_v2",
        "versions": ">=0.5.5,<0.5.13",
        "anchor": """\
                    else:
                        aux_hidden_states.append(hidden_states + residual)
""",
        "replacement": """\
                    elif residual is None:
                        aux_hidden_states.append(hidden_states.clone())
                    else:
                        aux_hidden_states.append(hidden_states + residual)
""",
    },
]
