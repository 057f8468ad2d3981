"""`pytest --contracts`: options, and the run's own hooks where they are asked for. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags and the ini value."""
    group = parser.getgroup("contracts", "contracts between training and serving (eagle-contracts)")
    group.addoption("--contracts", action="store_true", help="collect YAML contracts and run them on the real engines")
    group.addoption(
        "--contracts-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value of every pipeline, such as draft.layer_ids=[2,30,58]; negative controls are left out",
    )
    group.addoption(
        "--contracts-fresh",
        action="store_true",
        help="observe everything again, whatever the store holds of earlier runs",
    )
    group.addoption(
        "--contracts-strict",
        action="store_true",
        help="fail where an environment is unavailable or a contract unproven",
    )
    group.addoption(
        "--contracts-require",
        metavar="NAME[,NAME]",
        default=None,
        help="stop before anything runs unless these are there: gpu, an environment, an engine or a package",
    )
    group.addoption(
        "--contracts-device",
        choices=("cpu", "cuda", "cuda-reference", "auto"),
        help="where engines run: cpu (the default), cuda (the engine's own kernels), cuda-reference (its torch forms), "
        "auto (cuda where a GPU has 8 GiB free)",
    )
    group.addoption(
        "--contracts-timeout",
        metavar="SECONDS",
        type=_seconds,
        default=None,
        help="how long one observation may take (default: 120)",
    )
    parser.addini("contracts_paths", "where contracts are, relative to rootdir", type="args", default=["contracts"])


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks of a contracts run, if one is asked for; otherwise YAML files are left alone."""
    if config.getoption("--contracts"):
        from eagle_contracts.pytest_run import ContractRun

        config.pluginmanager.register(ContractRun(config), "eagle_contracts.run")
        return
    for option in (
        "--contracts-set",
        "--contracts-fresh",
        "--contracts-strict",
        "--contracts-require",
        "--contracts-timeout",
        "--contracts-device",
    ):
        if config.getoption(option) not in (None, False, []):
            raise pytest.UsageError(f"{option} changes a contracts run: give --contracts too")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode, config: pytest.Config
) -> None:
    """Hint at the flag where contracts are named without it, and nothing was collected for them."""
    if config.getoption("--contracts") or exitstatus not in (4, 5):
        return
    for argument in config.args:
        name = str(argument)
        if _holds_contracts(config.invocation_params.dir / name.partition("::")[0]):
            command = f"pytest --contracts '{name}'"
            words = f"{name.partition('::')[0]} holds contracts, which are run with --contracts: {command}"
            terminalreporter.write_line(words)


def _holds_contracts(path: Path) -> bool:
    """Tell whether a path is a YAML file beside a pipeline, or a folder with one."""
    if path.is_dir():
        return _has_pipeline(path)
    return path.suffix in (".yaml", ".yml") and path.is_file() and _has_pipeline(path.parent)


def _has_pipeline(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("pipeline.yaml", "pipeline.yml"))


def _seconds(text: str) -> float:
    """Read a time limit; argparse turns the exception into a usage error that names the flag."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is wanted, not '{text}'")
    return seconds
