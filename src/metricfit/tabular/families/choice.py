"""The families that the parameter ``models`` of MetricClassifier names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from metricfit._extras import explain_missing
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.encoding.columns import free_text_columns
from metricfit.tabular.families.boosting import SMALL, Boosting
from metricfit.tabular.families.family import Family
from metricfit.tabular.families.forest import ExtraTrees
from metricfit.tabular.families.in_context import FAMILIES as FOUNDATION
from metricfit.tabular.families.in_context import InContext, InContextFamily, own_weights
from metricfit.tabular.families.kernel import Kernel
from metricfit.tabular.families.linear import Linear, TextLinear
from metricfit.tabular.families.network import Network
from metricfit.tabular.families.other_boosting import PACKAGES as OTHER_BOOSTING
from metricfit.tabular.families.other_boosting import OtherBoosting
from metricfit.tabular.families.user_model import UserModel

#: The families by name, in the order in which they are fitted: by what they are worth per second.
NAMES = (
    "linear",
    "text",
    "boosting_small",
    "extra_trees",
    "boosting",
    "kernel",
    *OTHER_BOOSTING,
    *FOUNDATION.values(),
    "boosting_metric",
    "network",
)
#: The families of ``models="auto"`` by quality; "text" is added for tables with columns of free text.
FAST = ("linear", "boosting_small")
DEFAULT = ("linear", "boosting_small", "extra_trees", "boosting", "kernel")


def make_families(
    models: Any,
    *,
    metric: Metric,
    average: ScalarAverage,
    requirements: Sequence[Requirement],
    device: str | None = None,
    table: Any = None,
    quality: str = "default",
) -> list[Family]:
    """Make the families that the parameter ``models`` of MetricClassifier describes.

    Args:
        models: "auto", a name, a Network, an InContext, a scikit-learn classifier, or a list of these or of
            (name, model) pairs. "auto" in a list stands for its families.
        metric: The metric, for families that are trained for it.
        average: Its average over several classes.
        requirements: The requirements, for networks that are trained under them.
        device: The device of networks; None for a GPU if there is one.
        table: The table as the user passed it: "auto" has the family "text" if it has columns of free text.
        quality: How many families "auto" stands for.

    Returns:
        The families, ours in the order of ``NAMES``, then the user's.

    Raises:
        InvalidValueError: A name is not known, two models have one name, or one is trained for the metric, whose costs
            are in columns.
        InvalidTypeError: A model is no classifier.

    Example:
        >>> from metricfit.metrics import f1
        >>> made = make_families("auto", metric=f1, average="macro", requirements=())
        >>> [family.name for family in made]
        ['linear', 'boosting_small', 'extra_trees', 'boosting', 'kernel']
    """
    makers: dict[str, Callable[[], Family]] = {
        "linear": Linear,
        "text": TextLinear,
        "kernel": Kernel,
        "boosting": Boosting,
        "boosting_small": lambda: Boosting("boosting_small", SMALL),
        "boosting_metric": lambda: Boosting("boosting_metric", SMALL, metric=metric, average=average),
        "extra_trees": ExtraTrees,
        **{package: partial(OtherBoosting, package) for package in OTHER_BOOSTING},
        # More members gain nothing for our own network (docs/evidence/tables.md), and cost as much again.
        "in_context": lambda: foundation(InContext("metricfit", members=1)),
        "tabicl": lambda: foundation(InContext("tabicl")),
        "tabpfn": lambda: foundation(InContext("tabpfn")),
        "network": lambda: network(Network()),
    }

    def foundation(settings: InContext) -> Family:
        return InContextFamily(settings, None if settings.package == "metricfit" else device)

    def network(settings: Network) -> Family:
        with explain_missing(
            "the family 'network'", ("torch", "lightning_fabric", "rtdl_num_embeddings"), "metricfit[torch]"
        ):
            from metricfit.tabular.families.network_models import NetworkFamily
        return NetworkFamily(settings, metric, average, requirements=requirements, device=device)

    def make(name: str | None, model: Any) -> Family:
        if isinstance(model, str):
            if model not in makers:
                raise InvalidValueError(
                    f"a model is one of {', '.join(map(repr, NAMES))}, tabular.Network(...), "
                    f"tabular.InContext(...) or a scikit-learn classifier; got {quote(model)}"
                )
            family = makers[model]()
        elif isinstance(model, Network):
            family = network(model)
        elif isinstance(model, InContext):
            family = foundation(model)
        else:
            family = UserModel(type(model).__name__, model)
        if name is not None:
            family.name = name
        return family

    families = [make(*named) for named in _named_models(models, default_families(table, quality))]
    for family in families:
        if metric.columns and family.trains_for_metric:
            raise InvalidValueError(
                f"{family.name} is trained for a metric of counts, and {metric.name} has a cost for each row: use "
                f"{', '.join(map(repr, DEFAULT))} or Network(recipe='bce')"
            )
    names = [family.name for family in families]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidValueError(f"two models are called {twice!r}; name them: models=[('first', ...), ('second', ...)]")
    order = {name: place for place, name in enumerate(NAMES)}
    return sorted(families, key=lambda family: order.get(family.name, len(order)))


def default_families(table: Any, quality: str = "default") -> tuple[str, ...]:
    """Return the names of the families that ``models="auto"`` stands for.

    >>> default_families(None)
    ('linear', 'boosting_small', 'extra_trees', 'boosting', 'kernel')
    """
    names = set(FAST if quality == "fast" else DEFAULT)
    if free_text_columns(table):
        names.add("text")
    if quality == "best":
        names |= {package for package in OTHER_BOOSTING if find_spec(package) is not None}
        names |= {name for package, name in FOUNDATION.items() if own_weights(package) is not None}
    return tuple(name for name in NAMES if name in names)


def _named_models(models: Any, default: Sequence[str]) -> list[tuple[str | None, Any]]:
    """Return (name, model) pairs; the name is None where the user gave none."""
    if not isinstance(models, (list, tuple)):
        models = [models]
    if not models:
        raise InvalidValueError("models is empty; name at least one, or use models='auto'")
    named: list[tuple[str | None, Any]] = []
    for model in models:
        if isinstance(model, tuple):
            if len(model) != 2 or not isinstance(model[0], str):
                raise InvalidTypeError(f"a named model is a pair of a name and a model; got {quote(model)}")
            named.append((model[0], model[1]))
        elif isinstance(model, str) and model == "auto":
            named += [(None, name) for name in default]
        else:
            named.append((None, model))
    return named
