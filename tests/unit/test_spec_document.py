"""Reading files: YAML 1.2 and JSON to plain data, with positions, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from eagle_contracts.spec.document import Document, load_json, load_yaml, parse_yaml
from eagle_contracts.spec.errors import SpecError


def yaml_of(text: str) -> Document:
    return parse_yaml(text, path=Path("x.yaml"), shown="x.yaml")


def refused_yaml(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        yaml_of(text)
    return caught.value.render()


def refused_file(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        (load_json if path.suffix == ".json" else load_yaml)(path, path.name)
    return caught.value.render()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("FALSE", False),
        ("Null", None),
        ("~", None),
        ("+1", 1),
        ("-1", -1),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("0.5.9", "0.5.9"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("$trained.taps", "$trained.taps"),
        ("-", [None]),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    """No booleans in `yes`, no octal in `010`, no clock in `1:30`, no dates."""
    data = yaml_of(f"- {text}").data
    assert data == [value]
    assert isinstance(data, list)
    assert type(data[0]) is type(value)


def test_keys_are_always_text() -> None:
    """`on:` and `1:` are keys as they are written."""
    assert yaml_of("{on: 1, 1: 2, null: 3}").data == {"on": 1, "1": 2, "null": 3}


def test_every_value_and_key_has_its_position() -> None:
    """Positions count from 1, in characters, and an unknown path falls back to its parent."""
    document = yaml_of("a: ü\nb:\n  - {c: [1, 22]}\n")
    assert document.at("b", 0, "c", 1).full == "x.yaml:3:13"
    assert document.key_at("b", 0, "c").full == "x.yaml:3:6"
    assert document.at("b", 0, "nothing", 7).full == "x.yaml:3:5"
    assert str(document.at("a")) == "x.yaml:1"
    assert document.line(3) == "  - {c: [1, 22]}"
    assert document.line(99) == ""


def test_lines_end_as_any_editor_ends_them() -> None:
    """Windows and old Mac line ends, and separators that YAML 1.1 took for line ends, do not move positions."""
    for end in ("\n", "\r\n", "\r"):
        assert yaml_of(f"a: 1{end}b: 2{end}").at("b").full == "x.yaml:2:4"
    assert yaml_of('a: "x\u2028y"\nb: 2\n').at("b").full == "x.yaml:2:4"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    """Files saved by Windows editors read the same."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(path).at("a").column == 4


def test_aliases_repeat_a_value() -> None:
    """An alias stands for its anchor's value; its position is where the value was written."""
    document = yaml_of("a: &ids [1, 2]\nb: *ids\n")
    assert document.data == {"a": [1, 2], "b": [1, 2]}
    assert document.at("b", 1).full == "x.yaml:1:13"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: 2\na: 3\n",
            "x.yaml:3:1: the key 'a' is written twice\n    a: 3\n    ^\n  it stands in line 1 too",
        ),
        (
            "a: !!python/name:os.system x\n",
            "x.yaml:1:4: the tag !!python/name:os.system is not allowed\n    a: !!python/name:os.system x\n       ^\n"
            "  write plain values; quote what must stay text",
        ),
        (
            "a: ! x\n",
            "x.yaml:1:4: the tag ! is not allowed\n    a: ! x\n       ^\n"
            "  write plain values; quote what must stay text",
        ),
        (
            "a:\n\tb: 1\n",
            "x.yaml:2:1: a tab cannot indent YAML\n     b: 1\n    ^\n  indent with spaces",
        ),
        ("a: &a [*a]\n", "x.yaml:1:8: *a stands inside its own anchor &a\n    a: &a [*a]\n           ^"),
        (
            "a: &ids 1\nb: *idz\n",
            "x.yaml:2:4: no anchor &idz comes before *idz\n    b: *idz\n       ^\n  did you mean 'ids'?",
        ),
        ("", "x.yaml:1:1: is empty\n  write `spec: 1` and the other keys"),
        ("# only words\n", "x.yaml:1:1: is empty\n    # only words\n    ^\n  write `spec: 1` and the other keys"),
        ("---\n", "x.yaml:1:1: is empty\n    ---\n    ^\n  write `spec: 1` and the other keys"),
        (
            "a: 1\n---\nb: 2\n",
            "x.yaml:2:1: a second document starts here\n    ---\n    ^\n  keep one document in each file",
        ),
        (
            "a: b: c\n",
            "x.yaml:1:5: is not YAML: mapping values are not allowed in this context\n    a: b: c\n        ^",
        ),
        ("a: \x01\n", "x.yaml:1:4: the character U+0001 is not allowed in YAML\n    a:\n       ^"),
        (
            "? [a]\n: 1\n",
            "x.yaml:1:3: a list cannot be a key\n    ? [a]\n      ^\n  quote values that begin with { or [",
        ),
        (
            "a: {x: 1}\n<<: {b: 1}\n",
            "x.yaml:2:1: << does not merge in YAML 1.2\n    <<: {b: 1}\n    ^\n  write the keys out",
        ),
        (
            f"a: {'9' * 5000}",
            f"x.yaml:1:4: a number of 5000 digits is too long\n    a: {'9' * 89}\n       ^",
        ),
    ],
)
def test_what_is_not_plain_yaml_is_refused_where_it_stands(text: str, message: str) -> None:
    """Position, the line, a caret, and what to do."""
    assert refused_yaml(text) == message


def test_several_mistakes_are_reported_together() -> None:
    """Tags and duplicate keys do not hide each other."""
    assert [line for line in refused_yaml("b: !x 1\na: 1\na: 2\n").splitlines() if line.startswith("x.yaml")] == [
        "x.yaml:1:4: the tag !x is not allowed",
        "x.yaml:3:1: the key 'a' is written twice",
    ]


def test_aliases_cannot_blow_up_a_small_file() -> None:
    """Four lines that mean ten thousand values are refused at the alias that does it."""
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    message = refused_yaml("\n".join(rows))
    assert message.startswith("x.yaml:4:45: aliases expand to more than 10,000 values")


@pytest.mark.parametrize("text", ["[" * 500_000, "[" * 500, "- " * 500 + "x", "{a: " * 500])
def test_deep_nesting_is_refused_without_exhausting_the_stack(text: str) -> None:
    """A hostile file gives a message, not a crash."""
    assert "is nested more than 100 levels deep" in refused_yaml(text)


def test_nesting_through_aliases_is_refused_too() -> None:
    """Depth counts after expansion."""
    deep = "[" * 60 + "1" + "]" * 60
    assert "is nested more than 100 levels deep" in refused_yaml(f"a: &a {deep}\nb: {deep.replace('1', '*a')}\n")


def test_a_file_larger_than_a_mebibyte_is_refused(tmp_path: Path) -> None:
    """Nobody writes such a contract by hand."""
    assert refused_file(tmp_path / "x.yaml", b"a" * (1 << 20) + b"b") == (
        "x.yaml:1:1: is larger than 1 MiB\n  no specification or config is that big: is this another file?"
    )


def test_a_file_in_another_encoding_is_refused_at_the_byte(tmp_path: Path) -> None:
    """The position is that of the first byte that is not UTF-8."""
    assert refused_file(tmp_path / "x.yaml", "a: 1\nb: ä\n".encode("latin-1")) == (
        "x.yaml:2:4: is not UTF-8: byte 0xe4\n  save the file as UTF-8"
    )


def test_a_missing_file_is_an_error_of_the_specification(tmp_path: Path) -> None:
    """Reading what is not there gives a sentence, not a traceback."""
    with pytest.raises(SpecError) as caught:
        load_yaml(tmp_path / "x.yaml", "x.yaml")
    assert caught.value.render() == "x.yaml:1:1: cannot be read: No such file or directory"


def test_json_has_positions_too(tmp_path: Path) -> None:
    """A config's value can be pointed at, whatever strings and escapes stand before it."""
    path = tmp_path / "config.json"
    path.write_text('{\n  "a\\"{": "},[",\r\n  "e": {"ids": [1, -2e0,\n 30]}, "s": "\\ud83d\\ude00"}\n', newline="")
    document = load_json(path, "config.json")
    assert document.data == {'a"{': "},[", "e": {"ids": [1, -2.0, 30]}, "s": "\U0001f600"}
    assert document.at("e", "ids", 1).full == "config.json:3:20"
    assert document.at("e", "ids", 2).full == "config.json:4:2"
    assert document.key_at("s").full == "config.json:4:8"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"a": 1,\n "a": 2}',
            "config.json:2:2: the key 'a' is written twice\n     \"a\": 2}\n     ^\n  it stands in",
        ),
        (b'{"a": 1,\r\n}', "config.json:2:1: is not JSON: "),
        (b'{"a" 1}', "config.json:1:6: is not JSON: expecting ':' delimiter"),
        (b" \n", "config.json:1:1: is empty"),
        (b"[" * 200_000, "config.json:1:1: is nested too deep"),
        (b"9" * 5000, "config.json:1:1: holds a number with too many digits"),
        (b'{"a": "\xff"}', "config.json:1:8: is not UTF-8: byte 0xff"),
    ],
)
def test_broken_json_is_refused_where_it_breaks(tmp_path: Path, content: bytes, message: str) -> None:
    """Configs are edited by hand; their mistakes get positions like any other."""
    assert refused_file(tmp_path / "config.json", content).startswith(message)
