"""Families of models: boosted trees, forests, linear models, kernels, networks and the user's own classifiers."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.tabular.families.choice import DEFAULT, NAMES, make_families
    from metricfit.tabular.families.in_context import InContext
    from metricfit.tabular.families.network import Network

__all__ = ["DEFAULT", "NAMES", "InContext", "Network", "make_families"]

#: Loaded when first used: TunedDecisionClassifier needs none of the families.
_HOMES = {
    "metricfit.tabular.families.choice": "DEFAULT NAMES make_families",
    "metricfit.tabular.families.in_context": "InContext",
    "metricfit.tabular.families.network": "Network",
}

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, {})
