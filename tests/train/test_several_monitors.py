"""Several monitors: the first decides, and all are in the history."""

import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from metricfit.losses import WeightedBCELoss
from metricfit.metrics import f1
from metricfit.train import Callback, Monitor, fit
from metricfit_papers.populations import fit_population

X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + torch.randn(80, generator=torch.Generator().manual_seed(1)) > 0.7).long()
VALIDATION = X[40:], Y[40:]


def trained(monitor, **settings):
    torch.manual_seed(0)
    usual = {"validation": VALIDATION, "epochs": 4, "lr": 0.3, "batch_size": 20, "progress": False}
    return fit(nn.Linear(3, 1), (X[:40], Y[:40]), WeightedBCELoss(), monitor=monitor, **usual | settings)


@pytest.mark.parametrize("first", ["best f1", "loss", "auroc"])
def test_the_first_decides_as_it_does_alone_and_the_others_are_recorded(first):
    names = [first, *(name for name in ("auroc", "best f1", "loss", "recall") if name != first)]
    alone, several = trained(first, patience=2), trained(names, patience=2)
    assert torch.equal(alone.model.weight, several.model.weight)
    assert (several.best, several.threshold) == pytest.approx((alone.best, alone.threshold), nan_ok=True)
    for column in alone.history.columns:
        assert several.history[column] == pytest.approx(alone.history[column], nan_ok=True)
    assert several.history["monitor"] == [first] * len(several.history)
    for name in names:
        single = trained(name)
        assert several.history[name] == pytest.approx(single.history["value"][: len(several.history)])


class Scores(Callback):
    """Scores of scikit-learn for the weights of every epoch that improved."""

    def __init__(self):
        self.values, self.best = [], None

    def started(self, plan, step):
        self.outputs = plan.outputs

    def epoch_ended(self, rows):
        if rows[0]["best"] == self.best:
            return
        self.best, logits = rows[0]["best"], self.outputs(0, VALIDATION[0]).squeeze(1)
        self.values.append((f1_score(VALIDATION[1], logits >= 0), roc_auc_score(VALIDATION[1], logits)))


@pytest.mark.parametrize("monitors", [["f1", "auroc"], ["f1", "accuracy", "loss"]], ids=["scores", "counts"])
def test_values_are_those_of_scikit_learn(monitors):
    scores = Scores()
    history = trained(monitors, callbacks=[scores]).history
    improved = [row for number, row in enumerate(history) if row["value"] > max([-1, *history["value"][:number]])]
    assert len(improved) == len(scores.values) > 0
    for row, (expected_f1, expected_auroc) in zip(improved, scores.values, strict=True):
        assert row["f1"] == row["value"] == pytest.approx(expected_f1)
        if "auroc" in monitors:
            assert row["auroc"] == pytest.approx(expected_auroc)


def test_thresholds_averages_and_requirements_have_columns():
    monitors = [f1, Monitor("f1", threshold=0.3), Monitor("f1", threshold="best", subject_to="recall >= 0.5")]
    row = trained(monitors, epochs=1).history[0]
    held = "best f1, recall >= 0.5"
    assert {"f1", "f1 at 0.3", held, f"{held} threshold", f"{held} feasible"} <= row.keys()
    assert row["threshold"] == 0.5
    assert row[f"{held} feasible"] is True
    assert row[held] == pytest.approx(
        Monitor("f1", threshold=row[f"{held} threshold"]).measure(_last_logits(monitors), VALIDATION[1]).value
    )


def _last_logits(monitors):
    return trained(monitors, epochs=1).model(VALIDATION[0]).detach()


def test_members_of_a_population_have_what_each_has_alone():
    def networks():
        torch.manual_seed(0)
        return [nn.Linear(3, 1) for _ in range(2)]

    usual = {"validation": VALIDATION, "epochs": 2, "lr": 0.3, "batch_size": 20, "progress": False}
    usual["monitor"] = ["auroc", "best f1"]
    together = fit_population(networks(), (X[:40], Y[:40]), WeightedBCELoss(), **usual)
    for member, (model, result) in enumerate(zip(networks(), together, strict=True)):
        alone = fit(model, (X[:40], Y[:40]), WeightedBCELoss(), seed=member, **usual)
        for column in ("auroc", "best f1", "best f1 threshold"):
            assert result.history[column] == pytest.approx(alone.history[column], abs=1e-4)


def test_a_plateau_follows_the_first(monkeypatch):
    seen = []
    monkeypatch.setattr(ReduceLROnPlateau, "step", lambda self, value: seen.append(value))
    history = trained(["auroc", "loss"], scheduler=lambda made: ReduceLROnPlateau(made, "max")).history
    assert seen == history["auroc"]


def test_a_run_is_resumed_with_the_same_monitors_only(tmp_path):
    whole = trained(["auroc", "f1"], checkpoint_dir=tmp_path)
    assert trained(["auroc", "f1"], checkpoint_dir=tmp_path, resume=True).history == whole.history
    with pytest.raises(ValueError, match=r"holds another run .*monitors"):
        trained(["auroc", "recall"], checkpoint_dir=tmp_path, resume=True)


class StopsInThirdEpoch(Callback):
    def stepped(self, step, losses):
        if step == 5:
            raise KeyboardInterrupt


def test_thresholds_of_labels_are_the_same_after_a_resume(tmp_path):
    labels = (X > 0.3).long()

    def run(folder, **settings):
        torch.manual_seed(0)
        usual = {"validation": (X, labels), "epochs": 3, "batch_size": 40, "checkpoint_dir": folder, "resume": True}
        usual |= {"monitor": ["f1", "best f1"], "progress": False}
        return fit(nn.Linear(3, 3), (X, labels), WeightedBCELoss(task="multilabel"), **usual | settings)

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", callbacks=[StopsInThirdEpoch()])
    assert run(tmp_path / "parts").history == whole.history
    assert run(tmp_path / "parts").history == whole.history  # of a finished run
    assert [len(thresholds) for thresholds in whole.history["best f1 threshold"]] == [3] * 3


def value(counts):
    return counts.tp


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        ([], "monitor is an empty list"),
        (["f1", "auroc", "f1"], "names 'f1' twice"),
        (["f1", value], "column 'value' of the history has another meaning"),
        (["f1", "nonsense"], "nonsense"),
    ],
)
def test_lists_that_are_refused(monitor, message):
    with pytest.raises(ValueError, match=message):
        trained(monitor)


def test_each_monitor_needs_a_validation_set_and_its_class():
    with pytest.raises(ValueError, match="monitor='auroc' needs a validation set"):
        trained(["loss", "auroc"], validation=None)
    with pytest.raises(ValueError, match="no positives, on which auroc is measured"):
        trained(["loss", "auroc"], validation=(X[40:], torch.zeros(40)))


def test_a_list_of_one_has_its_column():
    listed, alone = trained(["auroc"]), trained("auroc")
    assert listed.history["auroc"] == listed.history["value"] == alone.history["value"]
    assert "auroc" not in alone.history.columns


def test_monitors_at_other_thresholds_per_label_have_columns():
    labels = torch.stack([Y, 1 - Y], 1)
    monitors = [Monitor("f1", threshold=thresholds) for thresholds in ([0.2, 0.5], [0.6, 0.7])]
    usual = {"validation": (X, labels), "epochs": 1, "progress": False}

    def run(monitor):
        torch.manual_seed(0)
        return fit(nn.Linear(3, 2), (X, labels), WeightedBCELoss(task="multilabel"), monitor=monitor, **usual).history

    assert run([monitors[0]])["f1 at thresholds per label"] == run(monitors[0])["value"]
    with pytest.raises(ValueError, match="names 'f1 at thresholds per label' twice"):
        run(monitors)
