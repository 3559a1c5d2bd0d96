"""Every wrong input is refused at the boundary, with a message that says what to do."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from metricfit import Counts, MetricLoss, RunningCounts, SurrogateFBetaLoss, metrics, steps
from metricfit.losses import (
    ClassBalanced,
    EffectiveNumberBCELoss,
    FocalLoss,
    MAELoss,
    MarginLoss,
    MSFELoss,
    WeightedBCELoss,
)
from metricfit.losses.surrogate import SurrogateTverskyLoss

LOSSES = {
    "metric": MetricLoss("f1"),
    "surrogate": SurrogateFBetaLoss(prior=0.1),
    "tversky": SurrogateTverskyLoss(0.3, 0.7, prior=0.1),
    "bce": WeightedBCELoss(),
    "effective": EffectiveNumberBCELoss(0.9, (9, 1)),
    "focal": FocalLoss(2.0),
    "margin": MarginLoss(1.0),
    "mae": MAELoss(),
    "msfe": MSFELoss(),
    "balanced": ClassBalanced(MAELoss(), 0.1),
}
ENTRIES = LOSSES | {
    "soft": lambda x, y, w=None: Counts.soft(x, y, weight=w),
    "hard": lambda x, y, w=None: Counts.hard(x, y, weight=w),
}
X, Y = torch.tensor([0.5, -1.0, 2.0, 0.1]), torch.tensor([1, 0, 0, 1])

entries = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())


@entries
@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (torch.zeros(4, 2), torch.zeros(4, 3), r"logits \(4, 2\) with target \(4, 3\) fit no task.*Possible: binary: "),
        (
            torch.zeros(4, 2),
            torch.zeros(4),
            r"multiclass labels must be integers, got torch\.float32; use target\.long",
        ),
        (X, torch.zeros(4, 2), r"logits \(4,\) with target \(4, 2\) fit no task"),
        (X, Y[:3], r"logits \(4,\) with target \(3,\) fit no task; they differ in length, 4 and 3"),
        (X.unsqueeze(1), Y[:3], r"logits \(4, 1\) with target \(3,\) fit no task; they differ in length, 4 and 3"),
        (X, Y.unsqueeze(0), r"logits \(4,\) with target \(1, 4\) fit no task"),
        (X[0], Y[0], r"logits \(\) with target \(\) fit no task; add a batch axis with unsqueeze\(0\)"),
    ],
)
def test_shapes(entry, logits, target, message):
    with pytest.raises(ValueError, match=message):
        entry(logits, target)


@entries
def test_types(entry):
    with pytest.raises(
        TypeError, match=r"logits must be floating point, got torch\.int64; pass the model's raw outputs"
    ):
        entry(Y, Y)
    with pytest.raises(TypeError, match="logits must be floating point"):
        entry(X > 0, Y)
    with pytest.raises(TypeError, match=r"logits must be a torch tensor, got ndarray; use torch\.as_tensor\(logits\)"):
        entry(X.numpy(), Y)
    with pytest.raises(TypeError, match=r"target must be a torch tensor, got ndarray; use torch\.as_tensor\(target\)"):
        entry(X, Y.numpy())
    with pytest.raises(TypeError, match="target must be a torch tensor, got list"):
        entry(X, Y.tolist())
    with pytest.raises(TypeError, match="weight must be a torch tensor, got ndarray"):
        entry(X, Y, np.ones(4))
    with pytest.raises(TypeError, match=r"target must be real, got torch\.complex64"):
        entry(X, Y.to(torch.complex64))


@entries
def test_labels(entry):
    with pytest.raises(ValueError, match=r"got values from -1 to 1; map labels -1/1 with \(target \+ 1\) / 2"):
        entry(X, 2 * Y - 1)
    with pytest.raises(ValueError, match="got values from 1 to 2; map labels 1/2 with target - 1"):
        entry(X, Y + 1)
    with pytest.raises(ValueError, match=r"binary labels must be 0 or 1 \(or probabilities between\).* 0 to 1\.5"):
        entry(X, 1.5 * Y)
    with pytest.raises(ValueError, match="got values from -100 to 1; ignore_index= leaves out one value"):
        entry(X, torch.tensor([1, 0, -100, 1]))
    with pytest.raises(ValueError, match="target holds NaN in 1 of 4 places; drop those rows"):
        entry(X, torch.tensor([1, 0, math.nan, 1]))


@entries
def test_weights(entry):
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="weights must be finite and at least 0, got values from"):
            entry(X, Y, torch.tensor([1.0, 1.0, bad, 1.0]))
    for shape in ((3,), (5,), (1,), (), (4, 4), (4, 1, 1)):
        with pytest.raises(ValueError, match=r"weight needs one number per sample, shape \(4,\), got \("):
            entry(X, Y, torch.ones(shape))


@pytest.mark.parametrize("shape", [(2, 2), (1, 4)])
def test_a_weight_of_the_right_number_in_the_wrong_shape(shape):
    with pytest.raises(ValueError, match=r"weight needs one number per sample, shape \(4,\), got \("):
        MetricLoss("f1")(X, Y, torch.ones(shape))


@entries
def test_nan_logits(entry):
    with pytest.raises(ValueError, match="1 of 4 logits are NaN, the first at position 2; the model has diverged"):
        entry(torch.tensor([0.5, -1.0, math.nan, 0.1]), Y)


@entries
def test_devices(entry):
    with pytest.raises(ValueError, match=r"logits are on cpu and target on meta; use target\.to\(logits\.device\)"):
        entry(X, Y.to("meta"))
    with pytest.raises(ValueError, match="logits are on cpu and weight on meta"):
        entry(X, Y, torch.ones(4, device="meta"))


@pytest.mark.parametrize("threshold", [0, 1, 0.0, 1.0, -0.5, 2, math.nan, [0.5, 1.0], (0.0,), np.array([0.5, 1.5])])
def test_thresholds_outside_0_to_1(threshold):
    with pytest.raises(ValueError, match="a threshold must lie strictly between 0 and 1, got"):
        MetricLoss("f1", threshold=threshold)
    with pytest.raises(ValueError, match="a threshold must lie strictly between 0 and 1, got"):
        Counts.soft(X, Y, threshold=threshold)


def test_hard_counts_are_at_any_threshold():
    assert Counts.hard(X, Y, threshold=math.inf).predicted == 0
    assert Counts.hard(X, Y, threshold=[0.0, 1.0]).predicted.tolist() == [[4], [0]]
    with pytest.raises(ValueError, match="a threshold is NaN"):
        Counts.hard(X, Y, threshold=math.nan)


@pytest.mark.parametrize("threshold", [torch.tensor(1.5), torch.tensor([0.5, -1.0])])
def test_tensor_thresholds_outside_0_to_1(threshold):
    with pytest.raises(ValueError, match="a threshold must lie strictly between 0 and 1, got"):
        MetricLoss("f1", threshold=threshold)(X, Y)


def test_thresholds_of_other_kinds():
    with pytest.raises(ValueError, match="a threshold is a number, several, or for multiclass 'dynamic', got 'best'"):
        MetricLoss("f1", threshold="best")
    with pytest.raises(ValueError, match="the dynamic threshold is for multiclass logits; a binary or multilabel one"):
        Counts.soft(X, Y, threshold="dynamic")
    with pytest.raises(ValueError, match="threshold is empty; omit it to use the default"):
        MetricLoss("f1", threshold=[])(X, Y)
    assert MetricLoss("f1", threshold=np.float64(0.5))(X, Y) == MetricLoss("f1")(X, Y)


def test_a_numpy_float32_is_a_threshold():
    assert MetricLoss("f1", threshold=np.float32(0.5))(X, Y) == MetricLoss("f1")(X, Y)


def test_settings_of_the_loss():
    with pytest.raises(TypeError, match=r"step must be one of metricfit\.steps, such as Linear\(0\.1\), got 'linear'"):
        MetricLoss("f1", step="linear")
    with pytest.raises(TypeError, match=r"step must be one of metricfit\.steps"):
        MetricLoss("f1", step=steps.Linear)
    with pytest.raises(ValueError, match="average must be 'macro', 'micro', 'weighted' or None, got 'mean'"):
        MetricLoss("f1", average="mean")
    with pytest.raises(
        ValueError, match="task must be None or one of 'binary', 'multiclass', 'multilabel', got 'multi'"
    ):
        MetricLoss("f1", task="multi")(X, Y)
    with pytest.raises(TypeError, match="memory must be RunningCounts"):
        MetricLoss("f1", memory=RunningCounts)
    with pytest.raises(ValueError, match=r"per_image=True needs images, logits \(n, c, h, w\); these are \(4,\)"):
        MetricLoss("f1", per_image=True)(X, Y)
    with pytest.raises(ValueError, match=r"has a parameter per class, which average='micro' has no classes for"):
        MetricLoss(metrics.fbeta(beta=[1, 2]), average="micro")
    with pytest.raises(ValueError, match="there is no metric 'f3'"):
        MetricLoss("f3")
    with pytest.raises(TypeError, match="a metric is a Metric, its name or a function of Counts"):
        MetricLoss(None)


def test_a_formula_that_does_not_return_one_value_per_class_is_explained():
    with pytest.raises(ValueError, match="shape"):
        MetricLoss(lambda c: c.tp.sum() / c.n.sum())(X, Y)


def test_a_beta_per_class_on_a_binary_problem_is_explained():
    with pytest.raises(ValueError, match="has 3 values of beta, the counts have 1 class"):
        MetricLoss("fbeta(beta=[1, 1, 5])")(X, Y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: steps.Linear(0.0), r"Linear needs a delta of at least 1e-06 and below 0\.5, got 0\.0"),
        (lambda: steps.Linear(0.5), r"Linear needs a delta of at least 1e-06 and below 0\.5"),
        (lambda: steps.Sigmoid(0.0), r"Sigmoid needs k above 0 and at most 1e\+06, got"),
        (lambda: steps.Sigmoid(math.nan), r"Sigmoid needs k above 0 and at most 1e\+06, got"),
        (lambda: steps.RaisedCosine(-1.0), "RaisedCosine needs a finite width of at least 1e-06, got"),
        (
            lambda: steps.Annealed(steps.Linear(), steps.Identity()).advance(1.5),
            "fraction of training done, from 0 to 1",
        ),
        (lambda: steps.Linear()(X.sigmoid(), 1.0), "a threshold must lie strictly between 0 and 1"),
    ],
)
def test_steps_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_composed_steps_of_something_else_are_refused():
    with pytest.raises(TypeError, match=r"StraightThrough needs a step such as steps\.Linear\(\), got 3"):
        steps.StraightThrough(3)
    with pytest.raises(TypeError, match=r"Annealed needs a step such as steps\.Linear\(\), got None"):
        steps.Annealed(steps.Linear(), None)


def test_a_class_balanced_loss_that_takes_no_weight_is_refused_when_made():
    with pytest.raises(
        TypeError, match=r"ClassBalanced needs a loss of metricfit\.losses .*; BCEWithLogitsLoss is not"
    ):
        ClassBalanced(nn.BCEWithLogitsLoss(), prior=0.1)


def test_validate_false_checks_shapes_but_not_values():
    loss = MetricLoss("f1", validate=False)
    assert loss(X, 2 * Y - 1).isfinite()
    assert loss(X, 3 * Y).isfinite()
    assert loss(torch.full((4,), math.nan), Y).isnan()
    assert loss(X, Y, torch.tensor([-1.0, 1.0, 1.0, 1.0])).isfinite()
    with pytest.raises(ValueError, match="differ in length"):
        loss(X, Y[:2])
    with pytest.raises(TypeError, match="floating point"):
        loss(Y, Y)


def test_validate_true_also_checks_under_no_grad_and_in_eval_mode():
    loss = MetricLoss("f1", validate=True).eval()
    with torch.no_grad(), pytest.raises(ValueError, match="binary labels must be 0 or 1"):
        loss(X, 2 * Y)


def test_ignored_labels_are_not_out_of_range_but_others_are():
    loss = MetricLoss("f1", ignore_index=-100)
    assert loss(X, torch.tensor([1, 0, -100, 1])).isfinite()
    with pytest.raises(ValueError, match="binary labels must be 0 or 1"):
        loss(X, torch.tensor([1, 0, -100, 2]))


@pytest.mark.parametrize("entry", [ENTRIES[name] for name in ("metric", "mae", "msfe", "soft", "hard")])
def test_an_infinite_logit_is_a_certain_decision(entry):
    value = entry(torch.tensor([math.inf, -math.inf, -math.inf, 1.0]), Y)
    cells = list(value) if isinstance(value, Counts) else [value]
    assert all(cell.isfinite().all() for cell in cells)


@entries
def test_more_pixels_than_half_precision_can_count(entry):
    n = 70_000
    value = entry(torch.zeros(n, dtype=torch.float16), torch.ones(n))
    cells = list(value) if isinstance(value, Counts) else [value]
    assert all(cell.isfinite().all() for cell in cells)
    if isinstance(value, Counts):
        assert (value.tp + value.fn).item() == n
