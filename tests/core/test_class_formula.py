"""Formulas as Triton programs, run on a stand-in for Triton, against the same formulas in float64."""

import copy

import pytest
import torch
import triton_stand_in

from metricfit import Counts
from metricfit.core import class_formula
from metricfit.core.class_formula import FormulaOnDevice
from metricfit.metrics.average import averaged

#: Of a formula of which there is one.
KEY = (None, None)


@pytest.fixture
def evaluate(monkeypatch):
    triton_stand_in.install(monkeypatch)
    monkeypatch.setattr(class_formula, "_is_ordinary", lambda counts: True)
    return FormulaOnDevice()


def make_cells(classes, dtype=torch.float32):
    cells = torch.rand(4, classes, generator=torch.Generator().manual_seed(classes)) * 10 + 0.5
    cells[[0, 2], classes // 2] = 0  # a class without positives, which the macro average leaves out
    return cells.to(dtype).requires_grad_()


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_values_and_gradients_are_those_of_float64(any_metric, average, evaluate):
    def formula(counts):
        return averaged(any_metric, counts, average, training=True)

    if any_metric.needs_matrix:
        pytest.skip("the formula takes a confusion matrix")
    for classes in (3, 5):
        cells, wide = make_cells(classes), make_cells(classes, torch.float64)
        expected = formula(Counts(*wide, exclusive=True))
        (wanted,) = torch.autograd.grad(expected, wide)
        for _ in range(2):  # the second call finds the program
            value = evaluate(formula, Counts(*cells, exclusive=True), (formula, average))
            torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
            (2 * value).backward()
            torch.testing.assert_close(cells.grad.double() / 2, wanted, rtol=1e-4, atol=1e-6)
            cells.grad = None
        assert evaluate._programs[id(formula), average, classes, True][1] is not None, "evaluated with tensors"


def test_second_derivatives_are_computed_with_tensors(evaluate):
    def formula(counts):
        return (counts.tp**2 / (counts.tp + counts.fp)).sum()

    cells = make_cells(3)
    (first,) = torch.autograd.grad(evaluate(formula, Counts(*cells), KEY), cells, create_graph=True)
    (second,) = torch.autograd.grad(first[0].sum(), cells)
    (expected,) = torch.autograd.grad(formula(Counts(*cells)), cells, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(expected[0].sum(), cells)[0])


def test_a_formula_that_cannot_be_recorded_is_evaluated_with_tensors(evaluate):
    def formula(counts):
        return torch.erf(counts.tp).sum()

    cells = make_cells(3)
    torch.testing.assert_close(evaluate(formula, Counts(*cells), KEY), formula(Counts(*cells)))
    assert [program for _, program in evaluate._programs.values()] == [None]


def test_copies_have_no_programs(evaluate):
    evaluate(lambda counts: counts.tp.sum(), Counts(*make_cells(3)), KEY)
    assert evaluate._programs
    assert not copy.deepcopy(evaluate)._programs


def test_without_a_gpu_the_formula_is_called():
    calls = []
    cells = make_cells(3)
    value = FormulaOnDevice()(lambda counts: calls.append(1) or counts.tp.sum(), Counts(*cells), KEY)
    assert calls == [1]
    torch.testing.assert_close(value, cells[0].sum())
