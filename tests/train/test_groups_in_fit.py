"""Groups in fit: a requirement that is to hold in each of them."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from metricfit import AugmentedLagrangian, Counts, metrics
from metricfit.constraints import RequirementConstraint
from metricfit.losses import WeightedBCELoss
from metricfit.train import Monitor, Stage, fit
from metricfit_papers.folds import fit_folds
from metricfit_papers.populations import fit_population

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


def named(x, y, group):
    return {"x": x, "y": y, "group": group}


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
        named(x, y, group),
        objective(),
        validation=named(held_x, held_y, held_group),
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
    plain = fit(network(), named(x, y, group), objective(), **SETTINGS)
    dataset = fit(network(), Items(x, y, group, keys=("x", "y", "group")), objective(), **SETTINGS)
    torch.testing.assert_close(weights(dataset.model), weights(plain.model))
    assert dataset.requirements == plain.requirements


def test_a_loader_gives_dictionaries_with_groups():
    x, y, group = data()
    loader = DataLoader(Items(x, y, group, keys=("x", "y", "group")), batch_size=100)
    result = fit(network(), loader, objective(), **SETTINGS)
    (outcome,) = result.requirements
    assert outcome.value == min(recall_of_groups(result.model, x, y, group))


def test_members_of_a_population_are_what_they_are_alone():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    settings = {**SETTINGS, "validation": named(held_x, held_y, held_group)}
    several = fit_population([network(0), network(1)], named(x, y, group), objective(), seeds=[5, 6], **settings)
    for seed, member in enumerate(several):
        alone = fit(network(seed), named(x, y, group), objective(), seed=5 + seed, **settings)
        torch.testing.assert_close(weights(member.model), weights(alone.model), rtol=1e-4, atol=1e-5)
        assert member.requirements == alone.requirements


def test_gaps_and_equalities_of_a_population_are_those_of_each_member_alone():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    settings = {**SETTINGS, "validation": named(held_x, held_y, held_group)}
    requirements = ["recall.gap(2) <= 0.01", "selection_rate == 0.3"]
    loss = AugmentedLagrangian(WeightedBCELoss(), requirements, mu=1.0, lambda_max=0.2, update_on="held_out")
    several = fit_population([network(0), network(1)], named(x, y, group), loss, seeds=[5, 6], **settings)
    for seed, member in enumerate(several):
        alone = fit(network(seed), named(x, y, group), loss, seed=5 + seed, **settings)
        for name, multiplier in alone.objective.multipliers.items():
            torch.testing.assert_close(member.objective.multipliers[name], multiplier, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights(member.model), weights(alone.model), rtol=1e-4, atol=1e-5)


def test_folds_take_groups():
    x, y, group = data()
    result = fit_folds(network, named(x, y, group), objective(), folds=2, **SETTINGS)
    assert [len(member.requirements) for member in result.members] == [1, 1]


def test_a_stage_without_groups_comes_first():
    x, y, group = data()
    from metricfit.train import Stage

    stages = [Stage(WeightedBCELoss()), Stage(objective())]
    result = fit(network(), named(x, y, group), stages, **SETTINGS)
    assert len(result.requirements) == 1


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (None, r"requirement per group: pass train as"),
        (torch.arange(400) % 3, r"train's groups has 2, which is not one of the groups \[0, 1\]"),
        (-(torch.arange(400) % 2), r"train's groups has -1, which is not one of the groups"),
        (torch.zeros(3, dtype=torch.long), r"train's groups needs one label per row, 400; got 3"),
        (torch.full((400,), 0.5), "must be integers or texts"),
    ],
)
def test_wrong_groups_are_refused_before_training(group, message):
    x, y, _ = data()
    with pytest.raises((ValueError, TypeError), match=message):
        fit(network(), named(x, y, group), objective(), **SETTINGS)


def test_validation_samples_need_groups_too():
    with pytest.raises(ValueError, match="pass validation as"):
        fit(network(), named(*data()), objective(), validation=data()[:2], **SETTINGS)


def test_groups_that_nothing_uses_are_refused():
    x, y, group = data()
    with pytest.raises(ValueError, match="not used by any objective"):
        fit(network(), named(x, y, group), WeightedBCELoss(), **SETTINGS)


def test_named_groups_are_those_of_their_numbers():
    x, y, group = data()
    names = ["west", "east"]
    labels = [names[number] for number in group]
    by_names = AugmentedLagrangian(WeightedBCELoss(), RequirementConstraint("recall >= 0.8", groups=names), mu=1.0)
    by_number = fit(network(), named(x, y, group), objective(), **SETTINGS)
    by_name = fit(network(), named(x, y, labels), by_names, **SETTINGS)
    assert torch.equal(weights(by_name.model), weights(by_number.model))
    several = fit_population(
        [network(0), network(1)], named(x, y, labels), by_names, validation=named(x, y, labels), **SETTINGS
    )
    assert len(several) == 2
    with pytest.raises(ValueError, match="groups are texts: pass integers, or name the groups"):
        fit(network(), named(x, y, labels), objective(), **SETTINGS)
    with pytest.raises(ValueError, match="not one of the groups"):
        fit(network(), named(x, y, ["north", *labels[1:]]), by_names, **SETTINGS)
    with pytest.raises(ValueError, match="list of their names, each once"):
        RequirementConstraint("recall >= 0.8", groups=["west", "west"])


def test_a_gap_is_trained_and_reported():
    x, y, group = data()
    held_x, held_y, held_group = data(1)
    gap = AugmentedLagrangian(WeightedBCELoss(), "recall.gap(2) <= 0.1", mu=2.0, update_on="held_out")
    settings = {**SETTINGS, "epochs": 60, "validation": named(held_x, held_y, held_group)}
    result = fit(network(), named(x, y, group), gap, **settings)
    first, second = recall_of_groups(result.model, held_x, held_y, held_group)
    (outcome,) = result.requirements
    assert outcome.met
    assert outcome.value == pytest.approx(abs(first - second))
    plain = fit(network(), (x, y), WeightedBCELoss(), **settings | {"validation": (held_x, held_y)})
    first, second = recall_of_groups(plain.model, held_x, held_y, held_group)
    assert abs(first - second) > 0.1


def test_a_monitor_refuses_gaps():
    with pytest.raises(ValueError, match="make the gap a constraint"):
        Monitor("f1", subject_to="recall.gap(2) <= 0.1")
    with pytest.raises(ValueError, match="make the gap a constraint"):
        Stage(WeightedBCELoss(), monitor="recall.gap(2)").monitors  # noqa: B018


def test_groups_can_be_named_by_integers():
    x, y, group = data()
    for names in ([2019, 2020], [1, 0]):
        labels = torch.tensor(names)[group]
        by_name = fit(network(), named(x, y, labels), objective(groups=names), **SETTINGS)
        by_number = fit(network(), named(x, y, group), objective(), **SETTINGS)
        key = "recall >= 0.8"
        assert torch.equal(by_name.objective.multipliers[key], by_number.objective.multipliers[key])
        assert torch.equal(weights(by_name.model), weights(by_number.model))
    with pytest.raises(ValueError, match="not one of the groups"):
        fit(network(), named(x, y, group), objective(groups=[2019, 2020]), **SETTINGS)
