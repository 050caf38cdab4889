"""The command line: every verb, one line out for each line in, exit codes, and mistakes answered with a sentence."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.core

import dragoman
from dragoman.cli.main import app
from dragoman.cli.train import example_call
from dragoman.config import merge
from dragoman.data import tokenizers
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.errors import UserError
from dragoman.inference.requests import Forbidden
from dragoman.recipe.schema import spell_out

# ---- help


def test_help_is_light_and_names_every_verb(environment: dict[str, str]) -> None:
    program = (
        "import sys; sys.argv = ['dragoman', '--help']\n"
        "from dragoman.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as left:\n    assert not left.code\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'sentencepiece', 'sacrebleu', 'safetensors'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    for verb in ("check", "train", "predict", "evaluate", "score", "inspect", "parts"):
        assert f" {verb} " in done.stdout
    assert "HEAVY []" in done.stdout


@pytest.mark.parametrize("verb", ["check", "train", "predict", "evaluate", "score", "inspect", "parts"])
def test_every_verb_has_help(call: Any, verb: str) -> None:
    answer = call(verb, "--help")
    assert answer.code == 0
    assert b"Usage" in answer.out
    assert call(verb, "-h").out == answer.out


def test_help_texts_are_sentences() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, typer.core.TyperGroup)
    for verb, command in program.commands.items():
        texts = {parameter.name: getattr(parameter, "help", None) for parameter in command.params}
        texts[verb] = (command.help or "").split("\n\n")[0]
        for name, text in texts.items():
            assert text and text[0].isupper() and text[-1] in ".…?", f"{verb} {name}: {text}"


def test_version_and_no_arguments(call: Any) -> None:
    assert call("--version").lines == [f"dragoman {dragoman.__version__}"]
    assert call().code == 2


def test_checking_and_predicting_import_no_more_than_they_need(environment: dict[str, str], tiny_run: Any) -> None:
    program = (
        f"import sys; sys.argv = ['dragoman', 'check', {str(tiny_run.pairs)!r}]\n"
        "from dragoman.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)


# ---- predict

AWKWARD = [
    b"abc",
    b"",
    b"hgf \r",
    b"   ",
    b"\xff\xfe broken",
    "a\u2028b\u2029c\x0bd\x0ce\x85f\x1cg".encode(),
    b"a\tb",
    b"\x00",
    "😀 שלום".encode(),
    b"",
    b"a\rb",
    b"a" * 600,
    b"last",
]


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("options", [[], ["--beam", "1", "--batch", "3"], ["--sample"]])
def test_one_line_out_for_each_line_in(call: Any, tiny_run: Any, end: bytes, options: list[str]) -> None:
    answer = call("predict", tiny_run.folder, *options, stdin=b"\n".join(AWKWARD) + end)
    assert answer.code == 0, answer.err
    assert len(answer.lines) == len(AWKWARD)
    assert [bool(line) for line, raw in zip(answer.lines, AWKWARD, strict=True) if not raw.strip()] == [False] * 3
    told = answer.err.splitlines()
    assert told[0] == "dragoman: <stdin>:5: not UTF-8; undecodable bytes were read as U+FFFD"
    assert all("cut at the length limit" in line for line in told[1:]) and len(told) <= 2


def test_lines_come_out_in_order_whatever_their_company(call: Any, tiny_run: Any) -> None:
    whole = call("predict", tiny_run.folder, stdin=b"\n".join(AWKWARD)).lines
    system = dragoman.load(tiny_run.folder)
    for raw, line in zip(AWKWARD, whole, strict=True):
        text = raw.decode("utf-8", "replace")
        assert system(text.removesuffix("\r")) == line


@pytest.mark.parametrize("stdin", [b"", b"\n", b"\n\n", b"\r\n"])
def test_nothing_in_nothing_out(call: Any, tiny_run: Any, stdin: bytes) -> None:
    answer = call("predict", tiny_run.folder, stdin=stdin)
    assert (answer.code, answer.out) == (0, b"\n" * stdin.count(b"\n"))


def test_a_file_a_dash_and_a_byte_order_mark(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    file = tmp_path / "input.txt"
    file.write_bytes(b"\xef\xbb\xbfabc\r\nhgf\r\n")
    from_file = call("predict", tiny_run.folder, file)
    assert from_file.lines == call("predict", tiny_run.folder, "-", stdin=b"abc\nhgf\n").lines
    assert len(from_file.lines) == 2


def test_batch_size_changes_no_output_not_even_sampled(call: Any, tiny_run: Any) -> None:
    stdin = b"\n".join([b"abcd", b"gh", b"aaaaaaa"] * 14)  # more than one chunk of small batches
    for options in (["--sample", "--seed", "3"], ["--beam", "3"]):
        wide = call("predict", tiny_run.folder, *options, stdin=stdin)
        narrow = call("predict", tiny_run.folder, *options, "--batch", "1", stdin=stdin)
        assert wide.out == narrow.out
        assert wide.code == narrow.code == 0
    assert len(set(call("predict", tiny_run.folder, "--sample", stdin=b"abcd\n" * 20).lines)) > 1


def test_n_best_are_columns_best_first(call: Any, tiny_run: Any) -> None:
    stdin = b"abc\n\nhgfe\n"
    lines = [line.split("\t") for line in call("predict", tiny_run.folder, "--n-best", 3, stdin=stdin).lines]
    assert [len(cells) for cells in lines] == [3, 1, 3]
    assert [cells[0] for cells in lines] == call("predict", tiny_run.folder, stdin=stdin).lines
    sampled = call("predict", tiny_run.folder, "--n-best", 3, "--sample", "--temperature", 2, stdin=stdin).lines
    assert [len(line.split("\t")) for line in sampled] == [3, 1, 3]


def test_predictions_as_json(call: Any, tiny_run: Any) -> None:
    answer = call("predict", tiny_run.folder, "--json", "--n-best", 2, stdin="abc\r\n\n😀\n".encode())
    records = [json.loads(line) for line in answer.lines]
    assert [record["source"] for record in records] == ["abc", "", "😀"]
    for record in records[::2]:
        assert len(record["outputs"]) == 2
        for output in record["outputs"]:
            names = {"text", "score", "log_prob", "tokens", "log_probs", "finished", "attention", "confidence"}
            assert set(output) == names
            assert len(output["tokens"]) == len(output["log_probs"]) == len(output["attention"])
            assert all(len(row) == len(record["labels"]) for row in output["attention"])
            assert sum(output["log_probs"]) == pytest.approx(output["log_prob"])
    assert records[1]["outputs"][0]["text"] == ""


def test_search_options_reach_the_search(call: Any, tiny_run: Any) -> None:
    def tokens(*options: object) -> list[str]:
        answer = call("predict", tiny_run.folder, "--json", *options, stdin=b"abcdef\n")
        assert answer.code == 0, answer.err
        return json.loads(answer.lines[0])["outputs"][0]["tokens"]

    assert len(tokens("--max-length", 2)) <= 2
    assert len(tokens("--min-length", 7)) >= 8
    assert "".join(tokens("--prefix", "hhc")[:3]) == "hhc"
    repeated = tokens("--no-repeat-ngram", 1, "--max-length", 6)
    assert len(set(repeated)) == len(repeated)
    assert tokens("--sample", "--top-k", 1) == tokens("--beam", 1)
    for option, key in (("--normalize", "none"), ("--stop", "certain")):
        name = option.removeprefix("--")
        wanted = dragoman.load(tiny_run.folder).predict(["abcdef"], beam=4, **{name: key})[0]
        assert tokens("--beam", 4, option, key) == list(wanted.tokens)
    assert call("predict", tiny_run.folder, "--stop", "never", stdin=b"a\n").code == 2
    free = "".join(tokens()[:-1])
    assert free and free[:2] not in "".join(tokens("--forbid", free[:2]))
    assert free[0] not in "".join(tokens("--forbid", free[0], "--forbid", "zz"))


WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 0.5}, "temperature has an effect on sampling only"),
    ({"top_k": 3}, "top_k has an effect on sampling only"),
    ({"top_p": 0.5}, "top_p has an effect on sampling only"),
    ({"seed": 3}, "seed has an effect on sampling only"),
    ({"sample": True, "beam": 3}, "beam has no effect on sampling"),
    ({"sample": True, "stop": "certain"}, "stop has no effect on sampling"),
    ({"beam": 1, "stop": "certain"}, "beam = 1 is greedy"),
    ({"alpha": 0.5}, "alpha is the exponent of normalize = gnmt, but normalize = average"),
]


@pytest.mark.parametrize(("options", "said"), WITHOUT_EFFECT)
def test_an_option_without_effect_is_refused(call: Any, tiny_run: Any, options: dict[str, Any], said: str) -> None:
    """On the command line as in Python."""
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    answer = call("predict", tiny_run.folder, *(part for part in flags if part is not True), stdin=b"abc\n")
    assert answer.code == 2 and said in answer.err and not answer.out
    with pytest.raises(UserError, match=said):
        dragoman.load(tiny_run.folder).predict(["abc"], **options)


def test_options_that_have_an_effect_together_are_taken(tiny_run: Any) -> None:
    system = dragoman.load(tiny_run.folder)
    system.predict(["abc"], sample=True, temperature=0.5, top_k=3, seed=2, n_best=2, normalize="gnmt", alpha=0.5)
    system.predict(["abc"], beam=2, stop="certain", n_best=2)


def test_an_output_that_has_no_end_is_told(call: Any, tiny_run: Any) -> None:
    answer = call("predict", tiny_run.folder, "--max-length", 2, "--beam", 1, stdin=b"abc\n\nabcd\n")
    assert answer.code == 0 and len(answer.lines) == 3
    assert answer.err == "dragoman: input 1, 3: the output had no end and was cut at the length limit\n"


def test_a_reader_that_goes_away_is_no_mistake(environment: dict[str, str], tiny_run: Any) -> None:
    line = f"{sys.executable} -m dragoman predict {tiny_run.folder} --batch 1 --beam 1 | head -n 1"
    many = b"abc\n" * 400
    done = subprocess.run(["sh", "-c", line], input=many, env=environment, capture_output=True, timeout=60, check=True)
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr


# ---- check, evaluate, score, inspect


def test_check(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    dirty = tmp_path / "dirty.tsv"
    dirty.write_bytes(b"abc\tcba\nonly one column\n\nde\ted\nde\ted\n")
    text = call("check", dirty)
    assert text.code == 0
    assert b"dirty.tsv" in text.out and b"wrong number of columns" in text.out
    plain = json.loads(call("check", dirty, "--json", "--dev", tiny_run.pairs).out)
    assert {"train", "dev", "overlap"} <= set(plain)
    assert (plain["train"]["rows"], plain["train"]["used"], plain["train"]["dropped"]) == (5, 3, 2)
    assert plain["train"]["findings"]["wrong_columns"]["places"][0]["line"] == 2
    assert plain["dev"]["rows"] == 200 and plain["overlap"]["dev"]["total"] == 200
    from_stdin = json.loads(call("check", "-", "--json", stdin=dirty.read_bytes()).out)
    assert from_stdin["train"]["used"] == 3


def test_check_with_columns(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "three.tsv"
    file.write_text("word\tkind\tsound\n" + "".join(f"w{i}\tnoun\ts{i}\n" for i in range(12)), encoding="utf-8")
    for source, target in (("word", "sound"), ("1", "3")):
        options = ["--source", source, "--target", target, "--set", "data.header=yes"]
        plain = json.loads(call("check", file, *options, "--json").out)
        assert plain["train"]["used"] == 12
    assert call("check", file, "--source", "wrod", "--target", "sound").code == 2


def test_evaluate(call: Any, tiny_run: Any) -> None:
    text = call("evaluate", tiny_run.folder, tiny_run.pairs)
    assert text.code == 0 and b"exact match" in text.out
    plain = json.loads(call("evaluate", tiny_run.folder, tiny_run.pairs, "--json", "--beam", 1).out)
    assert {"run", "audit", "rows", "references", "headline", "scores", "by_length"} <= set(plain)
    assert plain["audit"]["used"] == 200
    assert plain["headline"] in plain["scores"]
    for score in plain["scores"].values():
        assert score["low"] <= score["value"] <= score["high"]


def test_score(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    file = tmp_path / "test.tsv"
    file.write_text("abc\tcba\nhg\tgh\n\nde\tzz😀\n", encoding="utf-8")
    text = call("score", tiny_run.folder, file)
    assert text.code == 0
    assert [line.split("\t")[2] for line in text.lines] == ["cba", "gh", "zz😀"]
    assert "perplexity" in text.err and "3 of 4 rows" in text.err
    records = [json.loads(line) for line in call("score", tiny_run.folder, file, "--json").lines]
    assert [record["line"] for record in records] == [1, 2, 4]
    for record, line in zip(records, text.lines, strict=True):
        assert set(record) == {"line", "log_prob", "perplexity", "tokens", "log_probs"}
        assert float(line.split("\t")[0]) == pytest.approx(record["log_prob"], abs=1e-4)
        assert sum(record["log_probs"]) == pytest.approx(record["log_prob"])
        assert record["tokens"][-1] == "</s>"


def test_inspect_draws_what_it_prints(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    answer = call("inspect", tiny_run.folder, "abc<&>", "-o", tmp_path / "deep" / "picture.svg")
    assert answer.code == 0, answer.err
    assert answer.lines == call("predict", tiny_run.folder, stdin=b"abc<&>\n").lines
    picture = (tmp_path / "deep" / "picture.svg").read_text(encoding="utf-8")
    assert picture.lstrip().startswith("<") and "</svg>" in picture and "abc<&>" not in picture


# ---- train


@pytest.mark.parametrize(
    ("is_file", "seen", "told"),
    [
        ({"source": False}, {"source": "abc"}, """echo "some text" | dragoman predict 'my runs/a'"""),
        ({}, {}, """echo "some text" | dragoman predict 'my runs/a'"""),
        ({"source": True}, {"source": "my photo.png"}, "dragoman predict 'my runs/a' 'my photo.png'"),
        ({"source": True}, {}, "dragoman predict 'my runs/a' FILE"),
        (
            {"image": True, "question": False},
            {},
            "dragoman predict 'my runs/a' table.tsv, with the columns image, question",
        ),
    ],
)
def test_what_to_try_next_suits_the_sources(is_file: dict[str, bool], seen: dict[str, str], told: str) -> None:
    assert example_call("my runs/a", is_file, seen) == told


def test_train_says_what_it_does_and_goes_on(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs_file: Callable[..., Path], tiny_run: Any,
    as_flags: Callable[[dict[str, Any]], list[str]],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pairs = pairs_file(tmp_path / "my.pairs.tsv", 60)
    settings = as_flags(merge(tiny_run.settings, {"training": {"max_updates": 12}}))
    answer = call("train", "my.pairs.tsv", *settings, "--seed", 7, "--device", "cpu")
    assert answer.code == 0, answer.err
    assert b"saved in runs/my.pairs" in answer.out and b"exact match" in answer.out
    for said in ("60 of 60 rows used", "held out", "parameters", "time: about", "trained 12 updates"):
        assert said in answer.err
    run = tmp_path / "runs" / "my.pairs"
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))["recipe"]
    assert config["training"]["seed"] == 7 and config["training"]["device"] == "cpu"
    assert config["target"]["tokenizer"]["kind"] != "auto"
    audit = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    assert audit["files"]["train"]["used"] == 60 and sum(audit["rows"].values()) == 60
    again = call("train", pairs, *settings, "--seed", 7, "--device", "cpu")
    assert again.code == 0 and again.out == answer.out  # finished before: the scores are shown all the same
    other = call("train", pairs, *settings, "--seed", 8)
    assert other.code == 2 and "training.seed: 7 → 8" in other.err and "--fresh" in other.err
    fresh = call("train", pairs, *settings, "--seed", 8, "--fresh")
    assert fresh.code == 0
    assert (tmp_path / "runs" / "my.pairs.old-1" / "model.safetensors").exists()


def test_train_on_parallel_files_with_dev_and_test(
    call: Any, tmp_path: Path, tiny_run: Any, as_flags: Callable[[dict[str, Any]], list[str]]
) -> None:
    rows = [line.split("\t") for line in tiny_run.pairs.read_text(encoding="utf-8").splitlines()]
    (tmp_path / "a.src").write_text("".join(f"{row[0]}\n" for row in rows), encoding="utf-8")
    (tmp_path / "a.tgt").write_text("".join(f"{row[1]}\n" for row in rows), encoding="utf-8")
    settings = as_flags(merge(tiny_run.settings, {"training": {"max_updates": 3}}))
    answer = call(
        "train", tmp_path / "a.src", tmp_path / "a.tgt", "--dev", tiny_run.pairs, "--test", tiny_run.pairs,
        "--out", tmp_path / "run", *settings,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "200 of 200 held-out rows (100.0%) have their source in the training data" in answer.err
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert evaluation["side"] == "test"


def test_ctrl_c_saves_and_says_how_to_go_on(
    tmp_path: Path, environment: dict[str, str], tiny_run: Any, as_flags: Callable[[dict[str, Any]], list[str]],
    call: Any,
) -> None:  # fmt: skip
    run = tmp_path / "run"
    settings = merge(tiny_run.settings, {"training": {"max_updates": 10**6, "max_epochs": 10**6, "patience": 10**6}})
    arguments = ["train", str(tiny_run.pairs), "--out", str(run), *as_flags(settings)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        metrics = run / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and b"stepped" in metrics.read_bytes(), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"everything is saved, and the same command resumes from here" in err
    assert b"Traceback" not in err
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines[-1]["event"] == "stopped" and lines[-1]["reason"] == "interrupted"
    stopped = lines[-1]["update"]
    assert call("predict", run, stdin=b"abc\n").code == 0  # what there is can be used
    settings = merge(settings, {"training": {"max_updates": stopped + 2}})
    answer = call("train", tiny_run.pairs, "--out", run, *as_flags(settings))
    assert answer.code == 0
    assert f"resuming from update {stopped:,}" in answer.err and f"trained {stopped + 2:,} updates" in answer.err


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- mistakes


def write_unequal(folder: Path) -> list[str]:
    (folder / "a").write_text("x\n" * 20, encoding="utf-8")
    (folder / "b").write_text("x\n" * 19, encoding="utf-8")
    return [str(folder / "a"), str(folder / "b")]


MISTAKES: dict[str, tuple[list[str], str]] = {
    "missing file": (["check", "{tmp}/none.tsv"], "none.tsv: no such file"),
    "missing training file": (["train", "{tmp}/none.tsv"], "none.tsv: no such file"),
    "missing input": (["predict", "{run}", "{tmp}/none.txt"], "none.txt: no such file"),
    "missing test file": (["evaluate", "{run}", "{tmp}/none.tsv"], "none.tsv: no such file"),
    "missing scored file": (["score", "{run}", "{tmp}/none.tsv"], "none.tsv: no such file"),
    "input is a folder": (["predict", "{run}", "{tmp}"], "this is a folder"),
    "a setting in place of a table": (["train", "{pairs}", "--set", "init=runs/x"], "init"),
    "the same with an option": (["train", "{pairs}", "--seed", "3", "--set", "training=5"], "training"),
    "negative seed": (["train", "{pairs}", "--seed", "-1"], "training.seed"),
    "seed too large": (["train", "{pairs}", "--seed", "99999999999999999"], "training.seed"),
    "output is a folder": (["inspect", "{run}", "abc", "-o", "{tmp}"], "this is a folder"),
    "unequal files": (["train", "{unequal}"], "a:20: this line has no partner"),
    "unequal files in check": (["check", "{unequal}"], "a:20: this line has no partner"),
    "unknown preset": (["train", "{pairs}", "--preset", "bahdanau2014"], "did you mean 'bahdanau2015'?"),
    "unknown key": (["train", "{pairs}", "--set", "decoder.widht=3"], "'decoder.widht'; did you mean 'width'?"),
    "unknown key of an open kind": (["train", "nowhere.tsv", "--set", "encoder.widht=3"], "did you mean 'width'?"),
    "unknown key of data": (["check", "{pairs}", "--set", "data.formt=tsv"], "'formt'; did you mean 'format'?"),
    "setting that check does not heed": (["check", "{pairs}", "--set", "decoder.width=3"], "decoder"),
    "data is no table": (["check", "{pairs}", "--set", "data=3"], "data"),
    "wrong type": (["train", "{pairs}", "--set", "decoder.width=wide"], "decoder.width: input should be"),
    "no value": (["train", "{pairs}", "--set", "decoder.width"], "expected KEY=VALUE"),
    "missing config": (["train", "{pairs}", "--config", "{tmp}/none.toml"], "none.toml: no such config file"),
    "impossible combination": (["train", "{pairs}", "--set", "search.n_best=9"], "n_best"),
    "no such device": (["predict", "{run}", "--device", "abacus"], "device abacus: not usable here"),
    "no run": (["predict", "{tmp}"], "not the folder of a run"),
    "no run, no folder": (["evaluate", "{tmp}/none", "{pairs}"], "there is no folder"),
    "a file is no run": (["score", "{pairs}", "{pairs}"], "not the folder of a run"),
    "beam too narrow": (["predict", "{run}", "{pairs}", "--beam", "2", "--n-best", "3"], "n_best"),
    "bad normalisation": (["predict", "{run}", "{pairs}", "--normalize", "mean"], "normalize"),
    "folder cannot be made": (["train", "{pairs}", "--out", "{pairs}/run"], "pairs.tsv/run"),
    "a file twice": (["check", "{pairs}", "{pairs}"], "given twice"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ab\n".encode("utf-16"), "UTF-16"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (gzip.compress(b"ab\n" * 99, mtime=0)[:-9], "gzip data"),
    ],
    ids=["utf-16", "png", "gzip"],
)
def test_what_is_no_text_is_not_answered(call: Any, tiny_run: Any, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "input").write_bytes(content)
    for answer in (
        call("predict", tiny_run.folder, tmp_path / "input"),
        call("predict", tiny_run.folder, stdin=content),
    ):
        assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err


def test_compressed_input(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    text = b"abc\nb\xe4d\n\nde"
    (tmp_path / "input.gz").write_bytes(gzip.compress(text))
    plain = call("predict", tiny_run.folder, stdin=text)
    assert plain.code == 0 and len(plain.lines) == 4
    assert call("predict", tiny_run.folder, tmp_path / "input.gz").out == plain.out
    assert call("predict", tiny_run.folder, stdin=gzip.compress(text)).out == plain.out


def test_a_line_is_answered_before_the_next_one_comes(environment: dict[str, str], tiny_run: Any) -> None:
    command = [sys.executable, "-m", "dragoman", "predict", str(tiny_run.folder), "--batch", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in (b"abc\n", b"de\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"" and process.wait(60) == 0


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_a_sentence(call: Any, tiny_run: Any, tmp_path: Path, name: str) -> None:
    arguments, said = MISTAKES[name]
    places = {"tmp": tmp_path, "run": tiny_run.folder, "pairs": tiny_run.pairs}
    given: list[str] = []
    for argument in arguments:
        given += write_unequal(tmp_path) if argument == "{unequal}" else [argument.format(**places)]
    before = set(tmp_path.rglob("*"))
    answer = call(*given, stdin=b"abc\n")
    assert answer.code == 2
    assert answer.out == b""
    assert answer.err.startswith("dragoman: ") and said in answer.err
    assert answer.err.count("\n") == 1 and "Traceback" not in answer.err
    assert set(tmp_path.rglob("*")) == before  # nothing is left behind


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["predict"],
        ["predict", "run", "--beam", "0"],
        ["predict", "run", "--beam", "x"],
        ["train"],
        ["check", "x", "--nonsense"],
    ],
)
def test_a_wrong_call_is_code_2(call: Any, arguments: list[str]) -> None:
    answer = call(*arguments)
    assert answer.code == 2
    assert "Traceback" not in answer.err


def test_an_empty_input_has_no_picture(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    answer = call("inspect", tiny_run.folder, "", "-o", tmp_path / "picture.svg")
    assert answer.code == 2 and "empty" in answer.err
    assert not (tmp_path / "picture.svg").exists()


def test_a_fault_of_the_program_is_code_1(environment: dict[str, str]) -> None:
    program = (
        "import sys, dragoman.inference.load as w\n"
        "def broken(*a, **k): raise RuntimeError('a fault')\n"
        "w.load = broken\n"
        "sys.argv = ['dragoman', 'predict', 'run']\n"
        "from dragoman.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: a fault" in done.stderr


def test_the_short_form_means_the_single_source() -> None:
    assert spell_out({"source": {"embedding": 3}, "encoder": {"width": 4}}) == {
        "sources": {"source": {"modality": {"embedding": 3}, "encoder": {"width": 4}}}
    }


def test_a_drawing_with_a_wrong_suffix_is_refused_before_the_model_is_loaded(
    tiny_run: Any, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("dragoman.inference.load.load", fail)
    for name in ("x.png", "x.pdf"):
        answer = call("inspect", tiny_run.folder, "abc", "-o", tmp_path / name)
        assert (answer.code, answer.out) == (2, b"") and "is a .svg file; name it" in answer.err


def test_what_forbidding_cannot_do_is_said(tiny_run: Any, call: Any) -> None:
    answer = call("predict", tiny_run.folder, "--forbid", "é", stdin=b"abc\n")
    assert (answer.code, answer.out) == (2, b"")
    assert "cannot write 'é' anyway, so forbidding it has no effect; leave it out" in answer.err
    answer = call("predict", tiny_run.folder, "--forbid", "é", "--forbid", "ab", stdin=b"abc\n")
    assert answer.code == 0 and answer.err.count("forbid: ") == 1 and "cannot write 'é' anyway" in answer.err
    texts = ["the red square", "a tree and a square tree", "a red tree"] * 30
    words = tokenizers.fit(TokenizerConfig(kind="symbols"), texts, "target")
    assert Forbidden(words, ("red", "square tree")).notes() == []
    assert "longer words such as 'square' are not" in Forbidden(words, ("are", "a")).notes()[1]
    with pytest.raises(UserError, match="has no effect, and longer words such as 'square' are not forbidden"):
        Forbidden(words, ("squ",)).refuse_without_effect()
    Forbidden(words, ("squ",), copies=True).refuse_without_effect()
    pieces = tokenizers.fit(TokenizerConfig(kind="subwords", size=300), texts, "target")
    assert "may still be written with other tokens" in Forbidden(pieces, ("red",)).notes()[0]


def test_a_race_is_refused_under_torchrun(
    tiny_run: Any, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    answer = call("train", tiny_run.pairs, "--out", tmp_path / "run", "--budget", "1m")
    assert answer.code == 2 and "--budget" in answer.err and "cannot run under torchrun" in answer.err
    assert not (tmp_path / "run").exists()


def test_lines_that_augment_does_not_read_are_counted(
    tiny_run: Any, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.data.augment.apply.MOST_TARGETS", 4)
    more = tmp_path / "more.txt"
    more.write_text("".join(f"{'abcdefgh'[row:]}\n" for row in range(6)))
    answer = call("augment", tiny_run.pairs, "--targets", more)
    assert answer.code == 0 and len(answer.lines) == 4
    assert f"{more}: the first 4 of its 6 lines are read; 2 are not used" in answer.err
    more.write_text("abc\n")
    assert "are not used" not in call("augment", tiny_run.pairs, "--targets", more).err
