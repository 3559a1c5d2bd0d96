"""Metrics that are written as formulas, against the metrics of this library and against Python's own arithmetic."""

import copy
import pickle
import time

import numpy as np
import pytest
import torch

import metricfit
from metricfit import Counts, MetricLoss, get_metric, metrics, parse_requirement
from metricfit.metrics import curves

SAME = {
    "2*tp/(2*tp+fp+fn)": metrics.f1,
    "5*tp / (5*tp + 4*fn + fp)": metrics.fbeta(beta=2),
    "tp/(tp+fp+fn)": metrics.jaccard,
    "(tp + tn)/n": metrics.accuracy,
    "tp/(tp+fp)": metrics.precision,
    "tp / (tp + fn)": metrics.recall,
    "1 - fp/(fp+tn)": metrics.specificity,
    "minimize(fp/(fp+tn))": metrics.fpr,
    "minimize((2*fp + 7*fn)/n)": metrics.cost(fp=2, fn=7),
    "(tp/(tp+fn) + tn/(tn+fp))/2": metrics.balanced_accuracy,
    "sqrt(tp/(tp+fn) * tn/(tn+fp))": metrics.gmean,
    "((tp/(tp+fn)) * (tn/(tn+fp)))**0.5": metrics.gmean,
    "(tp*tn - fp*fn) / sqrt((tp+fp)*(tp+fn)*(tn+fp)*(tn+fn))": metrics.mcc,
}


def random_counts(shape=(50, 1), *, requires_grad=False):
    generator = torch.Generator().manual_seed(0)
    cells = [1 + 100 * torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(4)]
    return Counts(*(cell.requires_grad_(requires_grad) for cell in cells))


@pytest.mark.parametrize("text", SAME)
def test_a_formula_has_the_value_and_the_gradient_of_the_metric_of_this_library(text):
    values, gradients = [], []
    for metric in (get_metric(text), SAME[text]):
        counts = random_counts(requires_grad=True)
        value = metric(counts)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value.sum(), list(counts), allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(values[0], values[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)
    assert get_metric(text).minimize == SAME[text].minimize


@pytest.mark.parametrize("text", ["2*tp/(2*tp+fp+fn)", "tp / (tp + fn)", "(tp + tn)/n", "minimize(fp/(fp+tn))"])
def test_a_formula_needs_the_samples_that_the_metric_of_this_library_needs(text):
    assert get_metric(text).needs == SAME[text].needs


def test_0_by_0_is_0_in_every_part_with_gradient_0():
    counts = Counts(*(torch.tensor([cell], requires_grad=True) for cell in (0.0, 0.0, 0.0, 4.0)))
    value = get_metric("2*tp/(2*tp+fp+fn) + tn/n + sqrt(fp)")(counts)
    assert value.tolist() == [1.0]
    assert all(bool(slope.isfinite().all()) for slope in torch.autograd.grad(value.sum(), list(counts)))


@pytest.mark.parametrize(
    "text",
    [
        "max(tp, 2*fp, 3) - min(fn, tn)",
        "abs(fp - fn)**3/n",
        "-tp + +fn*2**3",
        "tp - (fp - (fn - tn))",
        "min(7, n)/2e-3",
    ],
)
def test_arithmetic_is_that_of_python(text):
    counts = random_counts()
    names = {name: getattr(counts, name).squeeze(-1).tolist() for name in ("tp", "fp", "fn", "tn", "n")}
    rows = [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]
    expected = [eval(text, {"abs": abs, "min": min, "max": max}, row) for row in rows]
    np.testing.assert_allclose(get_metric(text)(counts).squeeze(-1).tolist(), expected, rtol=1e-12)


def test_its_name_is_read_back_in_any_process():
    for text in (*SAME, "(tp/n)[2]", "minimize(fp/n)[1]", "(tp/n).gap(2)", "max(tp, fp).gap(['a', 'b'])", "-fp"):
        metric = get_metric(text)
        assert get_metric(metric.name) == metric
        assert pickle.loads(pickle.dumps(metric)) == metric
        assert copy.deepcopy(metric).name == metric.name
    assert get_metric("2*tp/(2*tp+fp+fn)") == get_metric(" 2 * tp / ( 2*tp + fp + fn ) ")
    assert get_metric("minimize(fp/n)") != get_metric("fp/n")


def test_it_is_a_loss_a_threshold_and_a_requirement():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = (logits.detach() + torch.randn(200, generator=generator) > 0.5).double()
    slopes = [
        torch.autograd.grad(MetricLoss(metric)(logits, labels), logits)[0] for metric in ("f1", "2*tp/(2*tp+fp+fn)")
    ]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)
    scores = logits.detach()
    best = [
        curves.best_threshold(scores, labels, metric, subject_to=requirement)
        for metric, requirement in (("f1", "recall >= 0.9"), ("2*tp/(2*tp+fp+fn)", "tp/(tp+fn) >= 0.9"))
    ]
    assert best[0].threshold == best[1].threshold
    assert best[0].value == pytest.approx(best[1].value, abs=1e-12)


def test_a_requirement_on_a_formula_is_read_back():
    for text in ("tp / (tp + fn) >= 0.9", "minimize(fp / n) <= 0.01", "(tp + fp) / n == 0.1 +- 0.02"):
        assert str(parse_requirement(text)) == text
    assert str(parse_requirement("0.9 <= tp/(tp+fn)")) == "tp / (tp + fn) >= 0.9"


def test_metrics_of_users_keep_their_names():
    @metrics.metric
    def n(c):
        return c.tp

    try:
        assert get_metric("n") is n
        with pytest.raises(metricfit.MetricfitError, match="cannot read the formula"):
            get_metric("n*foo")
    finally:
        from metricfit.metrics import registry

        del registry._USER_DEFINED["n"]


REFUSED = {
    "2*tq/tp": r"'tq' \(character 3\) is none of tp, fp, fn, tn, n; did you mean 'tp'",
    "tp + fn * wrong": r"'wrong' \(character 11\)",
    "ä*tp + fn*wrong": r"'ä' \(character 1\)",
    "tp^2": r"powers as in tp\*\*2",
    "tp**tn": r"'tn' \(character 5\) is an exponent",
    "tp**11": "from 0 to 10",
    "tp**-1": "from 0 to 10",
    "9**9**9**9*tp": "from 0 to 10",
    "tp/(1-1)": r"'1-1' \(character 5\) is 0",
    "2*tp/(2*tp+fp": r"'\(' was never closed \(character 6\)",
    "2tp/n": "invalid decimal literal",
    "2+2": "is one number; use the counts",
    "recall*2": "'recall'.*is a metric",
    "minimize(tp)+1": "around the whole",
    "minimize(tp, fp)": "takes one formula",
    "sqrt(tp, fp)": "takes one value",
    "min(tp)": "takes 2 to 5 values",
    "max(tp, key=fp)": "takes 2 to 5 values",
    "(-1)**0.5*tp": "not a finite number",
    "tp*1e30": "larger than 1e",
    "tp*1e999": "larger than 1e",
    "tp*True": "'True'.*is no number",
    "tp*'a'": "is no number",
    "tp*2j": "is no number",
    "tp.real*2": r"'tp.real' \(character 1\) is not allowed",
    "tp*__import__('os').getpid()": "is not allowed",
    "tp*(lambda: 3)()": "is not allowed",
    "tp*[fp for fp in (1,)][0]": "is not allowed",
    "tp*(fp:=3)": "is not allowed",
    "tp*eval('1')": "is not allowed",
    "tp//fp": "is not allowed",
    "tp%fp": "is not allowed",
    "~tp": "is not allowed",
    "tp+" * 200 + "tp": "at most 500 characters",
    "-" * 100 + "tp": "nested more than 60",
    "+".join(["n"] * 100): "nested more than 60",
    "sqrt(" * 80 + "tp" + ")" * 80: "nested more than 60",
    "tp*" + "9" * 400: "too large for a float",
    "__import__('os').system('true')": "cannot read the metric",
    "tp.__class__": "cannot read the metric",
}


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused_quickly_and_by_its_place(text):
    start = time.perf_counter()
    with pytest.raises(metricfit.MetricfitError, match=REFUSED[text]) as error:
        get_metric(text)
    assert time.perf_counter() - start < 30  # no search of exponential cost, on a busy machine too
    assert len(str(error.value)) < 500
