"""start_at_prior: the last bias starts at the prior, and nothing else moves."""

import copy
import math

import pytest
import torch
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import fit, start_at_prior
from metricfit_papers.populations import fit_population


def mlp(last=1, **settings):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, last, **settings))


@pytest.mark.parametrize("prior", [1e-6, 0.01, 0.5, 0.99])
def test_the_last_bias_is_the_log_odds_of_the_prior_and_nothing_else_moves(prior):
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    assert start_at_prior(model, prior) is model
    assert model[-1].bias.item() == pytest.approx(math.log(prior / (1 - prior)), rel=1e-6, abs=1e-7)
    assert model[-1].bias.requires_grad
    assert model[-1].bias.grad_fn is None
    for name, tensor in model.state_dict().items():
        assert name == "2.bias" or torch.equal(tensor, before[name])


def test_a_model_that_says_the_same_of_everything_says_the_prior():
    model = mlp()
    nn.init.zeros_(model[-1].weight)
    start_at_prior(model, 0.03)
    torch.testing.assert_close(model(torch.randn(5, 4)).sigmoid(), torch.full((5, 1), 0.03))


def test_a_bare_layer_a_convolution_and_a_nested_model():
    assert start_at_prior(nn.Linear(3, 1), 0.25).bias.item() == pytest.approx(-math.log(3))
    assert start_at_prior(nn.Sequential(nn.Conv2d(3, 1, 1)), 0.25)[0].bias.item() == pytest.approx(-math.log(3))
    model = nn.ModuleDict({"body": nn.Linear(3, 5), "head": nn.Sequential(nn.Dropout(), nn.Linear(5, 1))})
    assert start_at_prior(model, 0.25)["head"][1].bias.item() == pytest.approx(-math.log(3))


def test_the_last_of_several_candidates_is_taken():
    model = nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 1))
    first = model[0].bias.item()
    start_at_prior(model, 0.25)
    assert model[0].bias.item() == first
    assert model[1].bias.item() == pytest.approx(-math.log(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_it_keeps_the_models_type(dtype):
    bias = start_at_prior(mlp().to(dtype), 0.25)[-1].bias
    assert bias.dtype == dtype
    assert bias.item() == pytest.approx(-math.log(3), rel=1e-2)


@pytest.mark.parametrize(
    "model",
    [mlp(last=2), mlp(bias=False), nn.ReLU(), nn.LSTM(3, 4), nn.Sequential()],
    ids=["two_outputs", "no_bias", "no_layer", "recurrent", "empty"],
)
def test_a_model_with_no_suitable_layer_is_refused_with_the_remedy(model):
    with pytest.raises(ValueError, match=r"no layer with one output and a bias; set its last bias to log\(prior"):
        start_at_prior(model, 0.1)


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)), nn.Sequential(nn.LayerNorm(1), nn.Linear(1, 1, bias=False))],
    ids=["batch_norm", "layer_norm"],
)
def test_a_norm_of_one_feature_is_not_the_last_layer(model):
    with pytest.raises(ValueError, match="no layer with one output and a bias"):
        start_at_prior(model, 0.1)


def test_a_lazy_layer_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="dummy batch"):
        start_at_prior(nn.Sequential(nn.LazyLinear(1)), 0.1)


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, 2, math.nan])
def test_a_prior_outside_0_to_1_is_refused(prior):
    with pytest.raises(ValueError, match="prior is the share of positives, strictly between 0 and 1, got"):
        start_at_prior(mlp(), prior)


class Gated(nn.Module):
    """A head, with or without a bias, registered before the gate that it is multiplied by."""

    def __init__(self, bias):
        super().__init__()
        self.head, self.gate = nn.Linear(4, 1, bias=bias), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(x * self.gate(x).sigmoid())


def trained(model, option):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    y = (torch.arange(40) % 4 == 0).long()
    fit(model, (x, y), WeightedBCELoss(), epochs=1, lr=1e-12, start_at_prior=option, progress=False)


@pytest.mark.parametrize("option", [None, True])
def test_fit_sets_the_bias_that_moves_the_logits_and_no_gate(option):
    model = Gated(bias=True)
    gate = model.gate.bias.item()
    trained(model, option)
    assert model.gate.bias.item() == pytest.approx(gate)
    assert model.head.bias.item() == pytest.approx(-math.log(3))


def test_fit_leaves_a_gate_alone_or_says_that_there_is_no_other():
    model = Gated(bias=False)
    gate = model.gate.bias.item()
    trained(model, None)
    assert model.gate.bias.item() == pytest.approx(gate)
    with pytest.raises(ValueError, match="no layer that moves its logits one to one"):
        trained(model, True)


X = torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 1).long()


def by_fit(model, **settings):
    return fit(model, (X, Y), WeightedBCELoss(), epochs=20, lr=0.01, batch_size=50, progress=False, **settings).model


def by_hand(model, **settings):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **settings)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(X).squeeze(1), Y.float()).backward()
        optimizer.step()
    return model


def loaded(model):
    model.load_state_dict(by_hand(mlp()).state_dict())
    return model


def assigned(model):
    model.load_state_dict(by_hand(mlp()).state_dict(), assign=True)
    return model


def by_data(model):
    for parameter, other in zip(model.parameters(), by_hand(mlp()).parameters(), strict=True):
        parameter.data.copy_(other)
    return model


TRAINED = {
    "fit": by_fit,
    "fit_with_validation": lambda model: by_fit(model, validation=(X, Y)),
    "fit_population": lambda model: fit_population([model], (X, Y), WeightedBCELoss(), epochs=20, lr=0.01)[0].model,
    "by_hand": by_hand,
    "foreach": lambda model: by_hand(model, foreach=True),
    "fused": lambda model: by_hand(model, fused=True),
    "loaded": loaded,
    "assigned": assigned,
    "copied": lambda model: copy.deepcopy(by_hand(model)),
    "data": by_data,
    "frozen_but_for_the_bias": lambda model: by_hand(model[:2].requires_grad_(False) and model),
}


@pytest.mark.parametrize("train", TRAINED.values(), ids=TRAINED)
@pytest.mark.parametrize("together", [False, True])
def test_the_bias_of_a_trained_model_is_left_alone(train, together):
    torch.manual_seed(0)
    model = train(mlp())
    before = model[-1].bias.item()
    settings = {"epochs": 1, "lr": 1e-9, "progress": False}
    if together:
        fit_population([model], (X, Y), WeightedBCELoss(), **settings)
    else:
        fit(model, (X, Y), WeightedBCELoss(), **settings)
    assert model[-1].bias.item() == pytest.approx(before, abs=1e-6)


def own_body(model):
    nn.init.kaiming_normal_(model[0].weight)
    return model


def pretrained_body(model):
    body = by_hand(mlp())[0]
    model[0].load_state_dict(body.state_dict())
    return model


FRESH = {
    "as_made": lambda model: model,
    "double": lambda model: model.double(),
    "bfloat16": lambda model: model.bfloat16(),
    "own_body": own_body,
    "pretrained_body": pretrained_body,
}


@pytest.mark.parametrize("prepare", FRESH.values(), ids=FRESH)
def test_a_fresh_last_layer_starts_at_the_prior(prepare):
    torch.manual_seed(0)
    model = prepare(mlp())
    fit(model, (X, Y), WeightedBCELoss(), epochs=1, lr=1e-9, progress=False)
    share = float(Y.double().mean())
    assert model[-1].bias.item() == pytest.approx(math.log(share / (1 - share)), rel=1e-2)


def test_a_copy_of_a_fresh_model_starts_at_the_prior_if_told_to():
    model = copy.deepcopy(mlp())
    before = model[-1].bias.item()
    settings = {"epochs": 1, "lr": 1e-9, "progress": False}
    fit(model, (X, Y), WeightedBCELoss(), **settings)
    assert model[-1].bias.item() == pytest.approx(before, abs=1e-6)
    fit(model, (X, Y), WeightedBCELoss(), start_at_prior=True, **settings)
    share = float(Y.double().mean())
    assert model[-1].bias.item() == pytest.approx(math.log(share / (1 - share)), abs=1e-6)
