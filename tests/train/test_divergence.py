"""Losses that are not finite stop a run, and gradients that have vanished are reported."""

import math

import pytest
import torch
from forty_samples import N, X, Y, loader, network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import AugmentedLagrangian, MetricLoss, losses, steps
from metricfit.losses import WeightedBCELoss
from metricfit.losses.gradient_watch import DeadGradientWarning
from metricfit.train import Checkpoints, NotFiniteError, fit
from metricfit_papers.populations import fit_population


class NanAt(nn.Module):
    """Emits NaN at the k-th training batch, and as often as ``then`` says at validation."""

    def __init__(self, at):
        super().__init__()
        self.layer, self.at, self.seen = nn.Linear(3, 1), at, 0

    def forward(self, x):
        self.seen += self.training
        return self.layer(x) * (math.nan if self.training and self.seen == self.at else 1.0)


OBJECTIVES = {
    "torchs_bce": nn.BCEWithLogitsLoss,
    "bce": WeightedBCELoss,
    "metric": lambda: MetricLoss("f1"),
    "mix": lambda: losses.Mix((nn.BCEWithLogitsLoss(), 1.0), (MetricLoss("f1"), 0.5)),
    "lagrangian": lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), "recall >= 0.9"),
    "unchecked": lambda: MetricLoss("f1", validate=False),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_nan_logits_stop_with_step_batch_and_likely_cause(objective):
    message = (
        r"the loss (is nan|could not be computed).*at step 6 \(stage 0, epoch 1, batch 1 of 4\).*Likely causes: a "
    )
    message += r"learning rate that is too high \(this stage: 0.001\).*lower lr, pass steps=Steps\(clip=1.0\)"
    with pytest.raises(NotFiniteError, match=message):
        fit(NanAt(6), (X, Y), objective(), batch_size=10, epochs=5, progress=False)


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_huge_learning_rate_stops_with_the_step(objective):
    def explode(parameters, lr):
        return torch.optim.SGD(parameters, lr=lr)

    loss = objective()
    if not isinstance(loss, AugmentedLagrangian):  # its objective is cross-entropy already
        loss = losses.Mix((loss, 1.0), (nn.BCEWithLogitsLoss(), 1.0))
    with pytest.raises(NotFiniteError, match=r"at step \d+ \(stage 0, epoch \d+, batch \d of 4\).*this stage: 1e\+38"):
        fit(network(), (X * 1e3, Y), loss, batch_size=10, epochs=5, lr=1e38, optimizer=explode, progress=False)


def test_a_member_whose_loss_is_nan_is_named():
    models = [network() for _ in range(3)]
    rates = [1e-3, 1e34, 1e-3]
    with pytest.raises(
        NotFiniteError, match=r"the loss of member 1 (is (nan|inf)|could not be computed).*\(this stage: 1e\+34\)"
    ):
        fit_population(
            models, (X * 1e3, Y), WeightedBCELoss(), lr=rates, optimizer=torch.optim.SGD, epochs=5, progress=False
        )


class NanInEval(nn.Linear):
    """NaN at validation alone."""

    def forward(self, x):
        return super().forward(x) * (1.0 if self.training else math.nan)


@pytest.mark.parametrize("monitor", ["f1", "best f1", "auroc"])
def test_nan_logits_at_validation_name_the_step(monitor):
    message = r"the validation loss could not be computed \(10 of 10 logits are NaN.*at step 4 "
    with pytest.raises(NotFiniteError, match=message):
        fit(
            NanInEval(3, 1),
            (X, Y),
            nn.BCEWithLogitsLoss(),
            validation=(X[:10], Y[:10]),
            monitor=monitor,
            batch_size=10,
            start_at_prior=False,
            progress=False,
        )


def test_a_network_whose_gradient_is_gone_is_reported():
    model = network()
    nn.init.zeros_(model.weight)
    nn.init.constant_(model.bias, -20.0)
    objective = MetricLoss("f1", step=steps.Sigmoid(k=73))
    settings = {"epochs": 1, "start_at_prior": False, "progress": False}
    with pytest.warns(DeadGradientWarning, match="the gradient has died"):
        fit(model, (X, Y), objective, **settings)


def test_a_learning_network_is_not_reported():
    fit(network(), (X, Y), MetricLoss("f1"), epochs=5, progress=False)  # warnings are errors here


def test_batches_without_positives_do_not_mean_that_the_gradient_has_died():
    generator = torch.Generator().manual_seed(0)
    y = (torch.arange(200) == 3).long()
    x = torch.randn(200, 3, generator=generator) + y[:, None]
    fit(network(), (x, y), MetricLoss("f1"), batch_size=10, epochs=8, progress=False)  # warnings are errors here


@pytest.mark.parametrize("kind", [math.nan, math.inf])
def test_a_validation_loss_that_is_not_finite_stops_the_run(kind):
    broken = X.clone()
    broken[5, 1] = kind
    held_out = DataLoader(TensorDataset(broken, Y), batch_size=8)
    message = r"the validation loss is (nan|inf|-inf) at step 1 \(stage 0, epoch 0.*NaN or infinity in the validation"
    with pytest.raises(NotFiniteError, match=message):
        fit(network(), (X, Y), nn.BCEWithLogitsLoss(), validation=held_out, epochs=3, patience=1, progress=False)


def test_the_batch_is_counted_from_the_epochs_start_in_a_resumed_run(tmp_path):
    """It was broken off after a checkpoint at step 3, and reads its loader from batch 3 on."""

    class Breaks(WeightedBCELoss):
        def forward(self, logits, target, weight=None):
            if breaks and self.training:
                seen.append(len(target))
                if len(seen) == 4:
                    raise KeyboardInterrupt
            return super().forward(logits, target, weight)

    seen, breaks = [], True
    train = loader(torch.where(torch.arange(N) == N - 1, 2, Y))
    settings = {"epochs": 2, "checkpoint_dir": Checkpoints(tmp_path / "run", 3), "progress": False}
    with pytest.raises(KeyboardInterrupt):
        fit(network(), train, Breaks(), **settings)
    breaks = False
    with pytest.raises(ValueError, match="train, batch 4 of 5: binary labels must be 0 or 1"):
        fit(network(), train, Breaks(), resume=True, **settings)
