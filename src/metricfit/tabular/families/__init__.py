"""Families of models: boosted trees, forests, linear models, kernels, networks and the user's own classifiers."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.tabular.families.choice import DEFAULT as DEFAULT
    from metricfit.tabular.families.choice import NAMES as NAMES
    from metricfit.tabular.families.choice import make_families as make_families
    from metricfit.tabular.families.in_context import InContext as InContext
    from metricfit.tabular.families.network import Network as Network

#: Loaded when first used: TunedDecisionClassifier needs none of the families.
_HOMES = {
    "metricfit.tabular.families.choice": "DEFAULT NAMES make_families",
    "metricfit.tabular.families.in_context": "InContext",
    "metricfit.tabular.families.network": "Network",
}
__all__ = [name for names in _HOMES.values() for name in names.split()]

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, {})
