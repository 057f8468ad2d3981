"""Renders verdicts; decides nothing. PYTEST_DONT_REWRITE"""
