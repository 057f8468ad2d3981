"""`python -m eagle_contracts.cli` is the command `eagle-contracts`. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import sys

from eagle_contracts.cli import main

sys.exit(main())
