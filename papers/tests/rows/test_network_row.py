"""The runner's numbers against a plain loop of torch and scikit-learn's scores."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, fbeta_score, roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import metricfit_papers as papers
from metricfit.train.data.batches import Batches, derive_seed
from metricfit_papers.models.construction import UniformDropout, build_network
from metricfit_papers.rows.trial_scores import keep_better, score_views

TOML = """
title = "T"
paper = "P"
where = "W"
trials = 2
prepare = "bridging the gap"
[datasets.mine]
file = "mine.csv"
target = "label"
positive = "yes"
[columns]
f1 = {metric = "f1"}
accuracy = {metric = "accuracy"}
auroc = {metric = "auroc"}
[training]
network = "mlp(hidden=[8], dropout=0.0)"
lr = 0.02
batch_size = 32
epochs = 25
patience = 4
[protocols.paper]
says = "."
varied = "splits"
[protocols.code]
says = "."
varied = "splits"
thresholded = "outputs"
auroc = "labels"
checkpoint = "best test"
[rows.BCE]
loss = "WeightedBCELoss"
outputs = "logits"
[rows.half]
of = "BCE"
decided = "half"
[rows.tuned]
of = "BCE"
decided = "tuned f1"
"""
TENTHS = np.arange(1, 10) / 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("mine")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 4)) * [1, 5, 0.1, 2] + [0, 3, 0, -1]
    label = np.where(x[:, 0] + x[:, 1] / 5 + 0.5 * rng.normal(size=150) > 1.2, "yes", "no")
    pd.DataFrame(x, columns=list("abcd")).assign(label=label).to_csv(where / "mine.csv", index=False)
    (where / "twin.toml").write_text(TOML)
    return where


def parts_of(trial, n):
    """The random split of a trial, as the page about the format describes it: 64, 16 and 20 percent."""
    shuffled = np.random.default_rng(trial).permutation(n)
    return np.sort(shuffled[:96]), np.sort(shuffled[96:120]), np.sort(shuffled[120:])


def naive(folder, trial):
    """One trial: a plain loop; the logits of validation and test rows whenever the validation loss was the best."""
    frame = pd.read_csv(folder / "mine.csv")
    y = (frame.pop("label") == "yes").to_numpy().astype(int)
    train, validation, test = parts_of(trial, 150)
    raw = frame.to_numpy()
    x = torch.tensor((raw - raw[train].mean(0)) / raw[train].std(0)).float()
    target = torch.tensor(y).float()
    model = build_network("mlp(hidden=[8], dropout=0.0)", 4, trial)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    best, waited, kept, epochs = np.inf, 0, [], 0
    for epoch in range(25):
        for batch in Batches(32).divide(target[train], derive_seed("order", trial), 0, epoch):
            rows = torch.tensor(train)[batch]
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(x[rows]).squeeze(1), target[rows]).backward()
            optimizer.step()
        epochs += 1
        with torch.no_grad():
            logits = model(x).squeeze(1)
            loss = binary_cross_entropy_with_logits(logits[validation], target[validation]).item()
        waited += 1
        if loss < best:
            best, waited = loss, 0
            kept.append((logits[validation].double().numpy(), logits[test].double().numpy()))
        if waited >= 4:
            break
    return kept, y[validation], y[test], epochs


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def results(folder, tmp_path_factory):
    spec = papers.find_table(str(folder / "twin.toml"))
    out = tmp_path_factory.mktemp("out")
    return {name: papers.run_table(spec, name, out, device="cpu") for name in spec.protocols}


@pytest.mark.parametrize("trial", [0, 1])
def test_the_paper_protocol(folder, results, trial):
    kept, y_validation, y, epochs = naive(folder, trial)
    validation, test = map(sigmoid, kept[-1])
    at = {name: results["paper"].rows["mine", name].values for name in ("BCE", "half", "tuned")}
    assert results["paper"].rows["mine", "BCE"].epochs[trial] == epochs
    assert at["BCE"]["f1"][trial] == pytest.approx(np.mean([f1_score(y, test >= t) for t in TENTHS]))
    assert at["BCE"]["accuracy"][trial] == pytest.approx(np.mean([accuracy_score(y, test >= t) for t in TENTHS]))
    assert at["BCE"]["auroc"][trial] == pytest.approx(roc_auc_score(y, test))
    assert at["half"]["f1"][trial] == pytest.approx(f1_score(y, test >= 0.5))
    candidates = np.unique(validation)[::-1]
    tuned = candidates[np.argmax([f1_score(y_validation, validation >= t) for t in candidates])]
    assert at["tuned"]["f1"][trial] == pytest.approx(f1_score(y, test >= tuned))


@pytest.mark.parametrize("trial", [0, 1])
def test_the_code_protocol_thresholds_logits_and_takes_each_numbers_best(folder, results, trial):
    kept, _, y, _ = naive(folder, trial)
    assert len(kept) > 2
    at = results["code"].rows["mine", "BCE"].values
    scores = {"f1": f1_score, "accuracy": accuracy_score, "auroc": balanced_accuracy_score}
    for column, score in scores.items():
        best = max(np.mean([score(y, test >= t) for t in TENTHS]) for _, test in kept)
        assert at[column][trial] == pytest.approx(best)


def test_scores_of_several_metrics_are_scikit_learns():
    rng = np.random.default_rng(0)
    p, y = rng.uniform(size=300), rng.integers(0, 2, 300)
    both = torch.tensor(p), torch.tensor(y)
    found = score_views(both, both, {"f2": "fbeta(beta=2)", "area": "auroc"}, ["mean", "half"], auroc_of="labels")
    assert found["half"]["f2"] == pytest.approx(fbeta_score(y, p >= 0.5, beta=2))
    assert found["mean"]["f2"] == pytest.approx(np.mean([fbeta_score(y, p >= t, beta=2) for t in TENTHS]))
    assert found["mean"]["area"] == pytest.approx(np.mean([roc_auc_score(y, p >= t) for t in TENTHS]))


def test_keep_better_takes_the_larger_value():
    one, other = {"half": {"f1": 0.5, "recall": 0.1}}, {"half": {"f1": 0.4, "recall": 0.2}}
    assert keep_better(one, other) == {"half": {"f1": 0.5, "recall": 0.2}}
    assert keep_better(None, other) == other


def test_dropout_by_uniform_numbers_is_dropout():
    torch.manual_seed(0)
    x = torch.ones(400, 500)
    dropped = UniformDropout(0.3)(x)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert UniformDropout(0.3).eval()(x) is x
    model = build_network("btg_mlp", 6, 0)
    assert [type(each) for each in model if isinstance(each, nn.Dropout)] == [UniformDropout] * 2
    assert torch.equal(model[0].weight, build_network("btg_mlp", 6, 0)[0].weight)
    assert not torch.equal(model[0].weight, build_network("btg_mlp", 6, 1)[0].weight)
