"""Steps of one model: they are captured where that is possible, this is said, and the weights are the same."""

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.steps import Annealed, Linear, Sigmoid
from metricfit.train import Stage, Steps
from metricfit_papers.graphs import CapturedLearner
from metricfit_papers.populations import fit_population

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(1000, 6, generator=DRAWN)
Y = (X[:, 0] + torch.randn(1000, generator=DRAWN) > 1).long()
IMAGES = torch.randn(256, 3, 16, 16, generator=DRAWN)
BRIGHT = (IMAGES.mean((1, 2, 3)) > 0).long()


def network(norm=False, dropout=0.0):
    torch.manual_seed(0)
    norms = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(6, 16, bias=not norm), *norms, nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1))


def trained(loss, graphs=None, model=None, data=(X, Y), **settings):
    settings = {"epochs": 8, "batch_size": 128, "lr": 1e-2, "device": "cuda", "progress": False} | settings
    learner = {} if graphs is False else {"make_learner": CapturedLearner}
    return fit_population([model or network()], data, loss, **learner, **settings)[0]


def assert_same_weights(one, other):
    theirs = other.model.state_dict()
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4, msg=lambda text, name=name: name + text)


LOSSES = {
    "torchs_bce": nn.BCEWithLogitsLoss,
    "bce": WeightedBCELoss,
    "f1": lambda: MetricLoss("f1"),
    "memory": lambda: MetricLoss("f1", memory=RunningCounts()),
    "annealed": lambda: MetricLoss("f1", step=Annealed(Sigmoid(2), Linear(0.2))),
    "mix": lambda: Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5)),
    "requirement": lambda: AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.9"]),
    "ranking": lambda: AugmentedLagrangian(WeightedBCELoss(), RankingConstraint(1.0, size=1000)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_captured_steps_give_the_same_weights_for_every_loss(name):
    captured, plain = trained(LOSSES[name]()), trained(LOSSES[name](), False)
    assert captured.history["cuda_graphs"] == ["captured"] * 8
    assert "cuda_graphs" not in plain.history.columns
    assert_same_weights(captured, plain)
    assert captured.history["train_loss"] == pytest.approx(plain.history["train_loss"], rel=1e-3)


SETTINGS = {
    "sgd": {"optimizer": lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=0.9)},
    "adam": {"optimizer": torch.optim.Adam},
    "scheduler": {"scheduler": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)},
    "plateau": {
        "scheduler": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
        "validation": (X, Y),
    },
    "clip": {"steps": Steps(clip=0.1)},
    "uneven_batches": {"batch_size": 300},
    "weights": {"class_weight": "balanced"},
    "validation": {"validation": (X, Y), "monitor": "f1", "patience": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_captured_steps_give_the_same_weights_for_every_setting(name):
    settings = {"epochs": 20} | SETTINGS[name]
    captured, plain = (trained(WeightedBCELoss(), graphs, **settings) for graphs in (None, False))
    assert set(captured.history["cuda_graphs"]) == {"captured"}
    assert_same_weights(captured, plain)


def test_norms_convolutions_and_stages_can_be_captured(monkeypatch):
    # Otherwise cuDNN may choose other kernels for the capture, whose last bits grow over 16 epochs.
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    def convolutions():
        torch.manual_seed(0)
        head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
        return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), *head)

    def stages():
        return [Stage(WeightedBCELoss(), epochs=8, lr=1e-2), Stage(MetricLoss("f1"), epochs=8, lr=1e-3)]

    for model, data in ((lambda: network(norm=True), (X, Y)), (convolutions, (IMAGES, BRIGHT))):
        settings = {"data": data, "batch_size": 32}
        captured, plain = (trained(stages(), graphs, model(), **settings) for graphs in (None, False))
        assert set(captured.history["cuda_graphs"]) == {"captured"}
        assert_same_weights(captured, plain)


class Synchronises(nn.Module):
    def forward(self, logits, target):
        scale = 2.0 if logits.max().item() > 0 else 1.0
        return scale * nn.functional.binary_cross_entropy_with_logits(logits, target)


class CountsInPython(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, logits, target):
        self.steps += self.training
        return nn.functional.binary_cross_entropy_with_logits(logits, target) / self.steps


class ReplacesItsBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, logits, target):
        self.mean = 0.9 * self.mean + 0.1 * logits.detach().mean()
        return nn.functional.binary_cross_entropy_with_logits(logits - self.mean, target)


OBSTACLES = {
    "synchronises": (Synchronises, {}, "synchronizing"),
    "counts_in_python": (CountsInPython, {}, "values in Python"),
    "replaces_a_buffer": (ReplacesItsBuffer, {}, "values in Python"),
    "few_steps": (WeightedBCELoss, {"epochs": 2}, "fewer than 50 steps"),
    "rates": (
        WeightedBCELoss,
        {"scheduler": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=64)},
        "learning rate",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_cannot_be_captured_runs_directly_and_says_why(name):
    loss, settings, reason = OBSTACLES[name]
    model = network(dropout=0.2)  # random numbers must go on after the trial run as if there had been none
    tried = trained(loss(), None, model, **settings)
    plain = trained(loss(), False, network(dropout=0.2), **settings)
    assert all(reason in note for note in tried.history["cuda_graphs"][1:]), tried.history["cuda_graphs"]
    assert_same_weights(tried, plain)


def test_training_goes_on_after_a_capture_that_fails(monkeypatch):
    """Random numbers too, although the generator took part in the capture."""
    from metricfit_papers import graphs

    monkeypatch.setattr(graphs, "find_obstacle", lambda *_: None)
    result = trained(Synchronises())
    assert result.history["cuda_graphs"][-1] != "captured"
    assert_same_weights(result, trained(Synchronises(), False))
    random = trained(Synchronises(), None, network(dropout=0.2))
    assert random.history["cuda_graphs"][-1] != "captured"
    monkeypatch.undo()
    assert trained(WeightedBCELoss(), None, network(dropout=0.2)).history["cuda_graphs"][-1] == "captured"


def test_dropout_differs_from_step_to_step():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, x):
            return self.layer(x) * 0 + torch.rand_like(x[:, :1])

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("noise", torch.zeros(64))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, logits, target):
            self.noise.index_add_(0, self.at, logits.detach()[:1])
            self.at.add_(1)
            return logits.mean()

    result = trained(Kept(), None, Noisy(), epochs=64, batch_size=1000)
    assert result.history["cuda_graphs"][-1] == "captured"
    assert len(result.objective.noise.unique()) == 64


@pytest.mark.parametrize("constrained", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, constrained):
    from metricfit.train import Callback

    class Stop(Callback):
        def epoch_ended(self, rows):
            if rows[0]["epoch"] == 4:
                raise KeyboardInterrupt

    def loss():
        return AugmentedLagrangian(MetricLoss("f1"), ["recall >= 0.99"]) if constrained else MetricLoss("f1")

    whole = trained(loss())
    with pytest.raises(KeyboardInterrupt):
        trained(loss(), checkpoint_dir=tmp_path, callbacks=[Stop()])
    resumed = trained(loss(), checkpoint_dir=tmp_path, resume=True)
    assert_same_weights(resumed, whole)
    if constrained:
        (given,), (expected,) = (result.objective.multipliers.values() for result in (resumed, whole))
        torch.testing.assert_close(given, expected, rtol=0.05, atol=0.0)
        assert given > 0


def test_the_average_of_the_weights_follows_captured_steps():
    settings = {"steps": Steps(ema=0.95), "validation": (X[:200], Y[:200]), "monitor": ["best f1", "auroc", "loss"]}
    captured, plain = (trained(WeightedBCELoss(), graphs, network(norm=True), **settings) for graphs in (None, False))
    assert captured.history["cuda_graphs"] == ["captured"] * 8
    assert_same_weights(captured, plain)
    assert captured.history["loss"] == pytest.approx(plain.history["loss"], rel=1e-3)
    usual = trained(WeightedBCELoss(), None, network(norm=True), **settings | {"steps": Steps(ema=None)})
    assert usual.history["train_loss"] == pytest.approx(captured.history["train_loss"], rel=1e-3)
    assert usual.history["loss"] != pytest.approx(captured.history["loss"], rel=1e-3)
