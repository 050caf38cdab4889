"""Makes the tables beside these tests importable, whatever way pytest imports test files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("search_tables")
