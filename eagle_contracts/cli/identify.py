"""`eagle-contracts identify`: what a tensor in a file is, from the checkpoint's rows alone. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from eagle_contracts.cli import OK, USAGE
from eagle_contracts.cli.words import JSON_HELP, Complaint, Parser, printable, say_json


def main(arguments: Sequence[str]) -> int:
    """Answer for one tensor, slot by slot."""
    options = _parser().parse_args(arguments)
    _need_torch()
    from eagle_contracts.cli.identified import identified

    found = identified(options.file, options.checkpoint, options.tokens, options.slot, options.name)
    say_json(found) if options.json else print(_text(found))
    return OK


def _parser() -> argparse.ArgumentParser:
    what = (
        "Say whether a tensor in a file is the embedding of these tokens, a state before or after the final norm,\n"
        "or none of these.\n"
        "No model is loaded: a few rows of the checkpoint are read, whatever its size. What rows alone cannot tell,\n"
        "which layer a state comes from, is said to be open."
    )
    examples = (
        "aux_0.pt --checkpoint ~/models/target --tokens 1,2,3",
        "sample.safetensors --name hidden_states --slot 2 --checkpoint ~/models/target --tokens @tokens.json",
    )
    codes = "0 answered, whatever the answer, 1 no answer: a file cannot be read or used, 2 wrong usage"
    parser = Parser("identify", what, examples, codes)
    parser.add_argument("file", type=Path, metavar="FILE", help=".safetensors, or .pt/.pth of plain tensors")
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="config.json and safetensors")
    parser.add_argument("--tokens", required=True, metavar="IDS", help="1,2,3 or @FILE: a JSON list, .pt, .safetensors")
    parser.add_argument("--slot", type=int, metavar="K", help="this slot of a concatenation, from 0; else every slot")
    parser.add_argument("--name", metavar="TENSOR", help="which tensor of the file, where it holds several")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    return parser


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        words = "identify needs torch, which this Python does not have: pip install 'eagle-contracts[torch]'"
        raise Complaint(words, USAGE)


def _text(found: Mapping[str, object]) -> str:
    slots = found["slots"]
    assert isinstance(slots, list)
    lines = [f"{found['file']}: {found['name']}, {found['shape']} {found['dtype']}"]
    for slot in slots:
        head = f"slot {slot['slot']}: " if slot["slot"] is not None else ""
        lines.append(f"\n{head}{slot['sentence']}")
        lines += [f"  {sentence}" for sentence in slot["evidence"]]
        lines += [f"  open: {slot['open']}"] if slot["open"] else []
    if found["rows_read"] != found["rows"]:
        lines.append(f"\n{found['rows_read']} of {found['rows']} rows were read, evenly spread.")
    return printable("\n".join(lines))
