"""A Triton program is compiled by its first call and launched directly from then on, where Triton allows it."""

import pytest
import torch

from metricfit.core.kernels import triton

GRID = (3, 1, 1)


class Kernel:
    """A stand-in for a function with ``triton.jit``: it counts its calls and returns what it compiled."""

    arg_names = ("X", "Y", "n", "number", "KIND", "BLOCK")

    def __init__(self, compiled):
        self.compiled, self.calls = compiled, []

    def __getitem__(self, grid):
        def launch(*args, num_warps, **static):
            self.calls.append((grid, num_warps, static))
            return self.compiled

        return launch


class Compiled:
    """A stand-in for a compiled program of so many parameters."""

    def __init__(self, parameters):
        self.parameters, self.calls = parameters, []

    def __getitem__(self, grid):
        def launch(*args):
            if len(args) != self.parameters:
                raise TypeError(f"function takes exactly {self.parameters} arguments ({len(args)} given)")
            self.calls.append((grid, args[2:]))

        return launch


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    monkeypatch.setattr(triton, "_compiled", {})


def launch(kernel, n=64, x=None, **static):
    x = torch.zeros(8) if x is None else x
    triton.launch(kernel, GRID, (x, x), (n, 0.5), {"KIND": 1, "BLOCK": 16} | static)


def test_the_compiled_program_is_launched_from_the_second_call_on():
    compiled = Compiled(6)
    kernel = Kernel(compiled)
    for _ in range(3):
        launch(kernel)
    assert kernel.calls == [(GRID, 4, {"KIND": 1, "BLOCK": 16})]
    assert compiled.calls == [(GRID, (64, 0.5, 1, 16))] * 2


@pytest.mark.parametrize(
    "other",
    [{"n": 1}, {"n": 65}, {"n": 2**31}, {"KIND": 2}, {"x": torch.zeros(8).double()}, {"x": torch.zeros(9)[1:]}],
    ids=["one", "no multiple of 16", "64 bits", "another setting", "another type", "not aligned"],
)
def test_what_triton_compiles_anew_is_compiled_anew(other):
    kernel = Kernel(Compiled(6))
    launch(kernel)
    launch(kernel, **other)
    assert len(kernel.calls) == 2


def test_integers_of_one_kind_share_a_program():
    compiled = Compiled(6)
    kernel = Kernel(compiled)
    for n in (32, 64, 1024):
        launch(kernel, n)
    assert (len(kernel.calls), len(compiled.calls)) == (1, 2)


@pytest.mark.parametrize("compiled", [None, Compiled(4)], ids=["an interpreter", "other parameters"])
def test_a_triton_without_direct_launches_is_asked_every_time(compiled):
    kernel = Kernel(compiled)
    for _ in range(4):
        launch(kernel)
    assert len(kernel.calls) == 4
