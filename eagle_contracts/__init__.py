"""Contracts for the hand-offs between training and serving an EAGLE-3 draft model. PYTEST_DONT_REWRITE"""

__version__ = "0.1.0"
