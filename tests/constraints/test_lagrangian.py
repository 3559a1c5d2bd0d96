"""AugmentedLagrangian: its sum, its schedule, its state."""

import copy
import io
import math

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses, metrics
from metricfit.constraints import RequirementConstraint, augmented_term

N = 60


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + torch.randn(N, generator=generator, dtype=torch.float64) > 0.8).double()


def small(logits, target):
    return logits.abs().mean() - 1


def build():
    objective = losses.Mix((losses.WeightedBCELoss(), 1.0), (MetricLoss("precision", memory=RunningCounts()), 0.5))
    constraints = ["recall >= 0.95", metrics.fpr <= 0.1, RankingConstraint(size=N, normalize=True), small]
    return AugmentedLagrangian(objective, constraints, mu=0.4)


def train(model, loss, optimizer, epochs, start=0):
    x, y = data()
    for epoch in range(start, start + epochs):
        order = torch.randperm(N, generator=torch.Generator().manual_seed(epoch))
        for index in order.split(16):
            optimizer.zero_grad()
            loss(model(x[index]), y[index], index=index).backward()
            optimizer.step()
            loss.update()
        loss.observe(math.sin(epoch))


def started():
    torch.manual_seed(0)
    model = nn.Linear(3, 1).double()
    return model, build(), torch.optim.Adam(model.parameters(), lr=0.02)


def state(model, loss, optimizer):
    return {"model": model.state_dict(), "loss": loss.state_dict(), "optimizer": optimizer.state_dict()}


def same(a, b):
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


@pytest.mark.parametrize("way", ["deepcopy", "save and load", "load over another's state"])
def test_a_saved_and_loaded_run_continues_bit_for_bit(way):
    whole, broken = started(), started()
    train(*whole, epochs=4)
    train(*broken, epochs=2)
    if way == "deepcopy":
        model, loss = copy.deepcopy(broken[0]), copy.deepcopy(broken[1])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        optimizer.load_state_dict(broken[2].state_dict())
    else:
        file = io.BytesIO()
        torch.save(state(*broken), file)
        file.seek(0)
        model, loss, optimizer = started()
        if way == "load over another's state":
            train(model, loss, optimizer, epochs=1, start=7)
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        loss.load_state_dict(saved["loss"])
        optimizer.load_state_dict(saved["optimizer"])
    train(model, loss, optimizer, epochs=2, start=2)
    same(model.state_dict(), whole[0].state_dict())
    same(loss.state_dict(), whole[1].state_dict())
    assert all(multiplier.any() for multiplier in list(loss.multipliers.values())[::2])


def test_counts_since_the_last_update_are_part_of_the_state():
    x, y = data()
    first, second = build(), build()
    first(x[:, 0], y)
    second.load_state_dict(first.state_dict())
    for loss in (first, second):
        loss.update()
    same(first.state_dict(), second.state_dict())


def test_to_moves_all_buffers_and_half_keeps_sums_in_float32():
    x, y = data()
    loss = build()
    loss(x[:, 0], y)
    loss.update()
    on_meta = copy.deepcopy(loss).to("meta")
    assert {name for name, given in on_meta.state_dict().items() if given.device.type != "meta"} == set()
    for halved in (copy.deepcopy(loss).half(), copy.deepcopy(loss).bfloat16()):
        kept = {name: given for name, given in halved.state_dict().items() if "objective" not in name}
        assert {given.dtype for given in kept.values()} <= {torch.float32, torch.float64}
        for name, given in kept.items():
            torch.testing.assert_close(given, loss.state_dict()[name], check_dtype=False)
    doubled = loss.double()
    assert {given.dtype for given in doubled.state_dict().values()} == {torch.float64}


def test_the_value_is_the_objective_plus_the_terms():
    x, y = data()
    logits = x[:, 0]
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), [small, lambda f, t: f.mean() + 2.0], mu=0.3)
    expected = nn.functional.binary_cross_entropy_with_logits(logits, y)
    for g in (logits.abs().mean() - 1, logits.mean() + 2):
        expected = expected + 0.3 * max(0, g) ** 2 / 2
    torch.testing.assert_close(loss(logits, y), expected)


def test_the_mean_of_a_function_moves_its_multiplier():
    x, y = data()
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), lambda f, t: torch.stack([f.mean(), -f.mean()]), mu=2.0)
    for part in (slice(0, 20), slice(20, 40)):
        loss(x[part, 0], y[part])
    loss.update()
    mean = (x[:20, 0].mean() + x[20:40, 0].mean()) / 2
    torch.testing.assert_close(*(given for given in loss.multipliers.values()), torch.stack([mean, -mean]).relu() * 2)
    before = loss.constraints[0].multiplier.clone()
    loss.update()  # nothing was seen since
    assert torch.equal(before, loss.constraints[0].multiplier)


def test_mu_grows_when_the_observed_value_falls():
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), ["recall >= 0.5"], mu=0.3, rho=3.0, mu_max=2.0)
    found = []
    for value in (0.7, 0.8, 0.6, torch.tensor(0.6), 0.5, 0.4, 0.9, 0.1):
        loss.observe(value)
        found.append(round(loss.mu.item(), 10))
    assert found == [0.3, 0.3, 0.9, 0.9, 2.0, 2.0, 2.0, 2.0]


def test_weights_reach_the_objective_and_the_constraints():
    x, y = data()
    w = torch.arange(N) % 3
    loss = AugmentedLagrangian(losses.WeightedBCELoss(), ["recall >= 0.95", RankingConstraint(size=N)])
    chosen = torch.repeat_interleave(torch.arange(N), w)
    repeated = AugmentedLagrangian(losses.WeightedBCELoss(), ["recall >= 0.95", RankingConstraint(size=N)])
    torch.testing.assert_close(loss(x[:, 0], y, weight=w.double()), repeated(x[chosen, 0], y[chosen], index=chosen))
    plain = AugmentedLagrangian(nn.BCEWithLogitsLoss(), ["recall >= 0.95"])
    alone = nn.functional.binary_cross_entropy_with_logits(x[:, 0], y)
    term = RequirementConstraint("recall >= 0.95")(x[:, 0], y, plain.mu, weight=w.double())
    torch.testing.assert_close(plain(x[:, 0], y, weight=w.double()), alone + term)


def test_an_inactive_term_has_no_gradient():
    g = torch.tensor([-1.0, -0.5], requires_grad=True)
    augmented_term(g, torch.tensor([0.2, 0.4]), torch.tensor(1.0)).sum().backward()
    assert g.grad.tolist() == [0.0, 0.0]


def test_it_pickles_compiles_and_prints():
    x, y = data()
    loss = AugmentedLagrangian(losses.WeightedBCELoss(), ["recall >= 0.95", RankingConstraint(size=N)])
    expected = loss(x[:, 0], y)
    compiled = torch.compile(loss, backend="aot_eager")
    torch.testing.assert_close(compiled(x[:, 0], y), expected)
    assert "recall >= 0.95" in repr(loss)
    assert "mu=0.3" in repr(loss)
    file = io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    same(torch.load(file, weights_only=False).state_dict(), loss.state_dict())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_validation_before_training_changes_nothing(mode):
    x, y = data()
    loss, other = build(), build()
    loss.eval()
    with mode():
        loss(x[:, 0], y, index=torch.arange(N))
    loss.train()
    for each in (loss, other):
        each(x[:, 0].clone().requires_grad_(), y).backward()
        each.update()
    same(loss.state_dict(), other.state_dict())


def test_a_value_that_is_not_a_number_is_left_out():
    x, y = data()
    positives = AugmentedLagrangian(
        losses.WeightedBCELoss(), lambda f, t: nn.functional.softplus(-f[t == 1]).mean() - 0.1, mu=1.0
    )
    logits = x[:, 0].clone().requires_grad_()
    positives(logits, y)
    positives.update()
    before = positives.constraints[0].multiplier.clone()
    assert before > 0
    without = positives(logits, torch.zeros(N))
    torch.testing.assert_close(without, losses.WeightedBCELoss()(logits, torch.zeros(N)))
    without.backward()
    assert logits.grad.isfinite().all()
    positives.update()
    assert torch.equal(positives.constraints[0].multiplier, before)


def test_requirements_with_and_without_groups_can_be_combined():
    x, y = data()
    group = torch.arange(N) % 3
    both = AugmentedLagrangian(
        losses.WeightedBCELoss(), ["precision >= 0.99", RequirementConstraint("recall >= 0.99", groups=3)]
    )
    both(x[:, 0], y, group=group)
    both.update()
    assert [tuple(given.shape) for given in both.multipliers.values()] == [(1,), (3, 1)]


def test_a_thousand_values_in_half_precision_have_their_mean():
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), lambda f, t: f.mean(), mu=1.0).bfloat16()
    logits = torch.ones(4, requires_grad=True)
    for _ in range(1000):
        loss(logits, torch.ones(4))
    loss.update()
    assert loss.constraints[0].multiplier.item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: AugmentedLagrangian(losses.MAELoss(), [metrics.recall]),
            TypeError,
            r"needs a bound, as in metrics\.rec",
        ),
        (
            lambda: AugmentedLagrangian(losses.MAELoss(), [RankingConstraint]),
            TypeError,
            "is a class; create an instance",
        ),
        (
            lambda: AugmentedLagrangian(losses.MAELoss(), lambda f, t: f.abs() - 1)(torch.ones(3), torch.ones(3)),
            ValueError,
            "returns one number per sample",
        ),
        (
            lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), small)(*(torch.ones(3),) * 2, weight=torch.ones(3)),
            ValueError,
            "neither BCEWithLogitsLoss nor a constraint accepts it",
        ),
        (
            lambda: AugmentedLagrangian(losses.MAELoss(), small)(*(torch.ones(3),) * 2, group=torch.ones(3).long()),
            ValueError,
            "no constraint is per group",
        ),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe(math.nan), ValueError, "observe got NaN"),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe(math.inf), ValueError, "observe got inf"),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe(-math.inf), ValueError, "observe got -inf"),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe(None), TypeError, "one number.*got None"),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe("a"), TypeError, "one number.*got 'a'"),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe(True), TypeError, "one number.*got True"),
        (lambda: AugmentedLagrangian(losses.MAELoss(), small).observe(torch.tensor(True)), TypeError, "one number"),
        (lambda: RequirementConstraint("recall >= 0.9", threshold=1.5), ValueError, "strictly between 0 and 1"),
        (lambda: RequirementConstraint("recall >= 0.9", groups=0), ValueError, "at least 1, or a list of their names"),
        (
            lambda: RequirementConstraint("recall[1] >= 0.9")(torch.randn(4), torch.ones(4), torch.tensor(1.0)),
            ValueError,
            "leave the index out",
        ),
        (lambda: AugmentedLagrangian(small, ["recall >= 0.9"]), TypeError, "the objective is a loss module"),
        (lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), []), ValueError, "no constraint given"),
        (lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), [3]), TypeError, "a constraint is a requirement such as"),
        (lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), ["recall"]), ValueError, "cannot read the requirement"),
        (lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), small, mu=0), ValueError, "0 < mu <= mu_max"),
        (lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), small, rho=0.5), ValueError, "must be at least 1"),
        (
            lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), lambda f, t: 3)(*(torch.ones(2),) * 2),
            TypeError,
            "must return a floating-point tensor",
        ),
        (
            lambda: AugmentedLagrangian(nn.BCEWithLogitsLoss(), small).observe(torch.ones(2)),
            ValueError,
            "observe needs one number",
        ),
        (lambda: RequirementConstraint("recall >= 0.9", threshold=[0.1, 0.2]), TypeError, "at one threshold"),
        (lambda: RequirementConstraint("recall >= 0.9", step=0.1), TypeError, "step must be one of"),
    ],
)
def test_mistakes_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_weights_follow_the_target_as_in_every_other_loss():
    logits, target, weight = (
        torch.tensor([-1.0, 1.0, -2.0]),
        torch.tensor([1.0, 1.0, 0.0]),
        torch.tensor([5.0, 1.0, 1.0]),
    )
    loss = AugmentedLagrangian(losses.WeightedBCELoss(), ["recall >= 0.9"], mu=1.0)
    assert loss(logits, target, weight).item() == loss(logits, target, weight=weight).item()
    assert loss(logits, target, weight).item() != loss(logits, target).item()
    with pytest.raises(TypeError, match="positional"):
        loss(logits, target, weight, torch.arange(3))


class Curriculum(nn.Module):
    """An objective that follows the training: it counts epochs and keeps validation values."""

    def __init__(self):
        super().__init__()
        self.epochs, self.values = 0, []

    def forward(self, logits, target):
        return logits.square().mean()

    def update(self):
        self.epochs += 1

    def observe(self, value):
        self.values.append(float(value))


@pytest.mark.parametrize("wrap", [lambda loss: loss, lambda loss: losses.Mix((loss, 1.0), (nn.MSELoss(), 1.0))])
def test_an_objective_that_follows_the_training_is_updated_too(wrap):
    inner = Curriculum()
    loss = AugmentedLagrangian(wrap(inner), "recall >= 0.9")
    loss(torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    loss.update()
    loss.observe(0.5)
    assert (inner.epochs, inner.values) == (1, [0.5])
    with pytest.raises(ValueError, match="NaN"):
        loss.observe(math.nan)
    assert inner.values == [0.5]


def test_an_index_in_the_place_of_the_weight_is_refused():
    loss = AugmentedLagrangian(losses.WeightedBCELoss(), RankingConstraint(size=4))
    logits, target, index = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.arange(4)
    with pytest.raises(TypeError, match=r"third argument is weight.*as index="):
        loss(logits, target, index)
    assert loss(logits, target, index.double()).isfinite()
    assert loss(logits, target, index, index=index).isfinite()


def test_another_number_of_classes_is_refused():
    loss = AugmentedLagrangian(MetricLoss("f1", task="multilabel"), ["recall >= 0.9"])
    loss(torch.zeros(4, 3), torch.ones(4, 3).tril())
    with pytest.raises(ValueError, match=r"'multiplier' of shape \(3,\), but the batch needs \(4,\)"):
        loss(torch.zeros(4, 4), torch.ones(4, 4).tril())
