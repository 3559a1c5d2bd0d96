"""fit moves multipliers on the validation set where the objective asks for it."""

import pytest
import torch
from exactly import assert_same
from interrupted_runs import Interrupted, StopAt
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import AugmentedLagrangian, Counts, metrics
from metricfit.constraints import RequirementConstraint
from metricfit.losses import WeightedBCELoss
from metricfit.train import Checkpoints, Stage, fit
from metricfit.train.checkpoint.folder import RunFolder
from metricfit_papers.folds import fit_folds
from metricfit_papers.populations import fit_population

EPOCHS = 6
SETTINGS = {"epochs": EPOCHS, "batch_size": 300, "lr": 0.5, "optimizer": torch.optim.SGD, "progress": False}


def data(seed=0, n=300):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) < 0.3).long()
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64) + y[:, None]
    return x, y, torch.arange(n) % 2


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 1).double()


def named(x, y, group):
    return {"x": x, "y": y, "group": group}


def objective(**settings):
    everywhere = RequirementConstraint("recall >= 0.97", groups=2)
    return AugmentedLagrangian(WeightedBCELoss(), [everywhere, "fpr <= 0.05"], mu=0.5, update_on="held_out", **settings)


def run(model=None, loss=None, **settings):
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    settings = {**SETTINGS, "validation": named(held_x, held_y, held_group), **settings}
    return fit(model or network(), named(x, y, group), loss or objective(), **settings)


def test_multipliers_are_those_of_a_loop_by_hand():
    (x, y, group), (held_x, held_y, held_group) = data(), data(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = AugmentedLagrangian(
        WeightedBCELoss(), [RequirementConstraint("recall >= 0.97", groups=2), "fpr <= 0.05"], mu=0.5
    )
    floors, ceiling = torch.zeros(2, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss(model(x).squeeze(1), y, group=group).backward()
        optimizer.step()
        with torch.no_grad():
            logits = model(held_x).squeeze(1)
            recall = metrics.recall(Counts.hard(logits, held_y, group=held_group, groups=2))
            fpr = metrics.fpr(Counts.hard(logits, held_y))
            floors = (floors + 0.5 * (0.97 - recall)).clamp(min=0)
            ceiling = (ceiling + 0.5 * (fpr - 0.05)).clamp(min=0)
            for constraint, multiplier in zip(loss.constraints, (floors, ceiling), strict=True):
                constraint.multiplier.copy_(multiplier)
    result = run(start_at_prior=False)
    assert floors.min() > 0
    for found, expected in zip(result.objective.multipliers.values(), (floors, ceiling), strict=True):
        torch.testing.assert_close(found, expected)


def test_they_differ_from_those_of_the_training_rows():
    held_out, bounded = run(), run(loss=objective(lambda_max=5.0))
    assert_same(held_out.model.state_dict(), bounded.model.state_dict())  # no multiplier reaches that bound
    plain = AugmentedLagrangian(
        WeightedBCELoss(), [RequirementConstraint("recall >= 0.97", groups=2), "fpr <= 0.05"], mu=0.5
    )
    assert not torch.equal(run(loss=plain).model.weight, held_out.model.weight)


def test_members_of_a_population_are_what_they_are_alone():
    (x, y, group), (held_x, held_y, held_group) = data(), data(1)
    rows = {"validation": named(held_x, held_y, held_group)}
    several = fit_population(
        [network(0), network(1)], named(x, y, group), objective(), seeds=[5, 6], **SETTINGS, **rows
    )
    for seed, member in enumerate(several):
        alone = run(network(seed), seed=5 + seed)
        torch.testing.assert_close(dict(member.model.state_dict()), dict(alone.model.state_dict()))
        for name, multiplier in alone.objective.multipliers.items():
            assert multiplier.abs().sum() > 0
            torch.testing.assert_close(member.objective.multipliers[name], multiplier)


def test_folds_of_unequal_lengths_use_their_own_validation_rows():
    x, y, group = data(n=301)
    result = fit_folds(network, named(x, y, group), objective(), folds=3, **SETTINGS)
    multipliers = [member.objective.multipliers["fpr <= 0.05"] for member in result.members]
    assert len({float(multiplier) for multiplier in multipliers}) == 3


@pytest.mark.parametrize("step", [1, 7, 12])
def test_an_interrupted_run_continues_to_the_bit(tmp_path, step):
    settings = {"batch_size": 100, "optimizer": torch.optim.AdamW, "lr": 0.05}
    whole = run(loss=objective(), checkpoint_dir=Checkpoints(tmp_path / "whole", 2), **settings)
    settings |= {"checkpoint_dir": Checkpoints(tmp_path / "resumed", 2), "resume": True}
    with pytest.raises(Interrupted):
        run(loss=objective(), callbacks=[StopAt(step)], **settings)
    resumed = run(loss=objective(), **settings)
    assert_same(resumed.model.state_dict(), whole.model.state_dict())
    assert_same(resumed.history.rows, whole.history.rows)
    for name, multiplier in whole.objective.multipliers.items():
        assert torch.equal(resumed.objective.multipliers[name], multiplier)
    stored = RunFolder(tmp_path / "resumed").result()["members"][0]["objective"]
    assert torch.equal(stored["constraints.1.multiplier"], whole.objective.multipliers["fpr <= 0.05"])


def test_a_loader_and_a_second_stage():
    (x, y, _), (held_x, held_y, _) = data(), data(1)
    floor = AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.97", mu=0.5, update_on="held_out")
    stages = [Stage(WeightedBCELoss()), Stage(floor)]
    loader = DataLoader(TensorDataset(held_x, held_y), batch_size=77)
    found = fit(network(), (x, y), stages, validation=loader, **SETTINGS)
    expected = fit(network(), (x, y), stages, validation=(held_x, held_y), **SETTINGS)
    torch.testing.assert_close(dict(found.model.state_dict()), dict(expected.model.state_dict()))
    (multiplier,) = found.objective.multipliers.values()
    assert multiplier.item() > 0


def test_without_a_validation_set_it_is_refused():
    x, y, group = data()
    with pytest.raises(ValueError, match=r"moves the multipliers on the validation set: pass validation=\(X, y\)"):
        fit(network(), named(x, y, group), objective(), **SETTINGS)
