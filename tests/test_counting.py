"""The count of what is done: on standard error, if that is a terminal, and never among the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import answering, check, counting


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The streams that are terminals; the display appears at once."""
    streams: set[str] = set()
    monkeypatch.setattr(counting, "PATIENCE", 0)
    monkeypatch.setattr(counting, "EVERY", 0)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # so that rich draws into what stands for a terminal here
    monkeypatch.setenv("TERM", "xterm")
    for module in (check, answering):
        monkeypatch.setattr(module, "is_terminal", streams.__contains__)
    return streams


def test_check_counts_rows_on_a_terminal(call: Any, tiny_run: Any, terminal: set[str]) -> None:
    """Before, nothing was shown until a big file had been read."""
    silent = call("check", tiny_run.pairs)
    assert silent.err == ""
    terminal.add("stderr")
    shown = call("check", tiny_run.pairs)
    assert "rows read" in shown.err and shown.out == silent.out and shown.code == 0


def test_predict_counts_inputs_if_the_outputs_go_elsewhere(
    call: Any, tiny_run: Any, terminal: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "inputs.txt"
    file.write_text("abc\nhgf\n" * 10, encoding="utf-8")
    silent = call("predict", tiny_run.folder, file)
    assert "inputs answered" not in silent.err
    terminal.add("stderr")
    shown = call("predict", tiny_run.folder, file)
    assert "inputs answered" in shown.err and shown.out == silent.out
    assert "inputs answered" not in call("predict", tiny_run.folder, file, "--quiet").err
    terminal.add("stdout")  # the outputs themselves show how far it is
    assert "inputs answered" not in call("predict", tiny_run.folder, file).err


def test_what_is_done_soon_shows_no_count(call: Any, tiny_run: Any, terminal: set[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(counting, "PATIENCE", 3600)
    terminal.add("stderr")
    assert call("check", tiny_run.pairs).err == ""
