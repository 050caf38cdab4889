"""Training in several processes: the same run as in one, and what cannot be shared is refused in a sentence."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dragoman.config import merge
from dragoman.errors import UserError
from dragoman.parts import kinds
from dragoman.process.cpu import bfloat16_works
from dragoman.process.devices import own_device
from dragoman.process.place import Place, find_place
from dragoman.recipe.schema import make_recipe, spell_out
from dragoman.recipe.training import TrainingConfig
from dragoman.training.objective.gradient import ShareResult
from dragoman.training.parallel.choosing import count_shares
from dragoman.training.parallel.exchange import Layout, deal_shares
from dragoman.training.parallel.meeting import find_meeting
from dragoman.training.parallel.processes import Processes
from dragoman.training.parallel.start import refuse_under_torchrun
from dragoman.training.run import train

SIDE = {"kind": "transformer", "width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "dropout": 0.3}
RNN = {"kind": "rnn", "width": 16, "embedding": 16, "dropout": 0.3}
CONV = {"kind": "conv", "width": 16, "embedding": 16, "dropout": 0.3}

# Of every decoder at least one; then what is special about how a batch is dealt out, or what is carried on.
FAMILIES: dict[str, dict[str, Any]] = {
    "rnn": {"decoder": {**RNN, "timing": "before"}, "training": {"accumulate": 2}},
    "monotone": {"decoder": {**RNN, "kind": "monotone"}},
    "hard": {"decoder": {**RNN, "selection": "hard"}, "training": {"shares": 3}},
    "transformer": {"encoder": SIDE, "decoder": SIDE},
    "conv": {"encoder": {"kind": "conv", "width": 16}, "decoder": CONV},
    "concat": {"encoder": {"kind": "identity"}, "decoder": {"kind": "concat", "network": RNN},
               "training": {"optim": {"kind": "muon"}}},
    "few-rows": {"decoder": RNN, "training": {"accumulate": 2, "batch_tokens": 64, "sampling": {
        "schedule": "linear", "k": 0.6, "slope": 0.01}}},
    "running": {"preset": "lm-rnn", "data": {"running": True}, "decoder": RNN,
                "training": {"chunk": 7, "batch_tokens": 128}},
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A run that is trained in one process without a stop, and with stops in one and two processes."""

    family: str
    data: Path
    settings: dict[str, Any]
    place: Path

    def train(self, name: str, threads: int, stop: int | None = None) -> list[int]:
        """Train in this process and return the row numbers of its batches."""
        asked: list[int] = []

        def should_stop() -> bool:
            asked.append(1)
            return stop is not None and len(asked) >= stop

        settings = merge(self.settings, {"training": {"threads": threads}})
        train(self.data, out=self.place / name, settings=settings, should_stop=should_stop)
        return asked

    def as_json(self, name: str, stop: int | None = None) -> dict[str, Any]:
        """Return the same training as a job of two processes."""
        out = str(self.place / name)
        return {"data": [str(self.data)] * 2, "out": out, "settings": self.settings, "stop": stop}

    def digest(self, name: str) -> str:
        return hashlib.sha256((self.place / name / "model.safetensors").read_bytes()).hexdigest()

    def reports(self, name: str) -> list[tuple[Any, ...]]:
        """Return what metrics.jsonl says of each update, except for times."""
        lines = (self.place / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return [(e["update"], e["loss"], e["gradient_norm"]) for e in events if e["event"] == "stepped"]


@pytest.fixture(scope="module")
def jobs(
    tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any]
) -> list[Job]:
    place = tmp_path_factory.mktemp("processes")
    pairs = pairs_file(place / "pairs.tsv", 100)
    text = place / "text.txt"
    text.write_text(pairs.read_text(encoding="utf-8").replace("\t", "\n"), encoding="utf-8")
    options = {
        "threads": 1, "shares": 2, "max_updates": 8, "max_epochs": None, "batch_tokens": 192, "validate_every": 4,
        "log_every": 1, "average": 2,
    }  # fmt: skip
    made = []
    for family, special in FAMILIES.items():
        base = {} if family == "running" else spell_out(tiny_settings)
        if family in ("transformer", "conv", "concat"):
            base = {"source": {"embedding": 16}}
        if family == "conv":
            special = merge(special, {"training": {"autocast": bfloat16_works(capped=True)}})
        settings = merge(merge(spell_out(base), {"training": options}), spell_out(special))
        (place / family).mkdir()
        made.append(Job(family, text if family == "running" else pairs, settings, place / family))
    return made


def run_two(place: Path, jobs: list[dict[str, Any]], environment: dict[str, str]) -> list[list[dict[str, Any]]]:
    """Train in two processes and return what each process says of each job."""
    (place / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    script = Path(__file__).parent / "joint_training.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(
        [*command, str(place / "jobs.json"), str(place / "outcomes")],
        env={**environment, "GLOO_SOCKET_IFNAME": "lo"}, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads((place / f"outcomes.{rank}").read_text(encoding="utf-8")) for rank in range(2)]


def test_one_process_and_two_make_the_same_run(
    jobs: list[Job], environment: dict[str, str], pairs_file: Callable[..., Path]
) -> None:
    """Stopped in the middle of an epoch, with dropout: 1 → 2 → 2 → 1 processes, and 2 processes from start to end."""
    assert {*kinds("decoder")} <= {*FAMILIES}
    place = jobs[0].place.parent
    for job in jobs:
        job.train("whole", threads=2)
        job.train("pieces", threads=2, stop=2)
    together = [job.as_json("pieces", stop=2) for job in jobs]
    together += [job.as_json("pieces", stop=3) for job in jobs]
    whole = [job for job in jobs if job.family in ("few-rows", "transformer")]
    together += [job.as_json("two") for job in whole]
    first = jobs[0]
    other = pairs_file(place / "other.tsv", 90)
    together.append({**first.as_json("different"), "data": [str(first.data), str(other)]})
    together.append({**first.as_json("missing"), "data": [str(first.data), str(place / "missing.tsv")]})
    outcomes, others = run_two(place, together, environment)
    for job in jobs:
        job.train("pieces", threads=1)  # as many threads as shares, then one: the run keeps its shares
        names = ("pieces", "two") if job in whole else ("pieces",)
        assert {job.digest(name) for name in names} == {job.digest("whole")}, job.family
        assert all(job.reports(name) == job.reports("whole") for name in names), job.family
    stops = [outcome["stopped"] for outcome in outcomes[:-2]]
    assert stops == [4] * len(jobs) + [7] * len(jobs) + [8] * len(whole)
    for mine, theirs in zip(outcomes[:-2], others[:-2], strict=True):
        assert mine["weights"] == theirs["weights"] and theirs["losses"] == []  # only the first process reports
    assert "process 1 has other data" in outcomes[-2]["error"] and others[-2] == {"reported": True}
    assert outcomes[-1] == {"reported": True} and "missing.tsv" in others[-1]["error"]
    assert not (first.place / "different").exists() and not (first.place / "missing").exists()


def test_shares_are_kept_and_another_number_is_another_run(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``training.shares`` a run keeps what its first session had."""
    settings = merge(jobs[2].settings, {"training": {"shares": None, "threads": 2}})
    asked = iter(range(1, 4))
    train(jobs[2].data, out=tmp_path / "run", settings=settings, should_stop=lambda: next(asked) == 3)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["training"]["shares"] == 2
    train(jobs[2].data, out=tmp_path / "run", settings=merge(settings, {"training": {"threads": 1}}))
    train(jobs[2].data, out=tmp_path / "whole", settings=settings)
    digests = [
        hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).digest() for name in ("run", "whole")
    ]
    assert digests[0] == digests[1]
    with pytest.raises(UserError, match=r"training\.shares: 2 → 3"):
        train(jobs[2].data, out=tmp_path / "run", settings=merge(settings, {"training": {"shares": 3}}))


def test_a_run_without_a_number_of_shares_is_resumed(jobs: list[Job], tmp_path: Path) -> None:
    """A folder that an earlier version has written."""
    settings = merge(jobs[2].settings, {"training": {"shares": None, "threads": 2}})
    asked = iter(range(1, 4))
    train(jobs[2].data, out=tmp_path / "run", settings=settings, should_stop=lambda: next(asked) == 3)
    identity = tmp_path / "run" / "run.json"
    plain = json.loads(identity.read_text())
    del plain["recipe"]["training"]["shares"], plain["sha256"]
    identity.write_text(json.dumps(plain))
    system = train(jobs[2].data, out=tmp_path / "run", settings=settings)
    assert system.recipe.training.shares == 2


def test_what_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    two, config = Processes(0, 2), TrainingConfig(threads=1, device="cpu")
    normed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(UserError, match="2 processes: this model has batch norm"):
        count_shares(normed, config, two)
    with pytest.raises(UserError, match=r"training\.shares = 3: this model has batch norm"):
        count_shares(normed, config.model_copy(update={"shares": 3}), Processes())
    assert count_shares(normed, config.model_copy(update={"threads": 4}), Processes()) == 1
    with pytest.raises(UserError, match="deals out its batches in 1 share"):
        count_shares(nn.Linear(2, 2), config.model_copy(update={"shares": 1}), two)
    assert count_shares(nn.Linear(2, 2), config.model_copy(update={"threads": 3}), two) == 6
    refuse_under_torchrun("-", fresh=True)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="standard input"):
        refuse_under_torchrun("-", None, fresh=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(UserError, match="--fresh"):
        refuse_under_torchrun("pairs.tsv", fresh=True)
    assert find_place() == Place(1, 2, 1, may_restart=True)


def test_each_process_of_a_machine_has_a_device_of_its_own() -> None:
    place = Place(rank=5, count=8, local_rank=1)
    assert own_device(torch.device("cuda"), place) == torch.device("cuda", 1)
    assert own_device(torch.device("cuda:3"), place) == torch.device("cuda", 3)
    assert own_device(torch.device("cuda"), Place()) == torch.device("cuda")
    assert own_device(torch.device("cpu"), place) == torch.device("cpu")


@pytest.mark.parametrize(("count", "processes"), [(2, 2), (3, 2), (8, 3), (5, 5)])
def test_every_share_is_dealt_once_in_order(count: int, processes: int) -> None:
    dealt = [deal_shares(count, rank, processes) for rank in range(processes)]
    assert [share for shares in dealt for share in shares] == list(range(count))
    assert all(dealt)


def test_gradients_and_results_survive_the_way_to_another_process() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1), nn.Linear(1, 1))
    parameters = list(model.parameters())
    model[:2](torch.randn(4, 3)).sum().backward()
    gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter in parameters]
    layout = Layout(parameters, 3)
    results = [ShareResult(0.1, 1 / 3, None, None), ShareResult(float("inf"), 2.0, -1e-300, None)]
    notes = layout.write_notes([parameters], results)
    vector = layout.flatten(parameters)
    assert len(notes) == layout.note_size(2) and len(vector) == layout.size
    parts = [vector[layout.slice(rank)] for rank in range(3)]
    present, read = layout.read_notes(notes)
    assert read == results
    for parameter in parameters:
        parameter.grad = None
    layout.set_gradients(parameters, torch.cat(parts), present.tolist())
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            assert parameter.grad is None
        else:
            assert parameter.grad is not None and torch.equal(parameter.grad, gradient)


def test_an_earlier_recipe_has_no_number_of_shares() -> None:
    assert make_recipe({}).training.shares is None


def test_processes_meet_where_others_have_died() -> None:
    """A store that earlier processes have used, and those of a meeting that come in any order."""
    store = torch.distributed.HashStore()
    store.set("dragoman/invitation", json.dumps({"name": "old", "guests": ["dead", "gone"]}))
    for rank, number in enumerate(("dead", "gone"), 1):
        store.set(f"dragoman/guest/{rank}", json.dumps(number))
        store.set(f"dragoman/accepted/{rank}", json.dumps("old"))
    with ThreadPoolExecutor(3) as threads:
        stores = list(threads.map(lambda rank: find_meeting(store, rank, 3), (1, 0, 2)))
    stores[0].set("key", "value")
    assert all(each.get("key") == b"value" for each in stores)
    assert not store.check(["key"]) and not store.check(["dragoman/old/key"])
