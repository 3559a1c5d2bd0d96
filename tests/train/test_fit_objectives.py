"""fit and the state of objectives: multipliers, penalties, annealed steps, sample numbers and members."""

import itertools

import pytest
import torch
from small_fits import X32, Y32, data, trained
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import TensorDataset

from metricfit import AugmentedLagrangian, MetricLoss, steps
from metricfit.losses import WeightedBCELoss
from metricfit.models import PerMember, TabM
from metricfit.train.data.batches import Batches


def lagrangian():
    return AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.9"], mu=0.5, rho=2.0)


@pytest.mark.parametrize("monitor", ["f1", "loss"])
def test_mu_grows_where_the_requirements_are_broken_more_than_before(monitor):
    x, y = data()
    objective = AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.99"], mu=0.001, rho=2.0)
    result = trained(objective, lr=0.3, epochs=12, validation=(x[:60], y[:60]), monitor=monitor)
    violations = result.history["violation"]
    assert min(violations) > 0
    rises = sum(later > before for before, later in itertools.pairwise(violations))
    assert rises > 0
    assert float(result.objective.mu) == 0.001 * 2.0**rises


def test_mu_stays_once_an_epoch_has_met_the_requirements():
    x, y = data()
    result = trained(lagrangian(), lr=0.5, epochs=20, validation=(x[:60], y[:60]))
    violations = result.history["violation"]
    first = violations.index(0.0)
    assert max(violations[first:]) > 0, "later epochs break the requirement again"
    rises = sum(later > before for before, later in itertools.pairwise(violations[: first + 1]))
    assert float(result.objective.mu) == 0.5 * 2.0**rises


@pytest.mark.parametrize(("monitor", "sign"), [("f1", 1), ("loss", -1)])
def test_without_requirements_mu_grows_where_the_monitored_value_became_worse(monitor, sign):
    def small(logits, target):
        return logits.abs().mean() - 4.0

    x, y = data()
    objective = AugmentedLagrangian(WeightedBCELoss(), small, mu=0.5, rho=2.0)
    result = trained(objective, lr=0.5, epochs=20, validation=(x[:60], y[:60]), monitor=monitor)
    values = [sign * value for value in result.history["value"]]
    falls = sum(later < before for before, later in itertools.pairwise(values))
    assert falls > 0
    assert float(result.objective.mu) == 0.5 * 2.0**falls


def test_multipliers_move_once_an_epoch():
    class Counted(AugmentedLagrangian):
        updates: list[int] = []  # noqa: RUF012 (shared by the copies that fit makes)
        forwards: list[int] = []  # noqa: RUF012

        def forward(self, *args, **given):
            self.forwards.append(1)
            return super().forward(*args, **given)

        def update(self):
            self.updates.append(len(self.forwards))
            super().update()

    objective = Counted(WeightedBCELoss(), ["recall >= 0.9"])
    result = trained(objective, epochs=4)
    assert Counted.updates == [3, 6, 9, 12]
    assert float(result.objective.multipliers["recall >= 0.9"]) > 0
    assert objective.multipliers["recall >= 0.9"] is None, "the objective that was given is left as it was"


def test_annealed_steps_go_from_start_to_end():
    class Seen(MetricLoss):
        a: list[float] = []  # noqa: RUF012 (shared by the copies that fit makes)

        def forward(self, *args, **given):
            self.a.append(float(self.step.a))
            return super().forward(*args, **given)

    objective = Seen("f1", step=steps.Annealed(steps.Identity(), steps.Sigmoid(k=20)))
    trained(objective, epochs=5)
    assert Seen.a == pytest.approx([0.0] * 3 + [0.25] * 3 + [0.5] * 3 + [0.75] * 3 + [1.0] * 3)


def test_the_index_goes_to_objectives_that_take_it():
    class Indexed(nn.Module):
        seen: list[torch.Tensor] = []  # noqa: RUF012

        def forward(self, logits, target, index):
            self.seen.append(index)
            return binary_cross_entropy_with_logits(logits, target)

    x, y = data()
    trained(Indexed(), epochs=2, seed=4)
    expected = [item for epoch in range(2) for item in Batches(50).divide(y, 4, 0, epoch)]
    assert len(Indexed.seen) == len(expected)
    assert all(map(torch.equal, Indexed.seen, expected))
    Indexed.seen.clear()
    trained(Indexed(), TensorDataset(x, y), epochs=1, seed=4)
    assert all(map(torch.equal, Indexed.seen, expected[:3]))


def test_a_network_of_members_with_a_loss_for_each():
    torch.manual_seed(0)
    model = TabM(4, k=3, width=16, blocks=1)
    result = trained(
        PerMember(MetricLoss("f1"), members=3), (X32, Y32), model, validation=(X32, Y32), monitor="best f1"
    )
    assert result.best == pytest.approx(max(result.history["value"]))
