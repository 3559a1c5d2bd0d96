"""More settings of families for ``quality="best"``, in the order in which they are fitted.

They were chosen from a wider list on one draw of each study table (``studies/portfolio.py``). They are averaged into
one family: weights of so many single ones would fit the choice to the held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from metricfit.tabular.families.boosting import Boosting, Trees
from metricfit.tabular.families.family import Family
from metricfit.tabular.families.other_boosting import CatBoost, XGBoost

DRAWN = {"bagging_fraction": 0.8, "bagging_freq": 1}


def _lightgbm(name: str, **parameters: Any) -> Callable[[], Family]:
    return lambda: Boosting(name, Trees(parameters, patience=40))


PORTFOLIO: dict[str, Callable[[], Family]] = {
    "boosting_seven": _lightgbm(
        "boosting_seven", num_leaves=7, min_child_samples=5, feature_fraction=0.6, lambda_l2=1.0, **DRAWN
    ),
    "catboost": CatBoost,
    "boosting_stumps": _lightgbm("boosting_stumps", num_leaves=4, min_child_samples=5, feature_fraction=0.5, **DRAWN),
    "boosting_random": _lightgbm(
        "boosting_random", num_leaves=15, extra_trees=True, min_child_samples=3, feature_fraction=0.7, lambda_l2=1.0
    ),
    "catboost_shallow": lambda: CatBoost("catboost_shallow", {"depth": 4, "l2_leaf_reg": 5, "rsm": 0.6}),
    "xgboost": XGBoost,
}
#: The family of the ensemble that the settings of "auto" are averaged into.
GROUPS = dict.fromkeys(("boosting", "boosting_small", *PORTFOLIO), "boosting")


def is_installed(name: str) -> bool:
    """Whether the library that a setting needs is there."""
    package = name.partition("_")[0]
    return package not in ("catboost", "xgboost") or find_spec(package) is not None
