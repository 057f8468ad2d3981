"""`pytest --contracts`: options, and the run's own hooks where they are asked for. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse

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
        default="",
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
        if config.getoption(option):
            raise pytest.UsageError(f"{option} changes a contracts run: give --contracts too")


def _seconds(text: str) -> float:
    """Read a time limit; argparse turns the exception into a usage error that names the flag."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is wanted, not '{text}'")
    return seconds
