"""Whatever is done to a file, the answer is a specification or a SpecError, never another exception."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle_contracts.spec.document import load_json
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.located import value_at
from eagle_contracts.spec.model import Contract, Pipeline
from eagle_contracts.spec.overrides import parse_overrides
from eagle_contracts.taps import parse_tap, parse_taps

STORY = Path(__file__).parent / "spec_story"
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "- ",
    "\n",
    "\t",
    "'",
    '"',
    "&a ",
    "*a",
    "!!int ",
    "$",
    "null",
    "0",
    "1.0",
    "<<: ",
]
PIECES += [
    "true",
    "[]",
    "{}",
    "x",
    "#",
    "|",
    ">",
    "%",
    "\0",
    "\x1b",
    "\ud83d",
    "ü",
    "---",
    "...",
    '"\\0"',
    "-1",
    ".nan",
]
SETTINGS = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def edits(text: str) -> st.SearchStrategy[str]:
    """Return versions of a text with up to four spans replaced by pieces of syntax."""
    spot = st.tuples(st.integers(0, len(text)), st.integers(0, 12), st.sampled_from(PIECES) | st.text(max_size=3))
    return st.lists(spot, min_size=1, max_size=4).map(lambda spots: apply(text, spots))


def apply(text: str, spots: list[tuple[int, int, str]]) -> str:
    for start, length, piece in spots:
        text = text[:start] + piece + text[start + length :]
    return text


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(STORY, tmp_path_factory.mktemp("mutated") / "story"))


def rendered(error: SpecError) -> bool:
    """Tell whether every issue has a position and a message that can be printed."""
    return bool(error.issues) and all(issue.position.line > 0 and issue.message for issue in error.issues)


@SETTINGS
@given(text=edits((STORY / "pipeline.yaml").read_text()))
def test_a_mutated_pipeline_loads_or_is_refused(story: Path, text: str) -> None:
    """A typing accident anywhere in pipeline.yaml never ends in a traceback."""
    path = write(story / "mutated_pipeline.yaml", text)
    try:
        assert isinstance(load_pipeline(path), Pipeline)
    except SpecError as error:
        assert rendered(error) and error.render()


@pytest.mark.parametrize("name", ["sglang_capture_offset", "dump_patch_layers", "extraction_ordering"])
def test_a_mutated_contract_loads_or_is_refused(story: Path, name: str) -> None:
    """A typing accident anywhere in a contract never ends in a traceback."""
    pipeline = load_pipeline(story / "pipeline.yaml")

    @SETTINGS
    @given(text=edits((STORY / f"{name}.yaml").read_text()))
    def load(text: str) -> None:
        path = write(story / f"mutated_{name}.yaml", text)
        try:
            assert isinstance(load_contract(path, pipeline), Contract)
        except SpecError as error:
            assert rendered(error) and error.render()

    load()


DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.floats()
    | st.sampled_from(["embed", "final", "$env.X", "serve"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["hidden_states", "layer_outputs", "role", "like", "shift"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)
KEYS = ["spec", "why", "between", "run", "in", "with", "expect", "must_catch", "marks"]
PIPELINE_KEYS = ["spec", "target", "draft", "trained", "environments"]


@SETTINGS
@given(key=st.sampled_from(KEYS), data=DATA)
def test_any_data_under_any_key_of_a_contract_is_judged(story: Path, key: str, data: object) -> None:
    """Well-formed YAML of any shape is accepted or refused in words."""
    import yaml

    content = yaml.safe_load((STORY / "extraction_ordering.yaml").read_text())
    path = write(story / "mutated_data.yaml", yaml.safe_dump({**content, key: data}))
    try:
        assert load_contract(path, load_pipeline(story / "pipeline.yaml")).name == "mutated_data"
    except SpecError as error:
        assert rendered(error) and error.render()


@SETTINGS
@given(key=st.sampled_from(PIPELINE_KEYS), data=DATA | st.dictionaries(st.sampled_from(["a", "b"]), DATA))
def test_any_data_under_any_key_of_a_pipeline_is_judged(story: Path, key: str, data: object) -> None:
    """So is any pipeline."""
    import yaml

    content = yaml.safe_load((STORY / "pipeline.yaml").read_text())
    path = write(story / "mutated_data.yaml", yaml.safe_dump({**content, key: data}))
    try:
        assert load_pipeline(path).folder == story
    except SpecError as error:
        assert rendered(error) and error.render()


@SETTINGS
@given(text=edits((STORY / "draft.config.json").read_text()))
def test_a_mutated_config_loads_or_is_refused(story: Path, text: str) -> None:
    """A config.json is judged like any other file."""
    path = write(story / "mutated.json", text)
    try:
        assert load_json(path).at().line > 0
    except SpecError as error:
        assert rendered(error) and error.render()


@SETTINGS
@given(text=edits("trained.taps={hidden_states: [1, 30, final]}"))
def test_a_mutated_override_is_read_or_refused(text: str) -> None:
    """So is the command line; what is read is then judged as taps."""
    try:
        for value in parse_overrides([text]).values():
            assert parse_taps(value, 61)
    except SpecError as error:
        assert rendered(error) and error.render()


@SETTINGS
@given(data=DATA)
def test_any_data_is_judged_as_taps(story: Path, data: object) -> None:
    """Taps are named, or refused in words."""
    import yaml

    from eagle_contracts.spec.document import load_yaml

    path = write(story / "taps.yaml", yaml.safe_dump({"taps": data}))
    for parse in (parse_taps, parse_tap):
        try:
            assert parse(value_at(load_yaml(path), "taps"), 61)
        except SpecError as error:
            assert rendered(error) and error.render()
