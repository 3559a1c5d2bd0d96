"""Two processes with unequal shards train as one does on the whole batch: losses over pairs, of class means, games."""

import pytest
import torch
from two_processes import found_by_ranks

from metricfit.core.distributed import gather_over_ranks
from metricfit.losses import (
    AveragePrecisionLoss,
    ClassBalanced,
    EffectiveNumberBCELoss,
    FocalLoss,
    LovaszLoss,
    MAELoss,
    MarginLoss,
    MBAUCLoss,
    MSFELoss,
    PairHingeLoss,
    PairSquareLoss,
    SoftAUROCLoss,
    SurrogateFBetaLoss,
    WeightedBCELoss,
    WMWLoss,
)
from metricfit.losses.ranking import PartialAUCLoss
from metricfit_papers import AdversarialLoss

FEATURES = 4
#: What a rank holds: its number of samples, and none at all in the last.
SHARDS = {"uneven": (7, 4), "one empty": (11, 0)}
#: Losses that are no means over samples take the whole batch by default.
BY_DEFAULT = (
    AveragePrecisionLoss,
    LovaszLoss,
    MBAUCLoss,
    PairHingeLoss,
    PairSquareLoss,
    PartialAUCLoss,
    SoftAUROCLoss,
    WMWLoss,
    MSFELoss,
)
#: Means over samples do so with sync=True.
WITH_SYNC = {
    "WeightedBCELoss": lambda sync: WeightedBCELoss(2.0, sync=sync),
    "EffectiveNumberBCELoss": lambda sync: EffectiveNumberBCELoss(0.9, (9, 1), sync=sync),
    "FocalLoss": lambda sync: FocalLoss(2.0, sync=sync),
    "MarginLoss": lambda sync: MarginLoss(0.5, sync=sync),
    "MAELoss": lambda sync: MAELoss(sync=sync),
    "SurrogateFBetaLoss": lambda sync: SurrogateFBetaLoss(prior=0.2, sync=sync),
    "ClassBalanced": lambda sync: ClassBalanced(MAELoss(sync=sync), prior=0.2),
}
LOSSES = (
    {each.__name__: each for each in BY_DEFAULT}
    | {name: lambda make=make: make(True) for name, make in WITH_SYNC.items()}
    | {"AdversarialLoss": lambda: AdversarialLoss("f1", tol=1e-8)}
)


def data():
    """Eleven samples, the positives all among the first seven."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(11, FEATURES, generator=generator, dtype=torch.float64)
    return x, torch.tensor([1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0]), torch.rand(11, generator=generator, dtype=torch.float64)


def shard(rank, sizes):
    start = sum(sizes[:rank])
    return tuple(given[start : start + sizes[rank]] for given in data())


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(FEATURES, 1).double()


def pair_loss(score, target, weight):
    """Not a function of sums over samples: every positive with every negative."""
    gaps = torch.relu(1 - (score[:, None] - score[None, :])) ** 2
    pairs = (weight * target)[:, None] * (weight * (1 - target))[None, :]
    return (gaps * pairs).sum() / pairs.sum()


def train(rank, sizes):
    network = torch.nn.parallel.DistributedDataParallel(model())
    x, y, w = shard(rank, sizes)
    score = gather_over_ranks(network(x).squeeze(1))
    value = pair_loss(score, gather_over_ranks(y), gather_over_ranks(w))
    value.backward()
    return value.item(), network.module.weight.grad


def weight_for(name, w):
    return None if name == "AdversarialLoss" else w


def train_loss(rank, sizes, name):
    network = torch.nn.parallel.DistributedDataParallel(model())
    x, y, w = shard(rank, sizes)
    value = LOSSES[name]()(network(x), y, weight=weight_for(name, w))
    value.backward()
    return value.item(), network.module.weight.grad


def train_mean(rank, name):
    """A mean as torch's losses are, of ranks with as many samples each."""
    network = torch.nn.parallel.DistributedDataParallel(model())
    x, y, _ = (given[5 * rank : 5 * rank + 5] for given in data())
    WITH_SYNC[name](False)(network(x), y).backward()
    return network.module.weight.grad


def evaluate_alone(rank):
    """Only the first rank evaluates; were the samples gathered, it would wait for the other until the time limit."""
    x, y, w = shard(rank, SHARDS["uneven"])
    return PairHingeLoss().eval()(model()(x), y, weight=w).item() if rank == 0 else None


def gathered(rank):
    """What is joined along other axes, and of types without a gradient."""
    columns = torch.arange(3.0).reshape(3, 1).expand(3, rank + 1) + 10 * rank
    odd = torch.tensor([float("inf"), -float("inf")]) if rank == 0 else torch.tensor([1.0])
    return {
        "columns": gather_over_ranks(columns, dim=-1),
        "bool": gather_over_ranks(torch.tensor([True, False]) if rank else torch.tensor([False])),
        "half": gather_over_ranks(torch.full((1,), 0.5 + rank, dtype=torch.bfloat16)),
        "infinite": gather_over_ranks(odd.requires_grad_()).detach(),
    }


def disagree(rank):
    try:
        gather_over_ranks(torch.zeros(2, 3 + rank))
    except ValueError as error:
        return str(error)


def work(rank):
    found = {name: train(rank, sizes) for name, sizes in SHARDS.items()}
    found |= {(name, of): train_loss(rank, sizes, of) for name, sizes in SHARDS.items() for of in LOSSES}
    found |= {("mean", name): train_mean(rank, name) for name in WITH_SYNC}
    found |= {"alone": evaluate_alone(rank), "gathered": gathered(rank), "disagree": disagree(rank)}
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return found_by_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SHARDS)
def test_averaged_gradient_is_that_of_the_whole_batch(ranks, name):
    network, (x, y, w) = model(), data()
    expected = pair_loss(network(x).squeeze(1), y, w)
    expected.backward()
    for of_rank in ranks:
        value, gradient = of_rank[name]
        assert value == pytest.approx(expected.item(), rel=1e-12)
        torch.testing.assert_close(gradient, network.weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("of", LOSSES)
@pytest.mark.parametrize("name", SHARDS)
def test_losses_train_as_on_the_whole_batch(ranks, name, of):
    network, (x, y, w) = model(), data()
    expected = LOSSES[of]()(network(x), y, weight=weight_for(of, w))
    expected.backward()
    for of_rank in ranks:
        value, gradient = of_rank[name, of]
        assert value == pytest.approx(expected.item(), rel=1e-12)
        torch.testing.assert_close(gradient, network.weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("of", WITH_SYNC)
def test_means_over_equal_numbers_of_samples_need_no_sync(ranks, of):
    network, (x, y, _) = model(), data()
    WITH_SYNC[of](False)(network(x[:10]), y[:10]).backward()
    for of_rank in ranks:
        torch.testing.assert_close(of_rank["mean", of], network.weight.grad, rtol=1e-9, atol=1e-12)


def test_evaluation_on_one_rank_does_not_wait_for_the_other(ranks):
    x, y, w = shard(0, SHARDS["uneven"])
    assert ranks[0]["alone"] == pytest.approx(PairHingeLoss()(model()(x), y, weight=w).item())


def test_parts_are_joined_in_the_order_of_the_ranks(ranks):
    for of_rank in ranks:
        found = of_rank["gathered"]
        assert found["columns"].tolist() == [[0, 10, 10], [1, 11, 11], [2, 12, 12]]
        assert found["bool"].tolist() == [False, True, False]
        assert found["half"].tolist() == [0.5, 1.5]
        assert found["half"].dtype == torch.bfloat16
        assert found["infinite"].tolist() == [float("inf"), -float("inf"), 1.0]


def test_shapes_that_cannot_be_joined_are_refused_on_every_rank(ranks):
    for of_rank in ranks:
        assert of_rank["disagree"].endswith("must agree along the others, got (2, 3), (2, 4)")


def test_one_process_gathers_nothing():
    given = torch.randn(3, requires_grad=True)
    assert gather_over_ranks(given) is given
