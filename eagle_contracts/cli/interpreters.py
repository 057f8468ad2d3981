"""Where a pipeline's environments find their interpreters, each asked once. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eagle_contracts.engines import EngineTable
from eagle_contracts.project import home_folder
from eagle_contracts.spec.model import Environment, Pipeline
from eagle_contracts.workers.environments import Resolved, Unavailable


class Interpreters:
    """A project's interpreters; nothing is started but `python` entries, which are asked for their version."""

    def __init__(self, root: Path) -> None:
        self._table = EngineTable(root, home_folder(root))

    def of(self, pipeline: Pipeline, environment: Environment) -> Resolved | Unavailable:
        """Return how an environment's interpreter is found, or why it is not."""
        return self._table.environment(pipeline, environment)

    def labels(self, pipeline: Pipeline) -> Mapping[str, str]:
        """Return how ids name each environment of a pipeline."""
        found = {name: self.of(pipeline, environment) for name, environment in pipeline.environments.items()}
        return {name: one.label if isinstance(one, Resolved) else name for name, one in found.items()}
