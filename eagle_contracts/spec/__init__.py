"""YAML to frozen dataclasses, with schemas, positions and references; no torch."""
