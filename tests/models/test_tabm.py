"""TabM, numerical embeddings and a loss per member."""

import sys

import numpy as np
import pytest
import tabm
import torch
from safetensors.torch import load, save
from torch import nn

from metricfit import MetricLoss, RunningCounts, steps
from metricfit.losses import Mix, WeightedBCELoss, WMWLoss
from metricfit.models import PerMember, TabM, embedded_mlp, piecewise_linear, quantile_bins


@pytest.fixture
def table():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    x[:, 0] = x[:, 0] > 0
    return x


def test_bin_edges_equal_the_quantiles_of_numpy(table):
    edges = quantile_bins(table, bins=6)
    expected = np.quantile(table[:, 1].numpy(), np.linspace(0, 1, 7))
    np.testing.assert_allclose(edges[1].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert edges[0].tolist() == [0, 1] + 5 * [torch.inf]


def test_more_bins_than_rows_are_as_many_as_rows(table):
    assert quantile_bins(table[:5, 1:], bins=48).shape == (3, 5)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x[0], "needs the training rows"),
        (lambda x: x[:2], "needs the training rows"),
        (lambda x: x / 0.0, "needs finite values"),
        (lambda x: x * torch.tensor([1.0, 0.0, 1.0, 0.0]), r"columns \[1, 3\] are constant .* drop them first"),
    ],
    ids=["one_row", "too_few", "not_finite", "constant"],
)
def test_tables_without_bins_are_refused(table, spoil, message):
    with pytest.raises(ValueError, match=message):
        quantile_bins(spoil(table))


def test_the_piecewise_encoding_equals_the_formula_of_the_paper(table):
    """Eq. 1 of Gorishniy et al. 2022, seen through a linear layer set to the identity."""
    edges = quantile_bins(table[:, 1:2], bins=4)
    embedding = piecewise_linear(edges, width=4)
    with torch.no_grad():
        for parameter in embedding.linear0.parameters():
            parameter.zero_()
        embedding.linear.weight.copy_(torch.eye(4)[None])
    b, x = edges[0], table[:, 1:2]
    share = (x - b[:-1]) / (b[1:] - b[:-1])
    expected = torch.cat([share[:, :1].clamp(max=1), share[:, 1:-1].clamp(0, 1), share[:, -1:].clamp(min=0)], 1)
    torch.testing.assert_close(embedding(x)[:, 0].detach(), expected)


def test_outputs_equal_those_of_the_authors_class(table):
    """The same parts in a row as tabm.TabM: equal outputs for equal weights."""
    ours = TabM(4, 2, k=3, width=5, dropout=0.0, embedding=piecewise_linear(quantile_bins(table, 6), 3))
    theirs = tabm.TabM.make(
        n_num_features=4,
        d_out=2,
        k=3,
        n_blocks=2,
        d_block=5,
        dropout=0.0,
        num_embeddings=piecewise_linear(quantile_bins(table, 6), 3),
    )
    renamed = {key.replace("num_module", "embedding"): value for key, value in theirs.state_dict().items()}
    ours.load_state_dict(renamed)
    torch.testing.assert_close(ours(table), theirs(table).transpose(1, 2))
    torch.testing.assert_close(ours.eval()(table), theirs(table).mean(1))
    torch.testing.assert_close(ours.members(table), ours.train()(table))


def test_gradients_reach_every_parameter(table):
    torch.manual_seed(0)
    model = TabM(4, k=3, width=16, embedding=piecewise_linear(quantile_bins(table, 6), 3))
    loss = PerMember(MetricLoss("f1"), members=model.k)
    loss(model(table), (table[:, 1] > 0).long()).backward()
    dead = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not dead


def test_a_model_comes_back_from_its_file_alone(table):
    def build(edges):
        return TabM(4, k=3, width=5, embedding=piecewise_linear(edges, 3))

    model = build(quantile_bins(table, 6)).eval()
    file = save(model.state_dict())
    again = build(load(file)["embedding.edges"]).eval()
    again.load_state_dict(load(file))
    assert torch.equal(again(table), model(table))


def test_it_learns_a_nonlinear_function():
    """|x| > 0.7: no line separates it; a mean of members trained apart does."""
    torch.manual_seed(0)
    x = torch.rand(400, 2) * 2 - 1
    y = (x[:, 0].abs() > 0.7).long()
    model = TabM(2, k=4, width=16, dropout=0.0, embedding=piecewise_linear(quantile_bins(x, 16), 4))
    loss = PerMember(WeightedBCELoss(), members=4)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()
    assert ((model.eval()(x).squeeze(1) > 0).long() == y).float().mean() > 0.97


def test_a_plain_loss_refuses_the_members_logits(table):
    with pytest.raises(ValueError, match="fit no task"):
        MetricLoss("f1")(TabM(4, k=3, width=5)(table), (table[:, 1] > 0).long())


def test_an_embedding_for_other_features_is_refused():
    with pytest.raises(ValueError, match="the embedding is for 3 features, but in_features is 4"):
        TabM(4, embedding=piecewise_linear(quantile_bins(torch.randn(40, 3), bins=6)))


def test_a_module_that_is_not_an_embedding_is_refused():
    with pytest.raises(TypeError, match=r"piecewise_linear\(edges\) or of rtdl_num_embeddings, got Linear"):
        embedded_mlp(nn.Linear(3, 3))


@pytest.mark.parametrize(
    ("build", "package"), [(lambda: TabM(3), "tabm"), (lambda: quantile_bins(torch.randn(9, 3)), "rtdl_num_embeddings")]
)
def test_a_missing_extra_is_named(monkeypatch, build, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package}, which is not installed: pip install metricfit\[torch\]"):
        build()


def annealed():
    step = steps.Annealed(steps.Identity(), steps.Sigmoid(k=20))
    step.advance(0.3)
    return step


class Weighed(nn.Module):
    def forward(self, logits, target, weight):
        return (weight * (logits.squeeze(1) - target) ** 2).sum()


class Indexed(nn.Module):
    def forward(self, logits, target, index=None):
        return (logits.squeeze(1) - target).abs().sum() + index.sum()


STATELESS = {
    "f1": MetricLoss("f1"),
    "bce": WeightedBCELoss(),
    "pairs": WMWLoss(),
    "mix": Mix((WeightedBCELoss(), 1.0), (MetricLoss("mcc", step=steps.Sigmoid(10)), 0.5)),
}
STATEFUL = {"annealed": MetricLoss("f1", step=annealed()), "torch": nn.BCEWithLogitsLoss()}


@pytest.mark.parametrize("name", STATELESS | STATEFUL)
def test_the_mean_over_members(name):
    """Value and gradient, by a plain sum; under vmap for those without state."""
    torch.manual_seed(0)
    objective = (STATELESS | STATEFUL)[name]
    logits = torch.randn(5, 1, 3, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1.0], [0.0], [1.0], [0.0], [0.0]], dtype=torch.float64)
    loss = PerMember(objective, members=3)
    assert len(loss.objectives) == (1 if name in STATELESS else 3)
    value = loss(logits, target)
    by_hand = sum(objective(logits[..., j], target) for j in range(3)) / 3
    torch.testing.assert_close(value, by_hand)
    gradients = [torch.autograd.grad(item, logits)[0] for item in (value, by_hand)]
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_weight_and_index_are_passed_to_objectives_that_accept_them():
    logits, target, weight = torch.zeros(2, 1, 3), torch.tensor([1.0, 0.0]), torch.tensor([2.0, 5.0])
    index = torch.tensor([3, 4])
    assert PerMember(Weighed(), 3)(logits, target, weight, index) == 2.0
    assert PerMember(Indexed(), 3)(logits, target, index=index) == 8.0
    with pytest.raises(ValueError, match="Indexed does not accept it"):
        PerMember(Indexed(), 3)(logits, target, weight=weight)


def test_a_group_goes_to_an_objective_that_takes_it():
    class Grouped(nn.Module):
        def forward(self, logits, target, *, group=None):
            return logits.new_tensor(-1.0 if group is None else float(group.sum()))

    loss, logits, target = PerMember(Grouped(), 3), torch.zeros(2, 1, 3), torch.tensor([1.0, 0.0])
    assert loss(logits, target, group=torch.tensor([0, 2])) == 2.0
    assert (loss.accepts.weight, loss.accepts.index, loss.accepts.group) == (False, False, True)


def test_the_mean_over_members_of_several_classes():
    logits, target = torch.randn(6, 4, 2), torch.tensor([0, 1, 2, 3, 0, 1])
    value = PerMember(MetricLoss("f1"), members=2)(logits, target)
    torch.testing.assert_close(value, sum(MetricLoss("f1")(logits[..., j], target) for j in range(2)) / 2)


def test_every_member_remembers_its_own_counts():
    """Two members that disagree: each has the value it would have alone, step after step."""
    torch.manual_seed(0)
    loss = PerMember(MetricLoss("f1", memory=RunningCounts(decay=0.9)), members=2)
    alone = [MetricLoss("f1", memory=RunningCounts(decay=0.9)) for _ in range(2)]
    for _ in range(3):
        logits, target = torch.randn(6, 1, 2), torch.tensor([1, 0, 1, 0, 0, 0])
        expected = sum(item(logits[..., j], target) for j, item in enumerate(alone)) / 2
        torch.testing.assert_close(loss(logits, target), expected)


@pytest.mark.parametrize("shape", [(5, 1, 4), (5, 1, 1, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"takes logits \(n, c, 3\), or \(n, c\) in eval mode"):
        PerMember(MetricLoss("f1"), members=3)(torch.zeros(shape), torch.tensor([1, 0, 1, 0, 0]))


def test_no_members_are_refused():
    with pytest.raises(ValueError, match="at least one member"):
        PerMember(MetricLoss("f1"), members=0)
