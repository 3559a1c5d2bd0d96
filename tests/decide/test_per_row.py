"""Labels per row: against every set of labels, with independent labels and with whole sets."""

import pytest
import torch
from all_labellings import all_labellings, probability_of
from sklearn.metrics import f1_score

from metricfit.decide import per_row
from metricfit.errors import InvalidTypeError, InvalidValueError


def expected_of_sets(decided, sets, chances):
    return sum(
        float(chance) * f1_score(labels, decided, zero_division=0) for labels, chance in zip(sets, chances, strict=True)
    )


def test_labels_of_dependent_sets_are_the_best_of_all():
    random = torch.manual_seed(0)
    sets = all_labellings(3)[torch.randperm(8, generator=random)[:6]]
    chances = torch.rand(2, 6, dtype=torch.float64, generator=random)
    chances /= chances.sum(1, keepdim=True)
    for row, decided in zip(chances, per_row(chances, label_sets=sets), strict=True):
        best = max(expected_of_sets(candidate, sets, row) for candidate in all_labellings(3))
        assert expected_of_sets(decided.double(), sets, row) == pytest.approx(best, abs=1e-12)


def test_sets_of_independent_labels_give_what_the_labels_give():
    probabilities = torch.rand(20, 5, dtype=torch.float64, generator=torch.manual_seed(4)).pow(2)
    chances = torch.stack([probability_of(all_labellings(5), row) for row in probabilities])
    for metric in ("f1", "fbeta(beta=2)"):
        assert torch.equal(per_row(chances, metric, label_sets=all_labellings(5)), per_row(probabilities, metric))


def test_rewarding_empty_rows_counts_in_both_forms():
    probabilities = torch.rand(20, 4, dtype=torch.float64, generator=torch.manual_seed(7)).pow(4)
    chances = torch.stack([probability_of(all_labellings(4), row) for row in probabilities])
    by_label = per_row(probabilities, zero_division=1.0)
    assert torch.equal(per_row(chances, label_sets=all_labellings(4), zero_division=1.0), by_label)
    assert not by_label.any(1).all()


def test_many_labels_take_the_approximation():
    probabilities = torch.rand(3, 150, generator=torch.manual_seed(1)).pow(3)
    assert torch.equal(per_row(probabilities), per_row(probabilities, method="approximate"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probabilities": torch.rand(3)}, "shape"),
        ({"probabilities": torch.rand(3, 0)}, "no labels"),
        ({"label_sets": torch.ones(3, 2)}, "one row per column"),
        ({"label_sets": torch.full((2, 3), 0.5)}, "0 and 1"),
        ({"label_sets": torch.eye(2), "probabilities": torch.full((1, 2), 0.9)}, "add up to 1"),
        ({"label_sets": torch.eye(2), "metric": "jaccard"}, "independent"),
        ({"label_sets": torch.eye(2), "method": "exact"}, "leave method out"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        per_row(**{"probabilities": torch.full((2, 2), 0.5), **arguments})


def test_sets_must_be_a_tensor():
    with pytest.raises(InvalidTypeError, match="list"):
        per_row(torch.full((1, 2), 0.5), label_sets=[[0, 1], [1, 0]])
