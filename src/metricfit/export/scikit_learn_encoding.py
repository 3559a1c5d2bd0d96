"""The encoding of numbers and categories as steps of a scikit-learn pipeline.

The smooth clip of the encoding, z / sqrt(1 + (z/3)^2), is 3 sin(arctan(z/3)), which two functions of numpy compute.
The steps are fitted on made-up rows, so that they are complete, and what they learned is then replaced by what the
model learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, RobustScaler

from metricfit.export.made_up import made_up_rows
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.encoding.columns import Category, Number
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.encoding.scaling import CLIP, Scaling
from metricfit.tabular.families.linear import FARTHEST


def can_encode(encoder: TableEncoder) -> bool:
    """Return whether a table has numbers and categories alone."""
    known = (column is None or isinstance(column, (Number, Category)) for column in encoder.columns or [])
    return encoder.directions is None and all(known)


def encoding_steps(model: MetricClassifier, *, both_scales: bool) -> list[tuple[str, Any]]:
    """Return fitted steps from the user's table to the columns of a classifier.

    Args:
        model: The fitted model.
        both_scales: Whether the columns are those of the linear family, scaled to a third: with the smooth clip, and
            then without. Otherwise they are the encoded columns. Those that tell where values are missing come last.
    """
    encoder, names = model.encoder_, getattr(model, "feature_names_in_", None)
    rows = made_up_rows(encoder, names)
    numbers = _numbers(encoder).fit(rows)
    scaling = _fitted_scaling(encoder.scaling, np.asarray(numbers.transform(rows), dtype=np.float64), both_scales)
    return [("numbers", numbers), ("scaling", scaling)]


def _numbers(encoder: TableEncoder) -> Any:
    """From the table to numbers with NaN where they are missing."""
    if encoder.columns is None:
        return FunctionTransformer(np.asarray, kw_args={"dtype": np.float64})
    steps: list[tuple[str, Any, list[int]]] = []
    for position, column in enumerate(encoder.columns):
        if isinstance(column, Category):
            steps.append((f"category {position}", _one_hot(column), [position]))
        elif column is not None:
            as_floats = FunctionTransformer(np.asarray, kw_args={"dtype": np.float64})
            steps.append((f"number {position}", as_floats, [position]))
    return ColumnTransformer(steps, sparse_threshold=0.0)


def _one_hot(column: Category) -> Pipeline:
    """One 0/1 column per category, one for two of them; a missing value is a category if it was one in training."""
    missing = "missing"
    while missing in column.categories:
        missing += "_"
    categories = np.array([missing if each is None else each for each in column.categories], dtype=object)
    known = categories[1:] if len(categories) == 2 else categories
    return Pipeline(
        [
            ("nan", SimpleImputer(missing_values=np.nan, strategy="constant", fill_value=missing)),
            ("none", SimpleImputer(missing_values=None, strategy="constant", fill_value=missing)),
            ("one_hot", OneHotEncoder(categories=[known], handle_unknown="ignore", sparse_output=False)),
        ]
    )


def _fitted_scaling(scaling: Scaling, numbers: NDArray[np.float64], both_scales: bool) -> FeatureUnion:
    """What ``Scaling.transform`` does, with the medians and spreads of the model."""
    kept, told = np.flatnonzero(scaling.spread > 0), np.flatnonzero(scaling.told)
    impute, scale = SimpleImputer(strategy="median"), RobustScaler()
    smooth: list[tuple[str, Any]] = [("arctan", FunctionTransformer(np.arctan)), ("sin", FunctionTransformer(np.sin))]
    if both_scales:
        cut = FunctionTransformer(np.clip, kw_args={"a_min": -FARTHEST / CLIP, "a_max": FARTHEST / CLIP})
        smooth = [("both", FeatureUnion([("clipped", Pipeline(smooth)), ("unclipped", cut)]))]
    widen = RobustScaler(with_centering=False)
    steps = [("columns", _select(kept)), ("impute", impute), ("scale", scale), *smooth]
    parts: list[tuple[str, Any]] = []
    if len(kept):
        parts.append(("values", Pipeline(steps if both_scales else [*steps, ("widen", widen)])))
    if len(told):
        parts.append(("missing", Pipeline([("columns", _select(told)), ("where", MissingIndicator(features="all"))])))
    union = FeatureUnion(parts).fit(numbers)
    if len(kept):
        impute.statistics_ = scale.center_ = scaling.centre[kept]
        scale.scale_ = scaling.spread[kept] * CLIP
        widen.scale_ = np.full(len(kept), 1 / CLIP)
    return union


def _select(columns: NDArray[np.int64]) -> ColumnTransformer:
    return ColumnTransformer([("kept", "passthrough", columns)])
