"""Values at the ends of what a float can hold, in the table and in the metric."""

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.tabular.encoding.encoder import Scaling


def test_numbers_whose_difference_is_infinite_are_scaled():
    x = np.array([[1e308, -1e308, 1e308, -1e308, 0.0]]).T
    found = Scaling().fit(x).transform(x)
    assert np.isfinite(found).all()
    assert found[0] > found[4] > found[1]


@pytest.mark.parametrize("metric", ["fbeta(beta=0)", "fbeta(beta=1e200)"])
def test_a_beta_that_the_surrogate_loss_does_not_take_can_be_a_metric(metric):
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = MetricClassifier(metric, models=["linear", "boosting_metric"], members=2, time_budget=None, random_state=0)
    assert 0 <= model.fit(x, x[:, 0] > 0.3).value_ <= 1
