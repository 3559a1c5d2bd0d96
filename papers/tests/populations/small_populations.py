"""Members of a small population, trained together and one by one."""

import copy

import pytest
import torch
from torch import nn

from metricfit import losses
from metricfit.train import fit
from metricfit_papers.populations import fit_population

N, MEMBERS = 300, 10


def data(n=N, dtype=torch.float64, classes=2):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    score = x[:, 0] + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64)
    y = (score > 1.0).long() if classes == 2 else (score > 0.8).long() + (score > -0.5).long()
    return x.to(dtype), y


def networks(count=MEMBERS, *, dtype=torch.float64, outputs=1, layers=()):
    def one(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 8), *copy.deepcopy(list(layers)), nn.ReLU(), nn.Linear(8, outputs)).to(dtype)

    return [one(seed) for seed in range(count)]


def splits_of(count=MEMBERS, n=N, unequal=True):
    """For each member another shuffle, and with ``unequal`` another number of training samples."""
    generator = torch.Generator().manual_seed(1)
    shuffles = [torch.randperm(n, generator=generator) for _ in range(count)]
    cuts = [200 + (3 * member % 7 if unequal else 0) for member in range(count)]
    return [(numbers[:cut], numbers[cut:]) for numbers, cut in zip(shuffles, cuts, strict=True)]


RATES = [1e-2 * (1 + member % 3) for member in range(MEMBERS)]


def together_and_alone(objective, *, count=MEMBERS, whole=None, splits=None, models=networks, lr=None, **settings):
    """The same models trained as a population and by ``fit`` one after the other."""
    whole = whole or data()
    splits = splits or splits_of(count)
    lr = lr or RATES[:count]
    seeds = [11 * member + 3 for member in range(count)]
    settings = {"batch_size": 64, "progress": False} | settings
    together = fit_population(models(count), whole, objective(), splits=splits, seeds=seeds, lr=lr, **settings)
    alone = [
        fit(
            model,
            tuple(part[train] for part in whole),
            objective(),
            validation=tuple(part[held_out] for part in whole),
            seed=seed,
            lr=rate,
            **settings,
        )
        for model, (train, held_out), seed, rate in zip(models(count), splits, seeds, lr, strict=True)
    ]
    return together, alone


def near(value, other, tolerance):
    return value == pytest.approx(other, abs=tolerance, rel=0, nan_ok=True)


def assert_same(together, alone, tolerance=1e-10):
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        # An objective's state holds sums over samples.
        for member, twin, rtol in ((one.model, other.model, 0), (one.objective, other.objective, tolerance)):
            theirs = twin.state_dict()
            assert member.state_dict().keys() == theirs.keys()
            for name, tensor in member.state_dict().items():
                torch.testing.assert_close(tensor, theirs[name], rtol=rtol, atol=tolerance, msg=lambda t, n=name: n + t)
        assert len(one.history) == len(other.history)
        for row, twin in zip(one.history, other.history, strict=True):
            assert row.keys() == twin.keys()
            for name, value in row.items():
                same = value == twin[name] if isinstance(value, str) else near(value, twin[name], tolerance)
                assert same, (name, value, twin[name])
        assert near(one.best, other.best, tolerance)
        assert near(one.threshold, other.threshold, tolerance)


BCE = losses.WeightedBCELoss
