"""The real code that contracts run, one module per adapter. PYTEST_DONT_REWRITE"""
