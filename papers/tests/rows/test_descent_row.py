"""AnyLoss's perceptron against a plain loop of numpy with derivatives written out, and scikit-learn's scores."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    fbeta_score,
    recall_score,
)

import metricfit_papers as papers
from metricfit_papers.baselines.squared_error import SquaredErrorLoss
from metricfit_papers.datasets.trials import make_trials
from metricfit_papers.rows.descent_row import Stack, stacked_loss
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import build_object

STEEP, RATE, STEPS = 73, 0.1, 60
LOSSES = {
    "MSE": "SquaredErrorLoss",
    "BCE": "WeightedBCELoss",
    "SOL": "MetricLoss('f1', step=Identity)",
    "F1": "MetricLoss('f1', step=Sigmoid(73))",
    "F2": "MetricLoss('fbeta(beta=2)', step=Sigmoid(73))",
    "accuracy": "MetricLoss('accuracy', step=Sigmoid(73))",
    "gmean": "MetricLoss('gmean', step=Sigmoid(73))",
    "balanced": "MetricLoss('balanced_accuracy', step=Sigmoid(73))",
}
HEAD = """
title = "A twin"
paper = "Nobody (2026)"
where = "nowhere"
trials = 3
prepare = "bridging the gap"
datasets.mine = { file = "mine.csv", target = "label", positive = "yes" }
protocols.paper = { says = "", split = "stratified", fractions = [0.9, 0, 0.1], varied = "folds", decided = "half" }
columns.f1.metric = "f1"
columns.f2.metric = "fbeta(beta=2)"
columns.accuracy.metric = "accuracy"
columns.gmean.metric = "gmean"
columns.balanced.metric = "balanced_accuracy"
training = { network = "perceptron", optimizer = "SGD", lr = 0.1, batch_size = 0, epochs = 60 }
"""


def gmean_score(y, decided):
    return np.sqrt(recall_score(y, decided) * recall_score(y, decided, pos_label=0))


SCORES = {
    "f1": f1_score,
    "f2": lambda y, decided: fbeta_score(y, decided, beta=2),
    "accuracy": accuracy_score,
    "gmean": gmean_score,
    "balanced": balanced_accuracy_score,
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slope_of_f(y, h, dh, beta):
    """The derivative of 1 - F_beta to each output, from sums over samples, as Han et al. write it."""
    b = beta**2
    both, hits = b * y.sum() + h.sum(), (y * h).sum()
    return -(1 + b) * (y * dh * both - dh * hits) / both**2


def slope_of_gmean(y, h, dh):
    """By the chain rule: half of the product's derivative over the root."""
    positives, negatives = y.sum(), (1 - y).sum()
    tpr, tnr = (y * h).sum() / positives, ((1 - y) * (1 - h)).sum() / negatives
    return -(y * dh / positives * tnr - (1 - y) * dh / negatives * tpr) / (2 * np.sqrt(tpr * tnr))


def slope_of_gmean_as_published(y, h, dh):
    n, sy, sh, syh = len(y), y.sum(), h.sum(), (y * h).sum()
    rest = n - sh - sy + syh
    return -2 * (y * dh * rest + (y * dh - dh) * syh) / np.sqrt(sy * (n - sy) * syh * rest)


def slope(name, z, y):
    """The derivative of a loss to each output z."""
    n, p = len(y), sigmoid(z)
    dp = p * (1 - p)
    h = sigmoid(STEEP * (p - 0.5))
    dh = STEEP * h * (1 - h) * dp
    if name == "MSE":
        return 2 * (p - y) * dp / n
    if name == "BCE":
        return (p - y) / n
    if name == "SOL":
        return slope_of_f(y, p, dp, 1)
    if name in ("F1", "F2"):
        return slope_of_f(y, h, dh, int(name[1]))
    if name == "accuracy":
        return (1 - 2 * y) * dh / n
    if name == "gmean":
        return slope_of_gmean(y, h, dh)
    return -(y / y.sum() - (1 - y) / (1 - y).sum()) * dh / 2


def naive(name, x, y):
    """60 steps from zero on all rows at once: the weights, the last of them the bias."""
    x = np.column_stack([x, np.ones(len(x))])
    w = np.zeros(x.shape[1])
    for _ in range(STEPS):
        w -= RATE * x.T @ slope(name, x @ w, y)
    return w


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    where = tmp_path_factory.mktemp("mine")
    rng = np.random.default_rng(3)
    x = rng.normal(size=(100, 3)) * [1, 4, 0.2] + [0, 2, 1]
    label = np.where(x[:, 0] + x[:, 1] / 4 + 0.8 * rng.normal(size=100) > 1.3, "yes", "no")
    pd.DataFrame(x, columns=list("abc")).assign(label=label).to_csv(where / "mine.csv", index=False)
    rows = "".join(f'[rows.{name}]\nkind = "descent"\nloss = "{loss}"\n' for name, loss in LOSSES.items())
    (where / "twin.toml").write_text(HEAD + rows)
    return papers.find_table(str(where / "twin.toml"))


@pytest.fixture(scope="module")
def trials(spec):
    beside = spec.file.removesuffix("/twin.toml")
    return make_trials(spec.datasets["mine"], None, spec.prepare, spec.protocols["paper"], 3, beside)


@pytest.fixture(scope="module")
def result(spec, tmp_path_factory):
    return papers.run_table(spec, "paper", tmp_path_factory.mktemp("out"), device="cpu")


@pytest.mark.parametrize("name", LOSSES)
def test_one_fold_equals_a_plain_loop(name, spec, trials, result):
    trial = trials[1]
    x, y = trial.x.double().numpy(), trial.y.numpy()
    w = naive(name, x[trial.train], y[trial.train])
    decided = x[trial.test] @ w[:-1] + w[-1] >= 0
    found = result.rows["mine", name].values
    for column, score in SCORES.items():
        assert found[column][1] == pytest.approx(score(y[trial.test], decided))
    stack = Stack(spec.rows[name].training["paper"], LOSSES[name], trials, "cpu")
    for _ in range(STEPS):
        stack.step()
    model = stack.models()[1]
    np.testing.assert_allclose(model[0].weight.detach()[0], w[:-1], atol=2e-4)
    assert model[0].bias.item() == pytest.approx(w[-1], abs=2e-4)


def test_every_fold_is_tested_once_and_tuned_on_its_training_rows(trials):
    assert sorted(torch.cat([trial.test for trial in trials]).tolist()) == list(range(100))
    for trial in trials:
        assert torch.equal(trial.validation, trial.train)


def test_the_published_derivative_of_gmean_is_four_times_the_derivative():
    rng = np.random.default_rng(0)
    y, z = (rng.uniform(size=60) < 0.3).astype(float), rng.normal(size=60) / 4
    p = sigmoid(z)
    h = sigmoid(STEEP * (p - 0.5))
    dh = STEEP * h * (1 - h) * p * (1 - p)
    logits = torch.tensor(z, requires_grad=True)
    build_object(LOSSES["gmean"], vocabulary.LOSSES)(logits, torch.tensor(y)).backward()
    np.testing.assert_allclose(logits.grad, slope_of_gmean(y, h, dh), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(slope_of_gmean_as_published(y, h, dh), 4 * logits.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("text", LOSSES.values())
def test_the_loss_of_a_stack_is_the_sum_over_members_without_padding(text):
    torch.manual_seed(0)
    y, logits = torch.randint(0, 2, (3, 20)), torch.randn(3, 20, dtype=torch.float64, requires_grad=True)
    lengths = (20, 17, 11)
    real = (torch.arange(20) < torch.tensor(lengths).unsqueeze(1)).double()
    whole = stacked_loss(text, y, real)(logits)
    (grad,) = torch.autograd.grad(whole, logits)
    alone = build_object(text, vocabulary.LOSSES)
    total = sum(alone(logits[at, :n], y[at, :n]) for at, n in enumerate(lengths))
    torch.testing.assert_close(whole, total)
    torch.testing.assert_close(grad, torch.autograd.grad(total, logits)[0])


def test_other_losses_are_refused():
    with pytest.raises(ValueError, match="take a MetricLoss or a mean over samples, not WMWLoss"):
        stacked_loss("WMWLoss", torch.zeros(1, 2), torch.ones(1, 2))


def test_the_squared_error_is_the_brier_score():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=50), rng.integers(0, 2, 50)
    found = SquaredErrorLoss()(torch.tensor(z), torch.tensor(y)).item()
    assert found == pytest.approx(brier_score_loss(y, sigmoid(z)))
