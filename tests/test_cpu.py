"""CPUs that announce AMX: oneDNN is capped below it, unless bfloat16 is asked for and a trial product survives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import UserError
from dragoman.process import cpu


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start as a fresh process would, and leave the environment as it was."""
    monkeypatch.setattr(os, "environ", os.environ.copy())  # a plain copy: nothing reaches oneDNN of this process
    for name in (*cpu.VARIABLES, cpu.MARK, "DRAGOMAN_AMX"):
        os.environ.pop(name, None)
    cpu.bfloat16_works.cache_clear()


@pytest.mark.parametrize("name", cpu.VARIABLES)
def test_what_the_user_has_set_stays(name: str) -> None:
    os.environ.update({"DRAGOMAN_AMX": "cannot", name: "AVX2"})
    assert not cpu.cap_onednn()
    assert [os.environ.get(one) for one in cpu.VARIABLES].count("AVX2") == 1
    assert cpu.prepare_bfloat16() is None


def test_without_amx_nothing_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "announces_amx", lambda: False)
    assert not cpu.cap_onednn() and cpu.prepare_bfloat16() is None
    assert not os.environ.keys() & {*cpu.VARIABLES, cpu.MARK}


def test_the_cap_stays_where_the_trial_dies() -> None:
    os.environ["DRAGOMAN_AMX"] = "cannot"
    assert cpu.cap_onednn() and cpu.cap_onednn()  # the second call knows that the cap is ours
    line = cpu.prepare_bfloat16()
    assert line is not None and "cannot run it" in line
    assert os.environ[cpu.VARIABLES[0]] == cpu.CAP


def test_the_cap_is_lifted_where_the_trial_lives() -> None:
    os.environ["DRAGOMAN_AMX"] = "can"
    assert cpu.cap_onednn()
    line = cpu.prepare_bfloat16()
    assert line is not None and "AMX is used" in line
    assert not os.environ.keys() & {*cpu.VARIABLES, cpu.MARK}


def test_a_cpu_without_any_bfloat16_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ["DRAGOMAN_AMX"] = "cannot"
    cpu.cap_onednn()
    monkeypatch.setattr(cpu, "TRIAL", "import os; os.abort()")
    with pytest.raises(UserError, match=r"training\.autocast=false"):
        cpu.prepare_bfloat16()


def test_the_trial_notices_a_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpu.bfloat16_works(capped=True)
    cpu.bfloat16_works.cache_clear()
    monkeypatch.setattr(cpu, "TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert not cpu.bfloat16_works(capped=True)


@pytest.mark.parametrize("forced", ["can", "cannot"])
def test_the_plan_says_what_was_decided(
    command: Any, environment: dict[str, str], tiny_run: Any, tmp_path: Path, forced: str
) -> None:
    """A whole training with bfloat16, as on a machine that announces AMX."""
    fresh = {name: value for name, value in environment.items() if name not in (*cpu.VARIABLES, cpu.MARK)}
    flags = [f"--set=training.{one}" for one in ("autocast=true", "max_updates=2", "threads=1")]
    done = command("train", tiny_run.pairs, "--out", tmp_path / "run", *flags, env=fresh | {"DRAGOMAN_AMX": forced})
    assert done.returncode == 0, done.stderr.decode()
    said = [line for line in done.stderr.decode().splitlines() if "announces AMX" in line]
    assert len(said) == 1 and ("cannot run it" in said[0]) == (forced == "cannot")
