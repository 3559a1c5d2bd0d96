"""Groups in fit: a requirement that is to hold in each of them."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from metricfit import AugmentedLagrangian, Counts, metrics
from metricfit.constraints import RequirementConstraint
from metricfit.losses import WeightedBCELoss
from metricfit.train import Monitor, fit, fit_folds, fit_population

SETTINGS = {"epochs": 3, "batch_size": 100, "lr": 0.05, "progress": False}


def data(seed=0, n=400):
    """Two groups, of which the second has its positives elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.arange(n) % 2
    y = (torch.rand(n, generator=generator) < 0.3).long()
    x = torch.randn(n, 3, generator=generator) + y[:, None] * torch.tensor([2.0, 0.0, 0.0])
    x[:, 0] -= 2.0 * group
    x[:, 2] = group
    return x, y, group


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 1)


def objective(bound=0.8, groups=2):
    return AugmentedLagrangian(WeightedBCELoss(), RequirementConstraint(f"recall >= {bound}", groups=groups), mu=1.0)


def recall_of_groups(model, x, y, group):
    with torch.no_grad():
        counts = Counts.hard(model(x).squeeze(1), y, group=group, groups=2)
    return metrics.recall(counts).squeeze(-1).tolist()


def test_a_requirement_per_group_is_trained_and_reported():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    settings = {**SETTINGS, "epochs": 40}
    result = fit(
        network(),
        (x, y),
        objective(),
        validation=(held_x, held_y),
        groups=group,
        validation_groups=held_group,
        **settings,
    )
    assert tuple(result.objective.multipliers["recall >= 0.8"].shape) == (2, 1)
    (outcome,) = result.requirements
    assert outcome.met
    recalls = recall_of_groups(result.model, held_x, held_y, held_group)
    assert min(recalls) == outcome.value >= 0.8


class Items(Dataset):
    def __init__(self, *parts, keys=("x", "y")):
        self.parts, self.keys = parts, keys

    def __len__(self):
        return len(self.parts[0])

    def __getitem__(self, index):
        return dict(zip(self.keys, (part[index] for part in self.parts), strict=True))


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_tensors_datasets_and_dictionaries_give_the_same():
    x, y, group = data()
    plain = fit(network(), (x, y), objective(), groups=group, **SETTINGS)
    dataset = fit(network(), Items(x, y), objective(), groups=group, **SETTINGS)
    named = fit(network(), Items(x, y, group, keys=("x", "y", "group")), objective(), **SETTINGS)
    for other in (dataset, named):
        torch.testing.assert_close(weights(other.model), weights(plain.model))
        assert other.requirements == plain.requirements


def test_a_loader_gives_dictionaries_with_groups():
    x, y, group = data()
    loader = DataLoader(Items(x, y, group, keys=("x", "y", "group")), batch_size=100)
    result = fit(network(), loader, objective(), **SETTINGS)
    (outcome,) = result.requirements
    assert outcome.value == min(recall_of_groups(result.model, x, y, group))


def test_members_of_a_population_are_what_they_are_alone():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    settings = {**SETTINGS, "groups": group, "validation": (held_x, held_y), "validation_groups": held_group}
    several = fit_population([network(0), network(1)], (x, y), objective(), seeds=[5, 6], **settings)
    for seed, member in enumerate(several):
        alone = fit(network(seed), (x, y), objective(), seed=5 + seed, **settings)
        torch.testing.assert_close(weights(member.model), weights(alone.model), rtol=1e-4, atol=1e-5)
        assert member.requirements == alone.requirements


def test_gaps_and_equalities_of_a_population_are_those_of_each_member_alone():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    settings = {**SETTINGS, "groups": group, "validation": (held_x, held_y), "validation_groups": held_group}
    requirements = ["recall.gap(2) <= 0.01", "selection_rate == 0.3"]
    loss = AugmentedLagrangian(WeightedBCELoss(), requirements, mu=1.0, lambda_max=0.2, update_on="held_out")
    several = fit_population([network(0), network(1)], (x, y), loss, seeds=[5, 6], **settings)
    for seed, member in enumerate(several):
        alone = fit(network(seed), (x, y), loss, seed=5 + seed, **settings)
        for name, multiplier in alone.objective.multipliers.items():
            torch.testing.assert_close(member.objective.multipliers[name], multiplier, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights(member.model), weights(alone.model), rtol=1e-4, atol=1e-5)


def test_folds_take_groups():
    x, y, group = data()
    result = fit_folds(network, (x, y), objective(), folds=2, groups=group, **SETTINGS)
    assert [len(member.requirements) for member in result.members] == [1, 1]


def test_a_stage_without_groups_comes_first():
    x, y, group = data()
    from metricfit.train import Stage

    stages = [Stage(WeightedBCELoss()), Stage(objective())]
    result = fit(network(), (x, y), stages, groups=group, **SETTINGS)
    assert len(result.requirements) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"requirement per group: pass groups=, one number per train sample"),
        ({"groups": torch.arange(400) % 3}, r"groups must be from 0 to 1, got numbers from 0 to 2"),
        ({"groups": torch.zeros(3, dtype=torch.long)}, r"one integer per sample, of shape \(400,\)"),
        ({"groups": torch.zeros(400)}, "one integer per sample"),
        ({"groups": torch.arange(400) % 2, "validation": data()[:2]}, r"pass validation_groups="),
    ],
)
def test_wrong_groups_are_refused_before_training(settings, message):
    x, y, _ = data()
    with pytest.raises(ValueError, match=message):
        fit(network(), (x, y), objective(), **SETTINGS, **settings)


def test_groups_that_nothing_uses_are_refused():
    x, y, group = data()
    with pytest.raises(ValueError, match="no objective uses them"):
        fit(network(), (x, y), WeightedBCELoss(), groups=group, **SETTINGS)


def test_named_groups_are_those_of_their_numbers():
    x, y, group = data()
    names = ["west", "east"]
    labels = [names[number] for number in group]
    named = AugmentedLagrangian(WeightedBCELoss(), RequirementConstraint("recall >= 0.8", groups=names), mu=1.0)
    by_number = fit(network(), (x, y), objective(), groups=group, **SETTINGS)
    by_name = fit(network(), (x, y), named, groups=labels, **SETTINGS)
    assert torch.equal(weights(by_name.model), weights(by_number.model))
    several = fit_population(
        [network(0), network(1)], (x, y), named, groups=labels, validation=(x, y), validation_groups=labels, **SETTINGS
    )
    assert len(several) == 2
    with pytest.raises(ValueError, match="groups are texts: pass integers, or name the groups"):
        fit(network(), (x, y), objective(), groups=labels, **SETTINGS)
    with pytest.raises(ValueError, match="not one of the groups"):
        fit(network(), (x, y), named, groups=["north", *labels[1:]], **SETTINGS)
    with pytest.raises(ValueError, match="list of their names, each once"):
        RequirementConstraint("recall >= 0.8", groups=["west", "west"])


def test_a_gap_is_trained_and_reported():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    gap = AugmentedLagrangian(WeightedBCELoss(), "recall.gap(2) <= 0.1", mu=2.0, update_on="held_out")
    settings = {**SETTINGS, "epochs": 60, "validation": (held_x, held_y)}
    result = fit(network(), (x, y), gap, groups=group, validation_groups=held_group, **settings)
    first, second = recall_of_groups(result.model, held_x, held_y, held_group)
    (outcome,) = result.requirements
    assert outcome.met
    assert outcome.value == pytest.approx(abs(first - second))
    plain = fit(network(), (x, y), WeightedBCELoss(), **settings)
    first, second = recall_of_groups(plain.model, held_x, held_y, held_group)
    assert abs(first - second) > 0.1


def test_a_monitor_refuses_gaps():
    with pytest.raises(ValueError, match="make the gap a constraint"):
        Monitor("f1", subject_to="recall.gap(2) <= 0.1")


def test_groups_can_be_named_by_integers():
    x, y, group = data()
    for names in ([2019, 2020], [1, 0]):
        labels = torch.tensor(names)[group]
        by_name = fit(network(), (x, y), objective(groups=names), groups=labels, **SETTINGS)
        by_number = fit(network(), (x, y), objective(), groups=group, **SETTINGS)
        key = "recall >= 0.8"
        assert torch.equal(by_name.objective.multipliers[key], by_number.objective.multipliers[key])
        assert torch.equal(weights(by_name.model), weights(by_number.model))
    with pytest.raises(ValueError, match="not one of the groups"):
        fit(network(), (x, y), objective(groups=[2019, 2020]), groups=group, **SETTINGS)
