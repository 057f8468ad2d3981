"""A record is made once, is whole or not there, and is found until something that it follows from changes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle_contracts.workers.store import (
    KEPT_DAYS,
    RECORD,
    Store,
    content_digest,
    is_for_this_run,
    is_full,
    key_for_this_run,
    key_of,
    sources_digest,
)

from .processes import until

KEY = key_of("one")
FORK = multiprocessing.get_context("fork")
Make = Callable[[Path], Mapping[str, Any] | None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def making(value: object, calls: list[object] | None = None) -> Make:
    """Return how a record of this value is made, with a tensor's file beside it; each call is counted."""

    def make(scratch: Path) -> dict[str, Any]:
        if calls is not None:
            calls.append(value)
        (scratch / "tensor").write_text(str(value), encoding="utf-8")
        return {"value": value}

    return make


def value(record: Mapping[str, Any] | None) -> object:
    assert record is not None
    return record["value"]


def left_in(folder: Path) -> list[str]:
    """Return what lies in a store, whole or not."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".locks")


def test_a_record_is_made_once(folder: Path) -> None:
    """The first who asks makes it, files included; later ones read it, in other processes too."""
    calls: list[object] = []
    assert value(Store(folder).through(KEY, making(1, calls))) == 1
    assert value(Store(folder).through(KEY, making(2, calls))) == 1
    assert calls == [1]
    assert (Store(folder).path(KEY) / "tensor").read_text() == "1"
    assert value(Store(folder).read(KEY)) == 1


def test_what_is_not_there_is_none(folder: Path) -> None:
    """Reading creates nothing."""
    assert Store(folder).read(KEY) is None
    assert not folder.exists()


def test_nothing_is_kept_of_what_was_not_made(folder: Path) -> None:
    """A failed observation leaves no record and no scratch folder; the next who asks tries again."""
    store = Store(folder)
    assert store.through(KEY, lambda scratch: None) is None
    with pytest.raises(RuntimeError):
        store.through(KEY, raising)
    assert left_in(folder) == []
    assert value(store.through(KEY, making(1))) == 1


def raising(scratch: Path) -> Mapping[str, Any]:
    (scratch / "tensor").write_text("half", encoding="utf-8")
    raise RuntimeError("odd")


def test_a_disk_that_is_full_keeps_nothing(folder: Path) -> None:
    """Where the record does not fit, that is raised, and neither a half record nor a scratch folder is left."""

    def make(scratch: Path) -> dict[str, Any]:
        (scratch / RECORD).symlink_to("/dev/full")
        return {"value": 1}

    store = Store(folder)
    with pytest.raises(OSError, match="No space left on device"):
        store.through(KEY, make)
    assert store.read(KEY) is None
    assert left_in(folder) == []


def test_a_full_disk_is_told_by_its_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker raises then has many names, so the room that is left decides."""
    folder.mkdir()
    assert not is_full(folder)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=4096))
    assert is_full(folder)


def test_a_failed_replacement_keeps_the_older_record(folder: Path) -> None:
    """A record that cannot be made again stays as it was."""
    Store(folder).through(KEY, making(1))
    with pytest.raises(RuntimeError):
        Store(folder, since=time.time() + 60).through(KEY, raising)
    assert value(Store(folder).read(KEY)) == 1


@pytest.mark.parametrize("text", ["", '{"value": 1', "\x00" * 20])
def test_a_damaged_record_is_made_again(folder: Path, text: str) -> None:
    """A record that cannot be read is none."""
    store = Store(folder)
    store.through(KEY, making(1))
    (store.path(KEY) / RECORD).write_text(text, encoding="utf-8")
    assert store.read(KEY) is None
    assert value(store.through(KEY, making(2))) == 2
    assert left_in(folder) == [KEY]


def test_a_fresh_run_makes_each_record_once(folder: Path) -> None:
    """Records of before the run are made again, by whichever of its processes comes first; older runs read them."""
    Store(folder).through(KEY, making(1))
    calls: list[object] = []
    since = time.time()
    assert Store(folder, since=since).read(KEY) is None
    assert value(Store(folder, since=since).through(KEY, making(2, calls))) == 2
    assert value(Store(folder, since=since).through(KEY, making(3, calls))) == 2
    assert calls == [2]
    assert value(Store(folder).read(KEY)) == 2


def test_an_unusable_record_is_made_again(folder: Path) -> None:
    """Whether what a record speaks of is still there is asked while nobody else makes it."""
    there: list[object] = []
    store = Store(folder)
    assert value(store.through(KEY, making(1, there), usable=lambda: bool(there))) == 1
    assert value(store.through(KEY, making(2, there), usable=lambda: bool(there))) == 1
    there.clear()
    assert value(store.through(KEY, making(3, there), usable=lambda: bool(there))) == 3


def test_processes_make_a_record_once(folder: Path, tmp_path: Path) -> None:
    """Those who come while it is made wait, and read it, also where it is only usable once it was made."""
    diary, made = tmp_path / "diary", tmp_path / "made"

    def make(scratch: Path) -> dict[str, Any]:
        with open(diary, "a") as file:
            file.write("made\n")
        time.sleep(0.3)
        made.touch()
        return {"value": 1}

    def ask() -> None:
        assert value(Store(folder).through(KEY, make, usable=made.exists)) == 1

    processes = [FORK.Process(target=ask) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0] * 4
    assert diary.read_text() == "made\n"


def test_a_killed_process_leaves_nothing_that_looks_whole(folder: Path) -> None:
    """After `kill -9` the lock is free, and the next record that is made tidies up."""

    def hang(scratch: Path) -> dict[str, Any]:
        (scratch / "tensor").write_text("half", encoding="utf-8")
        time.sleep(60)
        return {"value": 1}

    process = FORK.Process(target=lambda: Store(folder).through(KEY, hang))
    process.start()
    assert until(lambda: any(folder.glob(".making.*/tensor")))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    assert Store(folder).read(KEY) is None
    assert len(left_in(folder)) == 1
    assert value(Store(folder).through(KEY, making(2))) == 2
    assert left_in(folder) == [KEY]


def test_scratch_folders_of_the_living_are_left_alone(folder: Path) -> None:
    """Another run's observation in progress is not swept away."""
    living = folder / f".making.{os.getppid()}.x"
    living.mkdir(parents=True)
    Store(folder).through(KEY, making(1))
    assert left_in(folder) == sorted([living.name, KEY])


def test_records_for_one_run_end_with_it(folder: Path) -> None:
    """What no other run may read has a name of its own, is read within the run, and is removed at its end."""
    own = key_for_this_run(KEY)
    assert (is_for_this_run(own), is_for_this_run(KEY)) == (True, False)
    store = Store(folder)
    store.through(KEY, making(1))
    store.through(own, making(2))
    assert value(store.read(own)) == 2
    store.close()
    assert left_in(folder) == [KEY]


def test_what_nobody_read_for_long_is_removed(folder: Path) -> None:
    """Reading a record keeps it."""
    store, other = Store(folder), key_of("two")
    long_ago = time.time() - (KEPT_DAYS + 1) * 86_400
    for key in (KEY, other):
        store.through(key, making(1))
        os.utime(store.path(key) / RECORD, (long_ago, long_ago))
    assert store.read(KEY) is not None
    store.close()
    assert left_in(folder) == [KEY]


def test_a_file_in_the_stores_place_is_told(folder: Path) -> None:
    """What cannot be written is raised, for the verdict to say; closing after it is no second error."""
    folder.write_text("in the way", encoding="utf-8")
    store = Store(folder)
    with pytest.raises(FileExistsError):
        store.through(KEY, making(1))
    store.close()


def test_a_key_follows_from_every_part() -> None:
    """Equal parts have equal keys, in whatever order a map was written; any other part is another key."""
    parts: list[tuple[object, ...]] = [
        ("a", {"x": 1, "y": 2}),
        ("a", {"x": 1, "y": 3}),
        ("b", {"x": 1, "y": 2}),
        ("a",),
    ]
    keys = [key_of(*part) for part in parts]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 40 for key in keys)
    assert key_of("a", {"y": 2, "x": 1}) == keys[0]


def test_sources_are_known_by_name_size_and_time(tmp_path: Path) -> None:
    """A changed, added, renamed or removed module changes the digest; compiled files and data do not."""
    module = tmp_path / "package" / "module.py"
    module.parent.mkdir()
    module.write_text("A = 1\n", encoding="utf-8")
    digests = [sources_digest([tmp_path])]
    (module.parent / "__pycache__").mkdir()
    (module.parent / "__pycache__" / "module.py").write_text("", encoding="utf-8")
    (module.parent / "data.json").write_text(json.dumps(1), encoding="utf-8")
    assert sources_digest([tmp_path]) == digests[0]
    module.write_text("A = 10\n", encoding="utf-8")
    digests.append(sources_digest([tmp_path]))
    other = module.with_name("other.py")
    other.write_text("", encoding="utf-8")
    digests.append(sources_digest([tmp_path]))
    module.rename(module.with_name("renamed.py"))
    digests.append(sources_digest([tmp_path]))
    other.unlink()
    digests.append(sources_digest([tmp_path]))
    assert len(set(digests)) == len(digests)


def test_a_copy_elsewhere_has_the_same_content(tmp_path: Path) -> None:
    """A stage's folder in another checkout is the same; a file that differs in one byte or has another name is not."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stage.py").write_text("A = 1\n", encoding="utf-8")
    os.utime(tmp_path / "two" / "stage.py", (1, 1))
    same = content_digest(tmp_path / "one")
    assert content_digest(tmp_path / "two") == same
    (tmp_path / "two" / "stage.py").write_text("A = 2\n", encoding="utf-8")
    assert content_digest(tmp_path / "two") != same
    (tmp_path / "one" / "stage.py").rename(tmp_path / "one" / "other.py")
    assert content_digest(tmp_path / "one") != same
