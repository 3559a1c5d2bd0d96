"""Two processes with unequal shards, one of them without positives, train as one process on the whole batch does."""

from types import SimpleNamespace

import pytest
import torch
from two_processes import RANKS, flat_gradient, found_by_ranks

from metricfit import MetricLoss, RunningCounts, metrics, steps

DECAY, ROUNDS = 0.9, 3
METRICS = ["f1", "mcc", "fpr"]
FEATURES = 4


def data(at):
    """Eleven samples, the positives all among the first seven; each round has others."""
    generator = torch.Generator().manual_seed(at)
    x = torch.randn(11, FEATURES, generator=generator, dtype=torch.float64)
    y = torch.tensor([1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    w = torch.rand(11, generator=generator, dtype=torch.float64) + 0.5
    return x, y, w


def shard(rank, at):
    part = slice(0, 7) if rank == 0 else slice(7, 11)
    return tuple(given[part] for given in data(at))


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(FEATURES, 1).double()


def build(name, memory):
    return MetricLoss(name, step=steps.Sigmoid(k=10), memory=RunningCounts(DECAY) if memory else None)


def train(rank, name, memory):
    network, loss = torch.nn.parallel.DistributedDataParallel(model()), build(name, memory)
    seen = []
    for at in range(ROUNDS):
        x, y, w = shard(rank, at)
        network.zero_grad()
        value = loss(network(x), y, weight=w)
        value.backward()
        seen.append((value.item(), flat_gradient(network)))
    return seen


def validate_alone(rank):
    """Only the first rank evaluates; were the counts summed here, it would wait for the other until the time limit."""
    x, y, w = shard(rank, 0)
    network, loss = model(), build("f1", memory=False)
    if rank != 0:
        return None
    evaluated = loss.eval()(network(x), y, weight=w).item()
    with torch.no_grad():
        without_gradients = loss.train()(network(x), y, weight=w).item()
    local = MetricLoss("f1", step=steps.Sigmoid(k=10), sync=False)(network(x), y, weight=w).item()
    return evaluated, without_gradients, local


def work(rank):
    found = {(name, memory): train(rank, name, memory) for name in METRICS for memory in (False, True)}
    found["alone"] = validate_alone(rank)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return found_by_ranks(work, tmp_path_factory.mktemp("ranks"))


def in_one_process(name, memory, naive):
    """The whole batch at once, with the twin's counts and formula and the decayed sum written out."""
    metric, network, remembered = metrics.get_metric(name), model(), 0.0
    seen = []
    for at in range(ROUNDS):
        x, y, w = data(at)
        network.zero_grad()
        counts = naive.counts(network(x).squeeze(1), y.double(), w, steps.Sigmoid(k=10), 0.5)
        total = DECAY * remembered + counts if memory else counts
        remembered = total.detach()
        value = naive.metric(metric, *total)
        value = value if metric.minimize else 1 - value
        value.backward()
        seen.append(SimpleNamespace(value=value.item(), gradient=flat_gradient(network)))
    return seen


@pytest.mark.parametrize("memory", [False, True], ids=["no memory", "running counts"])
@pytest.mark.parametrize("name", METRICS)
def test_averaged_gradient_is_that_of_the_whole_batch(ranks, naive, name, memory):
    expected = in_one_process(name, memory, naive)
    for of_rank in ranks:
        for (value, gradient), whole in zip(of_rank[name, memory], expected, strict=True):
            assert value == pytest.approx(whole.value, rel=1e-12)
            torch.testing.assert_close(gradient, whole.gradient, rtol=1e-6, atol=1e-12)


def test_averaged_losses_of_the_shards_would_be_wrong(naive):
    network, parts = model(), []
    for rank in range(RANKS):
        x, y, w = shard(rank, 0)
        network.zero_grad()
        build("f1", memory=False).eval()(network(x), y, weight=w).backward()
        parts.append(flat_gradient(network))
    whole = in_one_process("f1", False, naive)[0].gradient
    assert not torch.allclose(sum(parts) / RANKS, whole, rtol=0.05)


def test_validation_on_one_rank_does_not_wait_for_the_other(ranks, naive):
    x, y, w = shard(0, 0)
    with torch.no_grad():
        logits = model()(x).squeeze(1)
    expected = naive.loss("f1", logits, y.double(), w, steps.Sigmoid(k=10)).item()
    assert ranks[0]["alone"] == pytest.approx((expected,) * 3)
    assert ranks[1]["alone"] is None
