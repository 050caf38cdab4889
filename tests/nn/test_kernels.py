"""Every kernel agrees with its plain twin, in value and in the gradient of every input, and one switch chooses."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman.errors import UserError
from dragoman.nn import kernels
from dragoman.nn.kernels import Twin

FOLDER = Path(kernels.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
CASES = [
    pytest.param(twin, id=f"{module}-{twin.function.__name__.strip('_')}")
    for module in MODULES
    for twin in importlib.import_module(f"dragoman.nn.kernels.{module}").TWINS
]
every_kernel = pytest.mark.parametrize("twin", CASES)


def differentiated(arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors among the arguments that have a gradient, and the parameters of the modules."""
    modules = [argument for argument in arguments if isinstance(argument, nn.Module)]
    tensors = [argument for argument in arguments if isinstance(argument, Tensor) and argument.requires_grad]
    return tensors + [parameter for module in modules for parameter in module.parameters()]


def outputs_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
    made = function(*arguments)
    return [made] if isinstance(made, Tensor) else list(made)


def values_and_gradients(twin: Twin, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
    """Return the means over as many calls as the twin asks for. The loss weights outputs by fixed random numbers."""
    torch.manual_seed(1)
    sums: list[Tensor] = []
    for _ in range(twin.draws):
        outputs = outputs_of(function, arguments)
        chance = torch.Generator().manual_seed(2)
        loss = sum(
            (output * torch.randn(output.shape, dtype=output.dtype, generator=chance)).sum()
            for output in outputs
            if output.requires_grad
        )
        assert isinstance(loss, Tensor)
        gradients = torch.autograd.grad(loss, differentiated(arguments), allow_unused=True)
        assert all(gradient is not None for gradient in gradients)
        found = [*(output.detach() for output in outputs), *gradients]
        sums = [before + now for before, now in zip(sums, found, strict=True)] if sums else found
    return [total / twin.draws for total in sums]


def nodes(outputs: list[Tensor]) -> set[str]:
    """The names of all operations in the graph behind these tensors."""
    seen, waiting = set(), [output.grad_fn for output in outputs]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return {node.name() for node in seen}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_lists_its_twins(module: str) -> None:
    assert importlib.import_module(f"dragoman.nn.kernels.{module}").TWINS


@every_kernel
def test_kernel_and_twin_agree_in_value_and_gradient(twin: Twin) -> None:
    torch.manual_seed(0)
    for arguments in twin.inputs():
        with kernels.fast():
            fast = values_and_gradients(twin, twin.function, arguments)
        plain = values_and_gradients(twin, twin.plain, arguments)
        for ours, theirs in zip(fast, plain, strict=True):
            torch.testing.assert_close(ours, theirs, atol=twin.tolerance, rtol=twin.tolerance)


@every_kernel
def test_the_switch_chooses(twin: Twin) -> None:
    """Switched to plain, a function is its twin bit for bit; switched to fast, something else runs."""
    torch.manual_seed(0)
    differs = False
    for arguments in twin.inputs():
        with kernels.plain():
            torch.manual_seed(1)
            chosen = outputs_of(twin.function, arguments)
        torch.manual_seed(1)
        plain = outputs_of(twin.plain, arguments)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(chosen, plain, strict=True))
        assert not any("kernels" in name or "Step" in name for name in nodes(chosen))
        with kernels.fast():
            torch.manual_seed(1)
            fast = outputs_of(twin.function, arguments)
        same_values = all(torch.equal(ours, theirs) for ours, theirs in zip(fast, plain, strict=True))
        differs = differs or not same_values or nodes(fast) != nodes(plain)
    assert differs


@pytest.fixture
def restored() -> Iterator[None]:
    before: Any = "fast" if kernels.is_fast() else "plain"
    yield
    kernels.use(before)


@pytest.mark.usefixtures("restored")
def test_a_thread_switches_for_itself_and_use_for_all() -> None:
    def seen(context: Callable[[], AbstractContextManager[None]] | None = None) -> bool:
        answers: list[bool] = []

        def ask() -> None:
            if context is None:
                answers.append(kernels.is_fast())
            else:
                with context():
                    answers.append(kernels.is_fast())

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return answers[0]

    for mode, is_fast in (("fast", True), ("plain", False)):
        kernels.use(mode)  # type: ignore[arg-type]
        assert kernels.is_fast() == seen() == is_fast
        with kernels.plain():
            assert not kernels.is_fast() and seen() == is_fast and seen(kernels.fast)
            with kernels.fast():
                assert kernels.is_fast()
            assert not kernels.is_fast()
        assert kernels.is_fast() == is_fast


@pytest.mark.usefixtures("restored")
def test_an_unknown_mode_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(UserError, match="it can be 'fast' or 'plain'"):
        kernels.use("quick")  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", "import dragoman.nn.kernels"],
        env={**environment, "DRAGOMAN_KERNELS": "quick"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "DRAGOMAN_KERNELS is 'quick'; it can be 'fast' or 'plain'" in done.stderr


# Laws of each part that a kernel is used in: value, gradient and memory, under the plain twins.
LAWS = "any_split or gradient_is_that_of or padding_is_invisible or batch_of_one or nothing_of_an_update or formula"
PARTS = "lstm or transformer or pyramid or additive or location"


def test_the_laws_hold_for_the_plain_twins_too(environment: dict[str, str]) -> None:
    """In a process of its own, switched by the environment variable."""
    laws = Path(__file__).parent.parent / "laws"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", f"({LAWS}) and ({PARTS})",
         *(str(laws / f"test_{name}.py") for name in ("decoders", "encoders", "attention"))],
        env={**environment, "DRAGOMAN_KERNELS": "plain"}, cwd=laws.parent.parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert os.environ.get("DRAGOMAN_KERNELS") or kernels.is_fast()
