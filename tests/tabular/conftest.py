"""Small tables and quick settings."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from metricfit import MetricClassifier
from metricfit.decide.calibration import Calibration
from metricfit.metrics.metric import get_metric
from metricfit.tabular.ensemble import Ensemble, EnsembleMember
from metricfit.tabular.families.boosting import Boosting, Trees
from metricfit.tabular.families.family import Deadline, Features, TrainingRows, choose_candidates
from metricfit.tabular.families.forest import ExtraTrees
from metricfit.tabular.families.kernel import Kernel
from metricfit.tabular.families.linear import Linear
from metricfit.tabular.families.network import Network
from metricfit.tabular.families.network_models import NetworkFamily
from metricfit.tabular.families.user_model import UserModel

QUICK = {"models": ["linear"], "members": 3, "time_budget": None, "random_state": 0}


@pytest.fixture(scope="session")
def quick_settings():
    return QUICK


@pytest.fixture
def quick():
    return dict(QUICK)


@pytest.fixture(scope="session")
def blobs():
    """Two overlapping classes, a fifth positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    return X, (X[:, 0] + 0.5 * rng.normal(size=400) > 0.9).astype(int)


@pytest.fixture(scope="session")
def messy():
    """A table with a column of every kind, and labels that depend on several of them."""
    rng = np.random.default_rng(1)
    n = 300
    number = rng.normal(size=n)
    kind = rng.choice(["red", "green", "blue"], n)
    days = rng.integers(0, 700, n)
    word = rng.choice(["alpha", "omega"], n)
    logit = 1.5 * number + 1.5 * (kind == "red") + 1.5 * (word == "omega") - 2
    y = np.where(logit + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    number[rng.random(n) < 0.1] = np.nan
    frame = pd.DataFrame(
        {
            "number": number,
            "text number": [f"{value:.3f}" for value in rng.normal(size=n)],
            "kind": kind,
            "flag": rng.random(n) < 0.5,
            "date": (pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")).strftime("%d/%m/%Y"),
            "moment": pd.Timestamp("2020-01-01") + pd.to_timedelta(days * 7, unit="h"),
            "note": [f"{each} letter number {at}" for at, each in enumerate(word)],
            "category": pd.Categorical(rng.choice(["s", "m", "l"], n)),
            "whole": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "empty": [None] * n,
            "same": 1.0,
        }
    )
    frame.loc[3, "kind"] = None
    frame.loc[4, "whole"] = pd.NA
    return frame, y


@pytest.fixture(scope="session")
def fit_every_family():
    """Fit a classifier whose ensemble has a model of every family, all of the same weight."""

    def fit(table, y, sample_weight=None, groups=None, **settings):
        model = MetricClassifier(models=["linear"], members=2, time_budget=None, random_state=0, **settings)
        model.fit(table, y, sample_weight, groups)
        numbers = model.chosen_.names.numbers_of(np.asarray(y))
        rows = TrainingRows(Features(model.encoder_.transform(table), table), numbers, None, len(model.classes_))
        odd = np.arange(len(rows)) % 2 == 1
        splits = [(np.flatnonzero(~odd), np.flatnonzero(odd)), (np.flatnonzero(odd), np.flatnonzero(~odd))]
        first_column = ColumnTransformer([("number", SimpleImputer(), [0])])
        families = [
            Boosting(trees=Trees({"num_iterations": 5, "num_leaves": 15}, 30)),
            Boosting(trees=Trees({"num_iterations": 5, "num_leaves": 20}, 30)),
            ExtraTrees(5),
            Linear(),
            Kernel(),
            NetworkFamily(Network("embedded", epochs=1), get_metric("f1")),
            UserModel("encoded", GaussianNB()),
            UserModel("pipeline", make_pipeline(first_column, LogisticRegression())),
        ]
        members = []
        for place, family in enumerate(families):
            fitted = family.prepare(rows).fit_folds(rows, splits, seed=0, deadline=Deadline())
            models = choose_candidates(fitted)
            calibration = Calibration(1.0 + place / 10, np.full(rows.outputs, place / 100))
            members.append(EnsembleMember(f"{place}", family.combine(models), calibration, 1 / len(families)))
        model.ensemble_ = Ensemble(tuple(members), model.ensemble_.calibration)
        return model

    return fit
