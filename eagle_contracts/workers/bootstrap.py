"""First code a worker runs: it makes the package importable from sources sent over the pipe, then serves requests.

The host sends this file's text and a JSON header on the worker's standard input, so that nothing has to be installed
where the engine lives: the same way works through `docker exec -i` and `ssh`. Runs on Python 3.10 and newer.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import sys
from collections.abc import Sequence
from types import ModuleType


class SentSources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules whose sources the host sent, ahead of anything installed under the same names."""

    def __init__(self, modules: dict[str, tuple[bool, str]]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for sent modules only."""
        if fullname not in self._modules:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=self._modules[fullname][0])

    def exec_module(self, module: ModuleType) -> None:
        """Compile the sent source under a readable file name, so that tracebacks show its lines."""
        name = module.__name__
        source = self._modules[name][1]
        shown = "<sent>/" + name.replace(".", "/") + ".py"
        linecache.cache[shown] = (len(source), None, source.splitlines(True), shown)
        module.__file__ = shown
        exec(compile(source, shown, "exec"), module.__dict__)


def _read_exactly(stream: int, count: int) -> bytes:
    """Read unbuffered: what follows the header on the pipe belongs to the request loop."""
    parts: list[bytes] = []
    while count:
        part = os.read(stream, min(count, 1 << 16))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main(header_size: int) -> None:
    """Read the header, install the sources, put a keeper above, serve until the pipe closes."""
    header = json.loads(_read_exactly(0, header_size))
    os.environ.update(header["environ"])
    sys.path[:] = [entry for entry in sys.path if entry]
    modules = {name: (bool(package), source) for name, (package, source) in header["modules"].items()}
    sys.meta_path.insert(0, SentSources(modules))
    from eagle_contracts.workers import keeper

    keeper.keep(header["parent"])
    from eagle_contracts.workers import process

    process.serve()
