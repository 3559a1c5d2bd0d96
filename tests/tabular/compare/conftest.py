"""Few folds, networks of one epoch and a record of trainings, for the tests of compare."""

from dataclasses import replace

import pytest

from metricfit.tabular import row_folds
from metricfit.tabular.compare import methods, trainings


@pytest.fixture(scope="module", autouse=True)
def two_inner_folds():
    """Train every family on two folds instead of eight, in compare and in fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_folds, "FOLDS_BY_ROWS", ((20_000, 2),))
        yield


@pytest.fixture(scope="module")
def quick_networks():
    """Let every network train for one epoch, with all settings that make it the method it is."""
    with pytest.MonkeyPatch.context() as patch:
        quick = [
            replace(method, models=tuple(m if isinstance(m, str) else replace(m, epochs=1) for m in method.models))
            for method in methods.METHODS
        ]
        patch.setattr(methods, "METHODS", tuple(quick))
        yield


@pytest.fixture
def fitted(monkeypatch):
    """The family and the rows of every training that is not read from a folder."""
    calls = []
    fit_family = trainings.fit_family

    def record(family, rows, splits, **settings):
        calls.append((family.name, rows, settings))
        return fit_family(family, rows, splits, **settings)

    monkeypatch.setattr(trainings, "fit_family", record)
    return calls
