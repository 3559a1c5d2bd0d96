"""Small tables as the families see them."""

import numpy as np
import pytest

from metricfit.tabular.families.family import Features, TrainingRows


def rows_of(classes, n=300, columns=4, seed=0, weighted=False):
    """Rows of classes that overlap; a column of whole numbers has ties."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, columns)).astype(np.float32)
    x[:, -1] = np.round(x[:, -1])
    score = x[:, 0] + 0.5 * x[:, 1] ** 2 + 0.3 * x[:, -1] + 0.3 * rng.normal(size=n)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    return TrainingRows(Features(x), y.astype(np.int64), weight, classes)


@pytest.fixture(scope="session")
def make_rows():
    return rows_of


@pytest.fixture(params=[2, 4], ids=["two classes", "four classes"])
def classes(request):
    return request.param


@pytest.fixture
def rows(classes):
    return rows_of(classes)


@pytest.fixture
def held_out(classes):
    return rows_of(classes, n=150, seed=1)
