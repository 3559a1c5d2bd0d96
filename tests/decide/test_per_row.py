"""Labels per row: against every set of labels, with independent labels and with whole sets."""

import pytest
import torch

from metricfit.decide import per_row
from metricfit.decide.units import best_masks
from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric


def test_many_labels_take_the_approximation():
    probabilities = torch.rand(3, 150, generator=torch.manual_seed(1)).pow(3)
    assert torch.equal(per_row(probabilities), best_masks(probabilities, get_metric("f1"), 0.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probabilities": torch.rand(3)}, "shape"),
        ({"probabilities": torch.rand(3, 0)}, "no labels"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        per_row(**{"probabilities": torch.full((2, 2), 0.5), **arguments})
