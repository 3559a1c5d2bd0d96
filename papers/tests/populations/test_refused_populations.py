"""fit_population refuses members, settings and data that do not go together."""

import math

import pytest
import torch
from small_populations import BCE, N, data, networks, splits_of
from torch import nn

from metricfit_papers.populations import fit_population


def frozen():
    (model,) = networks(1)
    model[0].requires_grad_(False)
    return model


WRONG = {
    "none": (lambda: {"models": []}, "at least one model"),
    "twice": (lambda: {"models": networks(1) * 2}, "same model occurs several times.*make a new model for each"),
    "rates": (lambda: {"lr": [0.1]}, "3 models, but lr has 1 entries"),
    "seeds": (lambda: {"seeds": [1, 2]}, "3 models, but seeds has 2 entries"),
    "splits": (lambda: {"splits": splits_of(2)}, "3 models, but splits has 2 entries"),
    "both": (lambda: {"splits": splits_of(3), "validation": data()}, "give either splits or validation"),
    "other_shapes": (lambda: {"models": [*networks(2), *networks(1, outputs=2)]}, "one architecture.*member 2 has 2"),
    "other_dropout": (
        lambda: {"models": [*networks(2, layers=[nn.Dropout(0.0)]), *networks(1, layers=[nn.Dropout(0.9)])]},
        r"member 2 has \(1\): Dropout\(p=0.9.* where member 0 has \(1\): Dropout\(p=0.0.*with fit",
    ),
    "other_activation": (
        lambda: {"models": [*networks(2, layers=[nn.ReLU()]), *networks(1, layers=[nn.Tanh()])]},
        r"member 2 has \(1\): Tanh\(\) where member 0 has \(1\): ReLU\(\)",
    ),
    "frozen_here": (lambda: {"models": [*networks(2), frozen()]}, r"member 2 has 0.weight of shape .*, frozen where"),
    "negative_rate": (lambda: {"lr": [0.1, -0.1, 0.01]}, "lr must be finite and above 0, got -0.1 for member 1"),
    "no_rate": (lambda: {"lr": [0.0, 0.1, 0.01]}, "lr must be finite and above 0, got 0.0 for member 0"),
    "endless_rate": (lambda: {"lr": math.inf}, "lr must be finite and above 0, got inf"),
    "lbfgs": (lambda: {"optimizer": torch.optim.LBFGS}, "LBFGS computes the loss several times"),
    "beyond": (lambda: {"splits": [([0, N], [1])] * 3}, f"splits.*member 0.*0 to {N - 1}"),
    "empty_part": (lambda: {"splits": [([0, 1], [])] * 3}, "member 0.*no validation samples"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_members_that_do_not_go_together_are_refused(options, message):
    settings = {"models": networks(3)} | options()
    with pytest.raises((ValueError, TypeError), match=message):
        fit_population(settings.pop("models"), data(), BCE(), epochs=1, progress=False, **settings)


def test_a_member_whose_validation_set_lacks_positives_is_named():
    x, y = data()
    negative = (y == 0).nonzero().flatten()
    splits = [*splits_of(2), (torch.arange(N), negative)]
    with pytest.raises(ValueError, match=r"validation \(of member 2\) set has no positives, on which f1"):
        fit_population(networks(3), (x, y), BCE(), splits=splits, monitor="f1")


def test_a_dataset_is_refused():
    with pytest.raises(TypeError, match="data in memory"):
        fit_population(networks(2), torch.utils.data.TensorDataset(*data()), BCE())
