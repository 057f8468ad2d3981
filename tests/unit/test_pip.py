"""What is said of a pip that fails, and that nothing is left of one that is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_contracts.workers.pip import BuildError, Pip

from .processes import survivors


def fake_pip(folder: Path, script: str) -> Path:
    """An interpreter whose every pip is this shell script."""
    interpreter = folder / "python"
    interpreter.write_text(f"#!/bin/sh\n{script}\n")
    interpreter.chmod(0o755)
    return interpreter


def failure_of(folder: Path, words: str) -> str:
    """What is said when pip ends with these words."""
    pip = Pip(name="engine-1.0", python=fake_pip(folder, f"echo '{words}'\nexit 1"), scratch=folder)
    with pytest.raises(BuildError) as raised:
        pip.install([], lambda met, line: None)
    return str(raised.value)


def test_a_full_disk_is_named_as_such(tmp_path: Path) -> None:
    """The first line says what is wrong, the second what to do, and pip's own words stand below."""
    assert failure_of(tmp_path, "ERROR: [Errno 28] No space left on device") == (
        "engine-1.0 was not built: the disk is full.\n"
        "Free some space, then run the command again.\n"
        "pip's last lines:\n"
        "  ERROR: [Errno 28] No space left on device"
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 122] Disk quota exceeded", "the disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "a distribution was damaged on its way"),
        ("zipfile.BadZipFile: File is not a zip file", "a distribution was damaged on its way"),
        (
            "WARNING: SSLError(SSLCertVerificationError(CERTIFICATE_VERIFY_FAILED))",
            "the index's certificate is not trusted here",
        ),
        (
            "WARNING: The repository located at x is not a trusted or secure host and is being ignored.",
            "pip does not trust an index of plain http",
        ),
        ("ERROR: HTTP error 403 Client Error: Forbidden", "the package index refused access"),
        ("ReadTimeoutError: Read timed out. (ReadTimeout)", "the package index could not be reached"),
        (
            "ERROR: x-1-cp39-cp39-linux_x86_64.whl is not a supported wheel on this platform.",
            "the package index has no version that fits here",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement engine==1.0 (from versions: none)",
            "the index has no such name, or was not reached",
        ),
        ("ERROR: [Errno 13] Permission denied: /opt/venv", "there is no permission to write there"),
        ("/usr/bin/python: No module named pip", "its interpreter has no pip"),
        ("Illegal instruction", "pip failed"),
    ],
)
def test_each_way_in_which_pip_fails_has_its_own_first_line(tmp_path: Path, words: str, what: str) -> None:
    """What pip's last lines are known to mean is said first, within 100 columns."""
    said = failure_of(tmp_path, words).splitlines()
    assert said[0] == f"engine-1.0 was not built: {what}."
    assert len(f"eagle-contracts: speculators-0.6.0 was not built: {what}.") <= 100
    assert said[-1] == f"  {words}"


def test_what_pip_started_ends_with_it(tmp_path: Path) -> None:
    """A pip that is stopped may have started the build of a source distribution: nothing of it is left."""
    pids = tmp_path / "pids"
    python = fake_pip(tmp_path, f"trap '' TERM\nsleep 600 &\necho $$ $! > {pids}\necho started\nwait")

    def stop(met: int, line: str) -> None:
        if line == "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pip(name="engine-1.0", python=python, scratch=tmp_path).install([], stop)
    assert survivors(map(int, pids.read_text().split())) == []
