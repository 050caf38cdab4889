"""The scripts of the experiments: their pages follow from their results, and a wrong data folder gets a sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
SCRIPTS = sorted(path.parent.name for path in EXPERIMENTS.glob("*/run.py"))
# alignments, confidence, invariance, lexicon and page read runs and files; parity makes its data
OTHERS = ("alignments", "confidence", "invariance", "lexicon", "page", "parity")
WITH_DATA = [name for name in SCRIPTS if name not in OTHERS]


def run(script: Path, environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=script.parent, timeout=120)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(EXPERIMENTS, tmp_path_factory.mktemp("copied") / "experiments"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_page_follows_from_the_results(name: str, copied: Path, environment: dict[str, str]) -> None:
    pages = {"README.md": ["--table"], **({"2021.md": ["--table", "--year", "2021"]} if name == "g2p" else {})}
    for page, arguments in pages.items():
        (copied / name / page).unlink()
        finished = run(copied / name / "run.py", environment, *arguments)
        assert finished.returncode == 0, finished.stderr
        assert (copied / name / page).read_text(encoding="utf-8") == (EXPERIMENTS / name / page).read_text(
            encoding="utf-8"
        )


@pytest.mark.parametrize("name", WITH_DATA)
def test_a_wrong_data_folder_gets_a_sentence(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    script = EXPERIMENTS / name / "run.py"
    places = ["--runs", tmp_path / "runs", "--results", tmp_path / "results"]
    empty = tmp_path / "empty"
    empty.mkdir()
    expected = {
        (): "--data FOLDER is needed, unless only the page is to be written (--table)\n",
        ("--data", tmp_path / "nowhere"): f"--data {tmp_path / 'nowhere'}: there is no such folder\n",
    }
    for options, sentence in expected.items():
        finished = run(script, environment, *places, *options)
        assert (finished.returncode, finished.stderr) == (2, sentence)
    finished = run(script, environment, *places, "--data", empty)
    assert finished.returncode == 2
    assert finished.stderr.startswith(f"{empty}/") and finished.stderr.count("\n") == 1
    assert "is --data the folder of this experiment's data set?" in finished.stderr


def test_an_unknown_run_gets_a_sentence(environment: dict[str, str]) -> None:
    finished = run(EXPERIMENTS / "an4" / "run.py", environment, "--only", "words")
    assert (finished.returncode, finished.stderr) == (
        2,
        "--only words: there is no such run; there are characters, with-ctc\n",
    )
