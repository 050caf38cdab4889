"""The verbs from Python: the options of the command line, results to look at, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.cli.main import VERBS
from dragoman.errors import MissingExtra, UserError
from dragoman.evaluation.run_data import read_run_data
from dragoman.export import verbs
from dragoman.inference.predictions import Output, Prediction, empty_prediction
from dragoman.tables import Rows
from dragoman.training import display
from dragoman.training.events import Evaluated, Started, Stepped, Stopped, Validated

# What a verb has on one side only, and why.
ONLY_COMMAND_LINE = {
    "as_json": "results have to_json",
    "quiet": "functions print nothing, but for train",
    "verbose": "functions print nothing, but for train",
    "paths": "runs and files are two arguments",
}
ONLY_PYTHON = {
    "boost": {"display", "should_stop"},
    "check": {"on_progress", "on_row"},
    "train": {"on_plan", "on_event", "should_stop"},
    "compare": {"runs", "files"},
}


@pytest.fixture
def place(tmp_path: Path, tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files and runs under the names that the examples use."""
    rows = tiny_run.pairs.read_text(encoding="utf-8").splitlines()
    for name, some in {"pairs": rows[:6], "test": rows[:6], "train": rows[:60], "dev": rows[60:70]}.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(some) + "\n", encoding="utf-8")
    (tmp_path / "runs").mkdir()
    shutil.copytree(tiny_run.folder, tmp_path / "runs" / "a")  # which calibrate writes into
    for name in ("pairs", "b"):
        (tmp_path / "runs" / name).symlink_to(tiny_run.folder, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- names and options


def test_completion_offers_the_public_names_and_nothing_else() -> None:
    assert dir(dragoman) == sorted(dragoman.__all__)
    assert dragoman.UserError is UserError
    namespace: dict[str, Any] = {}
    exec("from dragoman import *", namespace)
    assert {*dragoman.__all__} <= {*namespace}


def test_check_needs_no_torch_from_python(environment: dict[str, str], place: Path) -> None:
    code = (
        "import sys, dragoman\n"
        "found = dragoman.check('pairs.tsv')\n"
        "assert found.audit.used == 6, found\n"
        "dir(dragoman), dragoman.UserError, dragoman.Audit\n"
        "assert not {'torch', 'pandas', 'dragoman.training'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["augment", "boost", "check", "train", "evaluate", "score", "compare"])
def test_functions_have_the_options_of_the_command_line(name: str) -> None:
    verb = next(verb for verb in VERBS if verb.__name__ == name)
    options = set(inspect.signature(verb).parameters)
    parameters = set(inspect.signature(getattr(dragoman, name)).parameters)
    assert parameters - options == ONLY_PYTHON.get(name, set())
    assert options - parameters <= ONLY_COMMAND_LINE.keys()
    for option in options & parameters:
        default = inspect.signature(getattr(dragoman, name)).parameters[option].default
        ours = inspect.signature(verb).parameters[option].default
        assert default in (ours, () if ours is None else ours), option


def test_predict_has_the_options_of_the_command_line(place: Path) -> None:
    """All search options go through the session, so that each name is accepted."""
    from dragoman.inference.constraints import OPTIONS as CONSTRAINTS
    from dragoman.inference.session import Session
    from dragoman.search.options import SearchConfig

    verb = next(verb for verb in VERBS if verb.__name__ == "predict")
    options = set(inspect.signature(verb).parameters)
    known = {*SearchConfig.model_fields, "forbid", *inspect.signature(Session.stream).parameters}
    known |= {*inspect.signature(dragoman.load).parameters, *CONSTRAINTS}
    of_the_program = {"run", "files", "as_json", "ensemble", "quiet", "verbose", "lines", "root"}
    # what is written, which Python has as values
    of_the_program |= {"out", "resume", "shard", "timings", "confidence", "abstain_file"}
    assert options - known <= of_the_program


# ---- the verbs


def test_evaluate_score_and_compare_give_what_the_command_line_prints(place: Path, call: Any) -> None:
    report = dragoman.evaluate("runs/pairs", "test.tsv", beam=2)
    printed = json.loads(call("evaluate", "runs/pairs", "test.tsv", "--beam", 2, "--json").out)
    assert printed["scores"] == json.loads(json.dumps(report.to_json()))["scores"]
    assert report.value == dragoman.evaluate(dragoman.load("runs/pairs"), "test.tsv", beam=2).value
    rows = dragoman.score("runs/pairs", "test.tsv")
    lines = [json.loads(line) for line in call("score", "runs/pairs", "test.tsv", "--json").lines]
    assert [row.log_prob for row in rows] == [line["log_prob"] for line in lines]
    comparison = dragoman.compare(["runs/a", "runs/b"], "test.tsv")
    assert comparison.to_text() == call("compare", "runs/a", "runs/b", "test.tsv").out.decode()
    several = dragoman.compare(["runs/a", dragoman.load("runs/b"), "runs/pairs"], "test.tsv")
    assert len(several.to_json()["metrics"][0]["scores"]) == 3
    checked = dragoman.check("train.tsv", dev="dev.tsv", settings={"data": {"header": "no"}})
    again = call("check", "train.tsv", "--dev", "dev.tsv", "--set", "data.header=no", "--json")
    assert json.loads(json.dumps(checked.to_json())) == json.loads(again.out)


def test_columns_are_named_as_on_the_command_line(place: Path) -> None:
    rows = [line.split("\t") for line in Path("test.tsv").read_text().splitlines()]
    Path("swapped.tsv").write_text("out\tin\n" + "".join(f"{target}\t{source}\n" for source, target in rows))
    wanted = dragoman.evaluate("runs/pairs", "test.tsv")
    assert dragoman.evaluate("runs/pairs", "swapped.tsv", source="in", target="out").value == wanted.value
    assert dragoman.evaluate("runs/pairs", "swapped.tsv", source=[2], target=1).value == wanted.value
    assert dragoman.check("swapped.tsv", source="in", target="out").audit.used == 6


def test_wrong_runs_are_refused_with_a_sentence(place: Path) -> None:
    with pytest.raises(UserError, match="takes a list of two runs or more"):
        dragoman.compare("runs/a", "test.tsv")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="takes a list of two runs or more"):
        dragoman.compare(["runs/a"], "test.tsv")
    with pytest.raises(UserError, match="takes the folder of a run"):
        dragoman.load([3])  # type: ignore[list-item]
    with pytest.raises(UserError, match="takes the folder of a run"):
        dragoman.load(3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"runs is not the folder of a run, but it holds some.*runs/a, runs/b"):
        dragoman.load("runs")
    with pytest.raises(UserError, match=r"there is no folder runs/nothing"):
        dragoman.load("runs/nothing")
    with pytest.raises(UserError, match=r"test.tsv is a file, not the folder of a run"):
        dragoman.load("test.tsv")
    with pytest.raises(UserError, match="evaluated as it is"):
        dragoman.evaluate(dragoman.load("runs/a"), "test.tsv", ensemble=["runs/b"])
    with pytest.raises(UserError, match="--lm-weight"):
        dragoman.evaluate("runs/a", "test.tsv", lm_weight=0.3)
    with pytest.raises(UserError, match="init_encoder is the folder of a run; got int"):
        dragoman.train("train.tsv", init_encoder=3)  # type: ignore[arg-type]


def test_values_of_a_wrong_type_and_misspelt_arguments_are_refused_with_a_sentence(place: Path) -> None:
    wrong: Any = 5
    for call in (
        lambda: dragoman.evaluate(wrong, "test.tsv"),
        lambda: dragoman.score(wrong, "test.tsv"),
        lambda: dragoman.compare([wrong, wrong], "test.tsv"),
        lambda: dragoman.compare(wrong, "test.tsv"),
        lambda: dragoman.train("train.tsv", out=wrong),
        lambda: dragoman.align(wrong, "test.tsv"),
        lambda: dragoman.export_run(wrong, "page", inputs=["abc"]),
    ):
        with pytest.raises(UserError, match=r"got int|list of two runs"):
            call()
    verbs: list[tuple[Any, tuple[Any, ...], str, str]] = [
        (dragoman.train, ("train.tsv",), "max_tme", "max_time"),
        (dragoman.check, ("train.tsv",), "sources", "source"),
        (dragoman.evaluate, ("runs/a", "test.tsv"), "bem", "beam"),
        (dragoman.score, ("runs/a", "test.tsv"), "traget", "target"),
        (dragoman.compare, (["runs/a", "runs/b"], "test.tsv"), "bem", "beam"),
        (dragoman.load, ("runs/a",), "engin", "engine"),
    ]
    for verb, arguments, misspelt, right in verbs:
        with pytest.raises(UserError, match=f"^{verb.__name__}: .*{misspelt!r}; did you mean {right!r}?"):
            verb(*arguments, **{misspelt: 1})


def test_training_takes_options_and_calls_back(place: Path, tiny_settings: dict[str, Any], capsys: Any) -> None:
    events: list[Any] = []
    plans: list[Any] = []
    system = dragoman.train(
        "train.tsv", dev="dev.tsv", out="runs/new", settings=tiny_settings, source=1, target=2, seed=5, device="cpu",
        max_time=600, on_plan=lambda *plan: plans.append(plan), on_event=events.append,
    )  # fmt: skip
    training = system.recipe.training
    assert (training.seed, training.max_time, training.device) == (5, 600, "cpu")
    assert (system.recipe.data.source, system.recipe.data.target) == (1, 2)
    assert plans[0][2] == Path("runs/new")
    kinds = [type(event) for event in events]
    assert {Started, Stepped, Validated, Stopped} <= {*kinds} and kinds[-1] is Evaluated
    assert capsys.readouterr().err == "", "neither a terminal nor a notebook"
    resumed = dragoman.train(
        "train.tsv", dev="dev.tsv", out="runs/new", settings=tiny_settings, source=1, target=2, seed=5,
        init_encoder=None,
    )  # fmt: skip
    assert resumed("abc") == system("abc")


def test_an_interruption_saves_and_then_interrupts(place: Path, tiny_settings: dict[str, Any]) -> None:
    def interrupt(event: Any) -> None:
        if isinstance(event, Stepped):
            os.kill(os.getpid(), signal.SIGINT)

    given = {"dev": "dev.tsv", "out": "runs/new", "settings": tiny_settings}
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        dragoman.train("train.tsv", on_event=interrupt, **given)
    assert signal.getsignal(signal.SIGINT) == before
    assert (Path("runs/new") / "model.safetensors").exists()
    events: list[Any] = []
    dragoman.train("train.tsv", on_event=events.append, **given)
    assert events[0].update > 0, "it resumed"


def test_a_terminal_shows_the_plan_and_the_progress(
    place: Path, tiny_settings: dict[str, Any], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"dev": "dev.tsv", "settings": tiny_settings | {"training": tiny_settings["training"] | {"max_updates": 4}}}
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    dragoman.train("train.tsv", out="runs/one", **given)
    shown = capsys.readouterr().err
    assert "60 rows to train on" in shown and "trained 4 updates" in shown
    dragoman.train("train.tsv", out="runs/two", quiet=True, **given)
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match="contradict"):
        dragoman.train("train.tsv", quiet=True, verbose=True)


class Notebook:
    """Stands in for IPython in a notebook, and keeps what is displayed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: list[str] = []
        module, inner = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        module.get_ipython = lambda: types.SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
        inner.HTML, inner.display = str, self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", inner)

    def display(self, page: str, display_id: bool = False) -> Any:
        self.pages.append(page)
        place = len(self.pages) - 1

        def update(page: str) -> None:
            self.pages[place] = page

        return types.SimpleNamespace(update=update)


def test_a_notebook_shows_the_plan_and_one_block_of_progress(
    place: Path, tiny_settings: dict[str, Any], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = Notebook(monkeypatch)
    monkeypatch.setattr("dragoman.training.notebook.PAUSE", 0.0)
    assert display.is_notebook()
    dragoman.train("train.tsv", dev="dev.tsv", out="runs/new", settings=tiny_settings)
    plan, progress = notebook.pages
    assert plan.startswith("<details>") and "60 rows to train on" in plan
    assert "dev loss" in progress and "trained 60 updates" in progress
    assert "<progress" not in progress, "the bar goes when training ends, also where an evaluation follows"
    assert capsys.readouterr().err == ""


# ---- results to look at


def test_results_are_short_to_look_at(place: Path) -> None:
    system = dragoman.load("runs/pairs")
    predictions = system.predict(["abcdef" * 20] * 40, n_best=3)
    results = [
        predictions, predictions[0], predictions[0].outputs[0], predictions[0].trace, predictions[0].trace.steps[0],
        system, system.session(), system.score("abc", "cba"), dragoman.check("pairs.tsv"),
        dragoman.check("pairs.tsv").audit, dragoman.evaluate(system, "test.tsv"),
        dragoman.compare(["runs/a", "runs/b"], "test.tsv"), dragoman.compare(["runs/a"] * 3, "test.tsv"),
        dragoman.train("train.tsv", dry_run=True, quiet=True),
    ]  # fmt: skip
    for result in results:
        assert len(repr(result)) < (900 if isinstance(result, Rows) else 200), repr(result)
        assert type(result).__name__ in repr(result) or isinstance(result, Rows)
    for result in results:
        page = getattr(result, "_repr_html_", lambda: "<none>")()
        assert page.startswith("<") and "array(" not in page
    assert pickle.loads(pickle.dumps(predictions[0])).text == predictions[0].text
    text = results[-1].to_text()
    assert "rows to train on" in text and "metric: exact match" in text and "parameters" in text and len(text) < 3000


def test_a_prediction_is_drawn(place: Path) -> None:
    system = dragoman.load("runs/pairs")
    prediction = system.predict("abc<d")
    drawing = prediction.plot()
    assert str(drawing.content).startswith("<svg") and "abc&lt;d" in str(drawing.content)
    assert prediction.plot("out.svg").content == Path("out.svg").read_text(encoding="utf-8")
    page = prediction._repr_html_()
    assert "<svg" in page and "<table>" in page
    long = system.predict("abcdefgh" * 40)
    assert "<svg" not in long._repr_html_() and "plot() draws it" in long._repr_html_()
    with pytest.raises(UserError, match=r"\.svg"):
        prediction.plot("out.png")
    listed = system.predict(["abc"])[0]
    assert listed.plot().content


def test_traces_have_the_tokens_as_text(place: Path) -> None:
    system = dragoman.load("runs/pairs")
    prediction = system.predict("abcd", beam=3)
    for step in prediction.trace.steps:
        assert list(step.text) == system.target.pieces(step.token.tolist())
    frame = pytest.importorskip("pandas") and prediction.trace.to_pandas()
    assert set(frame["fate"]) <= {"kept", "pruned", "finished"} and "</s>" in set(frame["token"])


def test_results_become_frames(place: Path) -> None:
    pytest.importorskip("pandas")
    system = dragoman.load("runs/pairs")
    frame = system.predict(["abc", "bad"]).to_pandas()
    assert list(frame["source"]) == ["abc", "bad"] and frame["log_prob"].dtype == float
    scored = dragoman.score("runs/pairs", "test.tsv").to_pandas()
    assert len(scored) == 6 and list(scored.columns[:2]) == ["source", "target"]
    report = dragoman.evaluate(system, "test.tsv")
    assert report.to_pandas().set_index("metric")["value"]["exact match"] == report.value
    comparison = dragoman.compare(["runs/a", "runs/b"], "test.tsv")
    assert len(comparison.to_pandas()) == len(comparison.scores) and len(comparison.rows_to_pandas()) == 0
    assert len(dragoman.compare(["runs/a"] * 3, "test.tsv").to_pandas()) % 3 == 0
    Path("odd.tsv").write_text("a\tb\n\nc\td\nc\td\n", encoding="utf-8")
    found = dragoman.check("odd.tsv").to_pandas()
    assert dict(zip(found["finding"], found["count"], strict=True)) == {"blank line": 1, "exact duplicate": 1}


def test_an_input_without_an_output_has_no_score_in_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    output = Output("cba", -0.5, -1.0, ("c", "b", "a", "</s>"), (-0.25,) * 4, True, None)
    broken = empty_prediction("broken.png", "broken.png: not a picture")
    frame = Rows([Prediction("fine.png", (output,)), broken]).to_pandas()
    assert list(frame["source"]) == ["fine.png", "broken.png"] and list(frame["tokens"]) == [4, 0]
    for column in ("output", "score", "log_prob", "finished"):
        assert list(pandas.isna(frame[column])) == [False, True], column
    assert frame["error"][1] == "broken.png: not a picture" and frame["score"].dtype == float
    assert "<td></td>" in Rows([broken])._repr_html_()


def test_a_missing_pandas_is_named_with_its_extra(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"needs pandas: pip install 'dragoman\[tables\]'"):
        dragoman.evaluate("runs/pairs", "test.tsv").to_pandas()


# ---- examples


def documented() -> Iterator[Any]:
    yield dragoman
    for name in dragoman.__all__:
        if name not in ("__version__", "UserError"):
            yield getattr(dragoman, name)
    yield importlib.import_module("dragoman.types").Trace


def test_the_examples_of_the_docstrings_run(place: Path) -> None:
    finder, ran = doctest.DocTestFinder(recurse=False), 0
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for thing in documented():
        names = {"dragoman": dragoman, "system": dragoman.load("runs/pairs")}
        for example in finder.find(thing, name=str(thing), globs=names):
            output: list[str] = []
            runner.run(example, out=output.append)
            assert not output, "".join(output)
            ran += bool(example.examples)
    assert ran >= 9


def test_an_export_is_compared_on_the_dev_rows_as_on_the_command_line(
    tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, ``inputs`` had to be given in Python."""
    asked: list[list[Any]] = []
    monkeypatch.setitem(verbs.FORMATS, "portable", lambda system, folder, inputs, int8: asked.append(inputs))
    run = tiny_run.folder
    system = dragoman.load(run, engine="torch")
    dev = [next(iter(example.sources.values())) for example in read_run_data(system, run).dev]
    dragoman.export_run(run, "portable", tmp_path)
    dragoman.export_run(run, "portable", tmp_path, rows=2)
    assert asked == [list(dict.fromkeys(dev)), list(dict.fromkeys(dev))[:2]]
    with pytest.raises(UserError, match="its dev rows are no longer where they were"):
        dragoman.export_run(replace(system, folder=tmp_path), "portable", tmp_path)
