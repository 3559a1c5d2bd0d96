"""Two processes with unequal shards constrain their training as one process on the whole batch does."""

import pytest
import torch
from two_processes import flat_gradient, found_by_ranks

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint

ROUNDS, N, FEATURES = 4, 11, 4
CONSTRAINTS = {
    "requirement": lambda: ["recall >= 0.9", "fpr <= 0.05"],
    "positive": lambda: [RankingConstraint(size=2 * N)],
    "negative": lambda: [RankingConstraint(per="negative", size=2 * N, normalize=True)],
    "pair": lambda: [RankingConstraint(per="pair")],
    "equality": lambda: ["recall == 0.3"],
    "gap": lambda: ["recall.gap(2) <= 0.01"],  # the second shard has no positives
    "held out": lambda: ["recall >= 0.9", "recall.gap(2) <= 0.01"],
    "function": lambda: [lambda logits, target: logits[target == 1].mean() + 2.0],  # the second shard has no positives
}
every = pytest.mark.parametrize("name", CONSTRAINTS)


def data(at):
    """Eleven samples, the positives all among the first seven; each round has others."""
    generator = torch.Generator().manual_seed(at)
    x = torch.randn(N, FEATURES, generator=generator, dtype=torch.float64)
    y = torch.tensor([1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    return x, y, torch.randperm(2 * N, generator=generator)[:N]


def shard(rank, at):
    part = slice(0, 7) if rank == 0 else slice(7, N)
    return tuple(given[part] for given in data(at))


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(FEATURES, 1).double()


def train(network, name, batch_of):
    """Values, gradients and multipliers of some rounds."""
    rows = "held_out" if name == "held out" else "train"
    loss = AugmentedLagrangian(MetricLoss("precision"), CONSTRAINTS[name](), mu=0.7, update_on=rows).double()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    seen = []
    for at in range(ROUNDS):
        x, y, index = batch_of(at)
        optimizer.zero_grad()
        group = {"group": index % 2} if loss.accepts.group else {}
        value = loss(network(x), y, index=index, **group)
        value.backward()
        gradient = flat_gradient(network)
        optimizer.step()
        if rows == "held_out":  # each rank passes its own share of other rows
            x, y, index = batch_of(at + ROUNDS)
            loss.observe_held_out(network(x).detach(), y, group=index % 2, sync=True)
        loss.update()
        multipliers = [given.clone() for given in loss.multipliers.values() if given is not None]
        seen.append((value.detach(), gradient, multipliers))
    return seen


def validate_alone(rank):
    """Only the first rank evaluates; it must not wait for the other."""
    if rank:
        return None
    x, y, _ = data(0)
    loss = AugmentedLagrangian(MetricLoss("f1"), ["recall >= 0.9", RankingConstraint(size=N)]).eval()
    return loss(model()(x), y).item()


def work(rank):
    found = {
        name: train(torch.nn.parallel.DistributedDataParallel(model()), name, lambda at: shard(rank, at))
        for name in CONSTRAINTS
    }
    found["alone"] = validate_alone(rank)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return found_by_ranks(work, tmp_path_factory.mktemp("ranks"))


@every
def test_values_gradients_and_multipliers_are_those_of_the_whole_batch(ranks, name):
    expected = train(model(), name, data)
    assert name == "pair" or all(multiplier.any() for multiplier in expected[-1][2])
    for of_rank in ranks:
        for found, whole in zip(of_rank[name], expected, strict=True):
            torch.testing.assert_close(found, whole)


def test_validation_on_one_rank_does_not_wait_for_the_other(ranks):
    assert ranks[0]["alone"] > 0
    assert ranks[1]["alone"] is None
