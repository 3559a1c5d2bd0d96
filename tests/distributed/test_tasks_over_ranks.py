"""Two processes with unequal shards train as one on the whole batch: several classes, images, a Mix, memory, chunks."""

import pytest
import torch
from two_processes import RANKS, flat_gradient, found_by_ranks

from metricfit import MetricLoss, RunningCounts, steps
from metricfit.losses import LDAMLoss, LogitAdjustedLoss, LovaszLoss, Mix, MSFELoss, WeightedBCELoss
from metricfit.losses.accumulation import backward_in_chunks

ROUNDS, FEATURES, CLASSES, N = 3, 4, 3, 13
DECAY = 0.9

LOSSES = {
    "binary": lambda memory: MetricLoss("f1", memory=memory),
    "binary mix": lambda memory: Mix((WeightedBCELoss(sync=True), 1.0), (MetricLoss("f1", memory=memory), 0.5)),
    "binary msfe mix": lambda memory: Mix((MSFELoss(sync=True), 1.0), (MetricLoss("mcc", memory=memory), 0.5)),
    "multiclass": lambda memory: MetricLoss("f1", memory=memory),
    "multiclass kappa": lambda memory: MetricLoss("kappa", memory=memory, step=steps.Sigmoid(10)),
    "multiclass matrix": lambda memory: MetricLoss("weighted_kappa(power=2)", memory=memory),
    "multiclass costs": lambda memory: MetricLoss("cost_matrix([[0, 1, 4], [2, 0, 1], [9, 3, 0]])", memory=memory),
    "multiclass weighted": lambda memory: MetricLoss("jaccard", memory=memory, average="weighted"),
    "multiclass mix": lambda memory: Mix((MetricLoss("accuracy"), 1.0), (MetricLoss("f1", memory=memory), 0.5)),
    "multilabel": lambda memory: MetricLoss("f1", memory=memory, task="multilabel"),
    "multilabel mix": lambda memory: Mix(
        (WeightedBCELoss(sync=True), 1.0), (MetricLoss("f1", memory=memory, task="multilabel"), 0.5)
    ),
}


IMAGE_LOSSES = {
    "lovasz": lambda: LovaszLoss(ignore_index=-100),
    "lovasz per image": lambda: LovaszLoss(per_image=True, ignore_index=-100),
    "dice without background": lambda: MetricLoss(
        "dice", classes=[1, 2], per_image=True, zero_division="skip", ignore_index=-100
    ),
    "lovasz per image, images weighed": lambda: LovaszLoss(per_image=True, ignore_index=-100),
    "dice per image, images weighed": lambda: MetricLoss("dice", per_image=True, ignore_index=-100),
    "logit adjusted": lambda: LogitAdjustedLoss((50, 6, 3), sync=True),
    "ldam": lambda: LDAMLoss((50, 6, 3), scale=1.0, sync=True),
}


def data(name, at):
    """The last five samples, the second rank's, hold no positive, or the first class alone; some classes come later."""
    generator = torch.Generator().manual_seed(at)
    x = torch.randn(N, FEATURES, generator=generator, dtype=torch.float64)
    w = torch.rand(N, generator=generator, dtype=torch.float64) + 0.5
    y = torch.tensor([1, 0, 2, 1, 0, 2, 1, 0, 0, 0, 0, 0, 0])
    if at == 1:
        y = y.clamp(max=1)  # class 2 is absent from this round
    if name.startswith("binary"):
        y = (y == 1).long()
    elif name.startswith("multilabel"):
        y = torch.nn.functional.one_hot(y, CLASSES)
        y[8:] = 0
    return x, y, w


def shard(rank, name, at):
    part = slice(0, 8) if rank == 0 else slice(8, N)
    return tuple(given[part] for given in data(name, at))


def model(name):
    torch.manual_seed(0)
    return torch.nn.Linear(FEATURES, 1 if name.startswith("binary") else CLASSES).double()


def steps_of(name, memory, network, of_round, chunked):
    """Values and gradients round by round."""
    loss, seen = LOSSES[name](RunningCounts(DECAY) if memory else None), []
    for at in range(ROUNDS):
        x, y, w = of_round(at)
        network.zero_grad()
        if chunked:
            cut = len(x) // 2 + 1
            value = backward_in_chunks(network, loss, [(x[:cut], y[:cut], w[:cut]), (x[cut:], y[cut:], w[cut:])])
        else:
            value = loss(network(x), y, weight=w)
            value.backward()
        seen.append((value.item(), flat_gradient(network)))
    return seen


def images():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 2, 4, 4, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (5, 4, 4), generator=generator)


def convolution():
    torch.manual_seed(0)
    return torch.nn.Conv2d(2, CLASSES, 1).double()


def train_on_images(rank, cut, per_image):
    """The gradient of one step, or the error's text."""
    x, y = images()
    part = slice(0, cut) if rank == 0 else slice(cut, 2 * cut if per_image == "equal" else 5)
    network = torch.nn.parallel.DistributedDataParallel(convolution())
    try:
        MetricLoss("f1", per_image=bool(per_image))(network(x[part]), y[part]).backward()
    except (ValueError, TypeError) as refusal:
        return str(refusal)
    return flat_gradient(network)


def train_long_tail(name, network, part):
    """The value and the gradient of one step on images with ignored pixels and weights."""
    x, y = images()
    y[:, 0] = -100
    shape = y.shape[:1] if name.endswith("images weighed") else y.shape
    weight = torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    value = IMAGE_LOSSES[name]()(network(x[part]), y[part], weight[part])
    value.backward()
    return value.item(), flat_gradient(network)


def validate_alone(rank, name):
    """Only the first rank evaluates; were anything summed here it would wait for the other until the time limit."""
    if rank != 0:
        return None
    x, y, w = shard(0, name, 0)
    network, loss = model(name), LOSSES[name](RunningCounts(DECAY))
    evaluated = loss.eval()(network(x), y, weight=w).item()
    with torch.no_grad():
        without_gradients = loss.train()(network(x), y, weight=w).item()
    return evaluated, without_gradients


def work(rank):
    found = {}
    for name in LOSSES:
        for memory in (False, True):
            for chunked in (False, True):
                network = torch.nn.parallel.DistributedDataParallel(model(name))
                found[name, memory, chunked] = steps_of(
                    name, memory, network, lambda at, name=name: shard(rank, name, at), chunked
                )
        found[name, "alone"] = validate_alone(rank, name)
    part = slice(0, 3) if rank == 0 else slice(3, 5)
    for name in IMAGE_LOSSES:
        found[name] = train_long_tail(name, torch.nn.parallel.DistributedDataParallel(convolution()), part)
    found["images"] = train_on_images(rank, 3, None)
    found["per image"] = train_on_images(rank, 2, "equal")
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return found_by_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("chunked", [False, True], ids=["at once", "in chunks"])
@pytest.mark.parametrize("memory", [False, True], ids=["no memory", "running counts"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_that_of_the_whole_batch(ranks, name, memory, chunked):
    whole = steps_of(name, memory, model(name), lambda at: data(name, at), chunked=False)
    for of_rank in ranks:
        for (value, gradient), (expected_value, expected) in zip(of_rank[name, memory, chunked], whole, strict=True):
            assert value == pytest.approx(expected_value, rel=1e-12)
            torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-12)
            assert expected.abs().max() > 1e-4


@pytest.mark.filterwarnings(
    "ignore::metricfit.losses.gradient_watch.DeadGradientWarning"
)  # one class alone has no kappa
@pytest.mark.parametrize("name", LOSSES)
def test_separate_losses_of_the_shards_would_be_wrong(name):
    """So that the test above can fail."""
    parts = [steps_of(name, False, model(name), lambda at, r=r: shard(r, name, at), False)[0][1] for r in range(RANKS)]
    whole = steps_of(name, False, model(name), lambda at: data(name, at), False)[0][1]
    assert not torch.allclose(sum(parts) / RANKS, whole, rtol=0.02)


def test_the_first_round_of_several_classes_is_the_plain_twins(ranks):
    """One value from outside: macro F1 over the classes that have samples, written out."""
    x, y, w = data("multiclass", 1)
    network = model("multiclass")
    p = torch.softmax(network(x), 1)
    t = p.sort(1).values[:, -2:].mean(1, keepdim=True)
    a, b = t / 2, 1.5 * t
    h = torch.where(p <= a, 0.2 * p / a, torch.where(p <= b, 0.5 + 0.6 * (p - t) / t, 1 - 0.2 * (1 - p) / (1 - b)))
    h = h / h.sum(1, keepdim=True)
    hot, w = torch.nn.functional.one_hot(y, CLASSES), w.unsqueeze(1)
    tp, wrong = (w * hot * h).sum(0), (w * (hot * (1 - h) + (1 - hot) * h)).sum(0)
    loss = 1 - (2 * tp / (2 * tp + wrong))[:2].mean()
    loss.backward()
    for of_rank in ranks:
        value, gradient = of_rank["multiclass", False, False][1]
        assert value == pytest.approx(loss.item(), rel=1e-10)
        torch.testing.assert_close(gradient, flat_gradient(network), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_validation_on_one_rank_does_not_wait_for_the_other(ranks, name):
    x, y, w = shard(0, name, 0)
    with torch.no_grad():
        expected = LOSSES[name](None)(model(name)(x), y, weight=w).item()
    assert ranks[0][name, "alone"] == pytest.approx((expected,) * 2)
    assert ranks[1][name, "alone"] is None


def test_images_over_ranks(ranks):
    x, y = images()
    network = convolution()
    MetricLoss("f1")(network(x), y).backward()
    for of_rank in ranks:
        torch.testing.assert_close(of_rank["images"], flat_gradient(network), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", IMAGE_LOSSES)
def test_losses_of_images_over_ranks(ranks, name):
    expected_value, expected = train_long_tail(name, convolution(), slice(None))
    parts = [train_long_tail(name, convolution(), part) for part in (slice(0, 3), slice(3, 5))]
    assert not torch.allclose((parts[0][1] + parts[1][1]) / 2, expected, rtol=1e-3)  # so that this test can fail
    for of_rank in ranks:
        value, gradient = of_rank[name]
        assert value == pytest.approx(expected_value, rel=1e-12)
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-12)


def test_counts_per_image_are_not_added_over_ranks(ranks):
    """Image i of one rank has nothing to do with image i of the other: the mean over all images, or a refusal."""
    x, y = (given[:4] for given in images())
    network = convolution()
    MetricLoss("f1", per_image=True)(network(x), y).backward()
    for of_rank in ranks:
        if isinstance(of_rank["per image"], str):
            assert "per_image" in of_rank["per image"]
            continue
        torch.testing.assert_close(of_rank["per image"], flat_gradient(network), rtol=1e-6, atol=1e-12)
