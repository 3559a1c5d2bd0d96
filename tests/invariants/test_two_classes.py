"""One logit, two logits and labels: the counts of a binary problem and of its two classes give one number.

That it is scikit-learn's is tested in test_scikit_learn_values.
"""

import itertools

import pytest
import torch

from metricfit import Counts, get_metric, metrics

INSTANCES = {"fbeta": "fbeta(beta=2)", "tversky": "tversky(alpha=0.2, beta=0.7)", "cost": "cost(fp=1, fn=10)"}
INSTANCES |= {"cost_matrix": "cost_matrix(costs=[[0, 1], [10, 0]])", "weighted_kappa": "weighted_kappa(power=2)"}
CELLS = [cells for cells in itertools.product([0, 1, 4], repeat=4) if sum(cells)]


def labels(tp, fp, fn, tn):
    return torch.tensor([1] * tp + [1] * fp + [0] * fn + [0] * tn), torch.tensor(
        [1] * tp + [0] * fp + [1] * fn + [0] * tn
    )


@pytest.mark.parametrize("name", metrics.names())
def test_binary_counts_and_the_same_labels_of_two_classes_give_one_number(name):
    metric = get_metric(INSTANCES.get(name, name))
    for cells in CELLS:
        predicted, target = labels(*cells)
        of_two = Counts.from_labels(predicted, target, num_classes=2)
        value = metric(Counts(*cells)).item()
        if not metric.needs_matrix:
            both = metric(of_two)
            assert float(both if metric.whole_matrix else both[1]) == pytest.approx(value, abs=1e-12), cells
        logits = torch.stack([-predicted.double(), predicted.double() - 0.5], 1)
        quality = metrics.Accumulator(metric, average=None)
        quality.update(logits, target)
        assert float(quality.compute().reshape(-1)[-1]) == pytest.approx(value, abs=1e-12), cells
