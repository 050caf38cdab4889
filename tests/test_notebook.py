"""The example notebook: what its script writes, executed, small, and without places of the machine that made it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOK = EXAMPLES / "notebook.ipynb"


def test_the_notebook_is_that_of_its_script_with_outputs() -> None:
    spec = importlib.util.spec_from_file_location("make_notebook", EXAMPLES / "make_notebook.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    executed = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    wanted = script.make_notebook()
    assert ["".join(cell["source"]) for cell in executed["cells"]] == [
        "".join(each["source"]) for each in wanted["cells"]
    ]
    assert [cell["cell_type"] for cell in executed["cells"]] == [cell["cell_type"] for cell in wanted["cells"]]
    for cell in executed["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"], cell["source"]
            assert all(output["output_type"] != "error" for output in cell["outputs"]), cell["source"]
    assert NOTEBOOK.stat().st_size < script.LARGEST


def test_the_notebook_names_no_place_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert "<svg" in text, "a prediction is drawn"
    assert re.findall(r"/(?:home|root|tmp|work|usr|Users|var)/", text) == []
