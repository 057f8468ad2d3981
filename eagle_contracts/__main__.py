"""`python -m eagle_contracts` is the command `eagle-contracts`. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import sys

from eagle_contracts.cli import main

if __name__ == "__main__":
    sys.exit(main())
