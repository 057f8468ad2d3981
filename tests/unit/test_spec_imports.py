"""Reading specifications stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STORY = Path(__file__).parent / "spec_story"
ROOT = Path(__file__).parents[2]
LOAD = (
    "from pathlib import Path; from eagle_contracts.spec.load import load_pipeline, load_contract;"
    "import eagle_contracts.taps, eagle_contracts.spec.references, eagle_contracts.spec.overrides;"
)
RUN = f"p = load_pipeline(Path({str(STORY / 'pipeline.yaml')!r}));"
RUN += f"load_contract(Path({str(STORY / 'dump_patch_layers.yaml')!r}), p);"


def imported(code: str, *modules: str) -> list[str]:
    """Return which of the modules are loaded in a fresh interpreter after running the code."""
    code += f"import sys; print(*[name for name in {modules!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_loading_contracts_never_imports_torch_or_pytest() -> None:
    """`validate` works where no torch is installed."""
    assert imported(LOAD + RUN, "torch", "numpy", "pytest", "_pytest", "jsonschema") == ["jsonschema"]


def test_nothing_heavy_is_imported_before_a_file_is_read() -> None:
    """The plugin may import the vocabulary without paying for the schemas and the YAML reader."""
    assert imported(LOAD, "jsonschema", "yaml", "torch") == []


def test_the_check_for_imports_can_fail() -> None:
    """A check that never fails would prove nothing."""
    assert imported("import json, jsonschema;", "jsonschema", "torch") == ["jsonschema"]
