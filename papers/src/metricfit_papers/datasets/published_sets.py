"""Datasets as papers prepare or define them: Tsoi et al. 2022, "Bridging the Gap"; Han et al. 2024, "AnyLoss"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, make_blobs

from metricfit.errors import InvalidValueError
from metricfit_papers.datasets.catalogue import Table


def bridging_the_gap(table: Table) -> Table:
    """Return the set as Tsoi et al. 2022 use it for their network, before it is standardised.

    Adult: without ``fnlwgt`` (supplement 4.1.3), text as the rank of its category, as in their code. Credit card:
    without ``Time``, ``log(Amount + 0.001)`` for ``Amount`` (4.1.5 and their code), 29 features. CocktailParty: the 22
    features, positive if two people are not in the same group. Mammography: unchanged.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"Time": [0, 1], "V1": [0.5, -0.5], "Amount": [0.999, 9.999]})
    >>> table = Table("creditcard", frame, np.array([0, 1]), "a fraud", "two rows")
    >>> bridging_the_gap(table).X["log Amount"].round(4).tolist()
    [0.0, 2.3026]
    """
    features = table.X
    if table.name == "adult":
        features = features.drop(columns="fnlwgt")
        features = features.assign(
            **{
                column: features[column].astype("category").cat.codes
                for column in features.columns
                if not pd.api.types.is_numeric_dtype(features[column])
            }
        )
    elif table.name == "creditcard":
        amount = np.log(features["Amount"] + 0.001)
        features = features.drop(columns=["Time", "Amount"], errors="ignore").assign(**{"log Amount": amount})
    elif table.name not in ("cocktailparty", "mammography"):
        raise InvalidValueError(f"Tsoi et al. use adult, creditcard, cocktailparty and mammography, not {table.name}")
    return replace(table, X=features)


def two_blobs(keep: float, seed: int = 42) -> Table:
    """Make a synthetic set of Tsoi et al. 2022, supplement 4.1.1: two isotropic Gaussian blobs, few positives kept.

    The sizes are as in their published code: 5,000 points per class, 3 features, standard deviation 10, and the
    share ``keep`` of the positives: 0.5 is "Synthetic 33%", 0.05 "Synthetic 5%". With ``seed=42`` the points are
    theirs, but not the choice of the positives to keep.

    >>> two_blobs(0.05)
    Table('two_blobs_0.05', 5250 x 3, 4.76% positive: the second blob)
    """
    if not 0 < keep <= 1:
        raise InvalidValueError(f"keep is the share of the positives to keep, above 0 and at most 1, got {keep}")
    points, labels = make_blobs(10_000, n_features=3, centers=2, cluster_std=10, random_state=seed)
    positives = np.flatnonzero(labels)
    kept = np.random.default_rng(seed).choice(positives, int(keep * len(positives)), replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == 0), kept]))
    frame = pd.DataFrame(points[rows], columns=["x0", "x1", "x2"])
    return Table(f"two_blobs_{keep:g}", frame, labels[rows].astype(np.int64), "the second blob", "generated")


def breast_cancer() -> Table:
    """Return the Wisconsin breast cancer set of scikit-learn, used by Han et al. 2024; malignant is positive.

    >>> breast_cancer()
    Table('breast_cancer', 569 x 30, 37.26% positive: malignant)
    """
    source = load_breast_cancer(as_frame=True)
    malignant = (source.target == list(source.target_names).index("malignant")).to_numpy().astype(np.int64)
    return Table("breast_cancer", source.data, malignant, "malignant", "scikit-learn")
