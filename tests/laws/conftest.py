"""Makes ``law_cases`` importable by its neighbours (pytest's importlib mode adds no folder to the path)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
