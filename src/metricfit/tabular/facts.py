"""What there is to say about a fitted model, computed once, and the model card that says it in Markdown."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import numpy as np

from metricfit._version import __version__
from metricfit.decide.bounds import format_percent
from metricfit.decide.evidence import GUARANTEED
from metricfit.errors import shorten
from metricfit.metrics import accuracy, averaged, f1, precision, recall, specificity
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import get_metric
from metricfit.stats.resampling import percentile_interval
from metricfit.tabular.ensemble import ModelRow
from metricfit.tabular.insight.judged_rows import held_out_decisions, held_out_rows
from metricfit.tabular.insight.value_intervals import drawn_counts, weighted_counts
from metricfit.tabular.row_folds import is_forward

Ends = tuple[float, float]
#: What is known about a requirement: it holds on new rows, probably does, was met on the held-out rows alone, or not.
State = Literal["guaranteed", "certified", "met", "unmet"]

#: A class with fewer held-out rows is reported.
FEW_ROWS = 100
#: Maximum number of classes that one sentence lists.
LISTED = 20
SCOPE = (
    "The values are for rows of the same kind as the training rows. Rows of another time, place or source were not "
    "checked: compare values with metricfit evaluate on labelled rows, and the class balance with "
    'rethreshold(prevalence="estimate", X=new_rows).'
)

#: What a confidence is about if rows are in groups: requirements are then tested on one row of each group.
ROW_OF_A_GROUP = "a row drawn at random from a new group"


@dataclass(frozen=True)
class RequirementFact:
    """What is known about one requirement.

    Attributes:
        text: The requirement, such as "recall >= 0.9".
        value: Its value on the held-out rows.
        met: Whether that meets the bound.
        reachable: The best value that any threshold reaches.
        state: "guaranteed" on new rows, "certified" on cross-validated scores, "met" on held-out rows, or "unmet".
        description: The state in a few words, with the value.
    """

    text: str
    value: float
    met: bool
    reachable: float
    state: State
    description: str


@dataclass(frozen=True)
class ClassFact:
    """One class or label.

    Attributes:
        name: Its label; of several labels, the number of its column.
        rows: The number of its held-out rows.
        share: Its share of the held-out rows.
    """

    name: Any
    rows: int
    share: float


@dataclass(frozen=True)
class ModelFacts:
    """What there is to say about a fitted MetricClassifier or TunedDecisionClassifier.

    Attributes:
        kind: The name of the model's class.
        task: "binary", "multiclass" or "multilabel".
        metric: The name of the metric.
        label: The name of the metric, with its average if there is one.
        average: The average over several classes or labels; None for metrics without one.
        minimize: Whether lower values are better.
        value: The metric to expect on new rows.
        value_interval: Its 95 % interval.
        held_out_value: The metric on the held-out rows. It differs from ``value`` if their labels chose the decision.
        decision: How the decision is made, in words.
        threshold: The threshold of two classes; None for other decisions.
        threshold_interval: Its 95 % interval.
        refer_region: The probabilities that are referred to a person: from the first on and below the second. Of
            several classes, the ratios of the best class to the second best.
        referred_share: The share of the held-out rows in that region.
        requirements: What is known about each requirement.
        requirements_met: Whether all are met, or with a confidence certified.
        not_reachable: What is reachable, if they are not met.
        confidence: The probability for which they are certified; None if they are not.
        certificate: What that says about new rows.
        out_of_fold: Whether new rows are scored by other models than the held-out rows.
        classes: The classes or labels in the order of their numbers; of two, the second is the positive one.
        positive: The positive class of two; None for others.
        prevalence: The class balance that the model decides for, if it is not the one of training.
        rows: The number of held-out rows on which the decision was chosen; each row counts once.
        total: The number of rows of the table that ``fit`` got; None for models that were loaded.
        apart: Whether no model was trained on these rows; otherwise each was held out by some fold.
        groups: The number of groups of these rows; None if there were no groups.
        columns: The number of columns; None if only the estimator knows it.
        column_names: Their names, if they have some.
        column_kinds: The number of columns of each kind, for a MetricClassifier.
        families: The families of a MetricClassifier: their weights, values and seconds, and why they were left out.
        estimator: The estimator of a TunedDecisionClassifier, in words.
        limits: What the values do not cover, one or a few sentences each.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> facts = model_facts(MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1))
        >>> facts.kind, facts.label, facts.positive, [each.rows for each in facts.classes]
        ('MetricClassifier', 'f1', True, [168, 32])
    """

    kind: str
    task: Literal["binary", "multiclass", "multilabel"]
    metric: str
    label: str
    average: str | None
    minimize: bool
    value: float
    value_interval: Ends | None
    held_out_value: float
    decision: str
    threshold: float | None
    threshold_interval: Ends | None
    refer_region: Ends | None
    referred_share: float
    requirements: tuple[RequirementFact, ...]
    requirements_met: bool
    not_reachable: str | None
    confidence: float | None
    certificate: str | None
    out_of_fold: bool
    classes: tuple[ClassFact, ...]
    positive: Any
    prevalence: float | Mapping[Any, float] | None
    rows: int
    total: int | None
    apart: bool
    groups: int | None
    columns: int | None
    column_names: tuple[str, ...]
    column_kinds: Mapping[str, int]
    families: tuple[ModelRow, ...]
    estimator: str | None
    limits: tuple[str, ...]

    @property
    def in_groups(self) -> bool:
        """Whether some of these rows are in one group."""
        return self.groups is not None and self.groups < self.rows

    @property
    def basis(self) -> str:
        """What the estimate of the metric on new rows is made from."""
        if self.requirements:
            return "the value on held-out rows, on which the decision was chosen"
        if self.value == self.held_out_value:
            return "the value on held-out rows"
        change = f"{'plus' if self.minimize else 'minus'} {abs(self.held_out_value - self.value):.3f}"
        return f"{self.held_out_value:.3f} on held-out rows, {change} because their labels chose the decision"

    @property
    def referral(self) -> str | None:
        """Which rows are referred to a person, and how many; None if every row is decided."""
        if self.refer_region is None:
            return None
        low, high = self.refer_region
        share = f"{100 * self.referred_share:.3g} % of the held-out rows, which the value leaves out"
        if self.positive is None:
            few = f"less than {high:.4g} times the second best"
            return f"Rows whose best class is {few} are referred to a person: {share}."
        return f"Probabilities of {self.positive} from {low:.4g} to {high:.4g} are referred to a person: {share}."

    @property
    def chosen_on_labels(self) -> bool:
        """Whether the labels of the held-out rows chose the decision, so that the value there is slightly too good."""
        return bool(self.requirements) or self.value != self.held_out_value

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values, as JSON holds them."""
        return asdict(self)


def model_facts(model: Any) -> ModelFacts:
    """Collect what there is to say about a fitted model.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.

    Returns:
        The facts.
    """
    metric, evidence, held_out = get_metric(model.metric), model.decision_.evidence, model.held_out_
    several = len(model.classes_) > 2 and not metric.whole_matrix
    classes, places = _classes(model), model.chosen_.basis.places
    rows = len(held_out.y) if places is None else len(np.unique(places.rows))
    groups = None if held_out.groups is None else len(np.unique(held_out.groups))
    in_groups = groups is not None and groups < rows
    columns = getattr(getattr(model, "encoder_", None), "columns", None) or []
    kinds = [column.kind for column in columns if column is not None]
    copied = ("value", "value_interval", "threshold", "refer_region", "referred_share", "requirements_met")
    attributes: dict[str, Any] = {name: getattr(model, f"{name}_") for name in (*copied, "confidence", "certificate")}
    return ModelFacts(
        kind=type(model).__name__,
        task=model.decision_.task,
        metric=metric.name,
        label=f"{model.average} {metric.name}" if several else metric.name,
        average=model.average if several else None,
        minimize=metric.minimize,
        held_out_value=evidence.value,
        decision=model.decision_.describe([each.name for each in classes]),
        threshold_interval=model.threshold_interval_ if model.decision_.task == "binary" else None,
        requirements=tuple(_requirement(model, text, each, in_groups) for text, each in model.requirements_.items()),
        not_reachable=evidence.not_reachable,
        out_of_fold=evidence.out_of_fold,
        classes=classes,
        positive=model.pos_label_,
        prevalence=model.prevalence_ if model.shift_.any() else None,
        rows=rows,
        total=None if places is None else places.total,
        apart=not model.chosen_.basis.out_of_fold,
        groups=groups,
        columns=getattr(model, "n_features_in_", None),
        column_names=tuple(map(str, getattr(model, "feature_names_in_", ()))),
        column_kinds={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        families=tuple(getattr(model, "models_", ())),
        estimator=_estimator(model),
        limits=tuple(_limits(model, classes, in_groups)),
        **attributes,
    )


def _classes(model: Any) -> tuple[ClassFact, ...]:
    """Return the classes in the order of their numbers, or the labels, with their held-out rows."""
    y, names = np.asarray(model.held_out_.y), model.chosen_.names.in_order.tolist()
    if y.ndim == 2:
        counts, shares = y.sum(0), np.asarray(model.held_out_.shares)
    else:
        counts = np.bincount(y, minlength=len(names))
        shares = counts / counts.sum()
    parts = zip(names, counts.tolist(), shares.tolist(), strict=True)
    return tuple(ClassFact(name, int(rows), share) for name, rows, share in parts)


def _requirement(model: Any, text: str, result: RequirementValue, in_groups: bool) -> RequirementFact:
    on_rows = f"{result.value:.4g} on held-out rows"
    state: State
    if model.confidence_ is not None:
        state = "guaranteed" if model.certificate_ == GUARANTEED else "certified"
        about = f" for {ROW_OF_A_GROUP}" if in_groups else ""
        words = f"{model.certificate_} at {format_percent(model.confidence_)} confidence{about} ({on_rows})"
    elif not result.met:
        state, words = "unmet", f"NOT {'met' if model.confidence is None else 'certified'} ({on_rows})"
    else:
        state, words = "met", f"met on held-out rows only ({result.value:.4g})"
    return RequirementFact(text, result.value, result.met, result.reachable, state, words)


def _estimator(model: Any) -> str | None:
    """Name the estimator of a TunedDecisionClassifier, and say how it was fitted."""
    if not hasattr(model, "estimators_"):
        return None
    folds = len(model.estimators_)
    return f"{type(model.estimator).__name__}, {f'fitted on {folds} folds' if folds else 'fitted before'}"


NOT_SPLIT_BY_TIME = "The rows were not split by time. If new rows are later ones, the values can be worse."
NO_GROUPS = (
    "No groups were given: rows of one person or thing may be both in training and among the held-out rows, and the "
    "values of groups were not compared."
)
NOTHING_GUARANTEED = "The requirements were checked on held-out rows, and nothing is guaranteed on new rows."
APPROXIMATE = (
    "The requirements were certified on cross-validated scores. New rows are scored by other models, so the confidence "
    "is approximate. Rows that are kept apart (calibration=0.3) make it exact."
)
ABOUT_GROUPS = (
    f"The requirements were tested on one row of each group, so the confidence is about {ROW_OF_A_GROUP}. Large groups "
    "do not count more than small ones."
)
NOT_CHECKED = (
    "What the columns mean, how the labels came about, and what wrong decisions do to people were not checked."
)


def _limits(model: Any, classes: tuple[ClassFact, ...], in_groups: bool) -> list[str]:
    """Say what the values of a model do not cover."""
    evidence, sure = model.decision_.evidence, model.confidence_ is not None
    few = sorted((each for each in classes if each.rows < FEW_ROWS), key=lambda each: each.rows)
    listed = ", ".join(f"{each.name} has {each.rows}" for each in few[:LISTED])
    of_few = f"Few rows: {listed}. Values that depend on these rows are uncertain."
    limits = [
        (bool(few) and model.decision_.task != "multilabel", of_few),
        (bool(model.requirements_) and not sure, NOTHING_GUARANTEED),
        (sure and evidence.out_of_fold, APPROXIMATE),
        (sure and in_groups, ABOUT_GROUPS),
        (not model.requirements_met_, f"The requirements are not met: {evidence.not_reachable}."),
        (True, SCOPE),
        (not is_forward(getattr(model, "cv", None)), NOT_SPLIT_BY_TIME),
        (model.held_out_.groups is None, NO_GROUPS),
        (True, NOT_CHECKED),
    ]
    return [text for holds, text in limits if holds]


PACKAGES = ("torch", "scikit-learn", "lightgbm", "numpy", "pandas", "scipy")
#: Maximum number of classes or columns that the card lists.
CARD_LISTED = 60
KINDS = {"number": "numeric", "category": "categorical", "date": "dates", "text": "text"}
MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~!$])")
#: Metrics of the held-out decisions that every card of classes shows.
SHOWN = (precision, recall, specificity, f1, accuracy)
#: Maximum length of a sentence of the facts.
SENTENCE = 2_000


def model_card(model: Any, *, data: str | None = None, target: str | None = None) -> str:
    """Describe a fitted model in Markdown: data, metric, decision, values, models, limits and versions.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        data: Name of the table.
        target: Name of the predicted column.

    Returns:
        The text. What comes from the user is escaped, and it has no entries of rows.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model_card(model, data="churn.csv").splitlines()[0]
        '# Model card: churn.csv'
    """
    facts = model_facts(model)
    about = [name for name in (data, target) if name is not None]
    title = ", ".join(escaped(name) for name in about) or f"decisions for {escaped(facts.metric)}"
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    parts = [
        f"# Model card: {title}",
        f"A {facts.kind}, saved on {day} by metricfit {__version__}. This file is for people: loading the "
        "model ignores it. It has no entries of rows.",
        _section("Data", _data_lines(facts, data, target)),
        _section("Decision", _decision_lines(facts)),
        _section("Values", [*_value_lines(facts), *_other_metrics(model)]),
        _section("Models", _model_lines(facts)),
        _section("Limits", [f"- {escaped(limit, SENTENCE)}" for limit in facts.limits]),
        _section("Versions", [f"- {name} {number}" for name, number in _versions()]),
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: Any, longest: int = 120) -> str:
    r"""Return text as Markdown shows it literally, on one line and not too long.

    >>> escaped("<b>a_b|c\n</b>")
    '&lt;b&gt;a\\_b\\|c &lt;/b&gt;'
    """
    plain = "".join(letter if letter.isprintable() else " " for letter in str(text))
    short = shorten(" ".join(plain.split()), longest)
    return MARKDOWN.sub(r"\\\1", short).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, the first column to the left and the others to the right."""
    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines])


def _data_lines(facts: ModelFacts, data: str | None, target: str | None) -> list[str]:
    lines = [] if data is None else [f"- Table: {escaped(data)}"]
    lines += [] if target is None else [f"- Predicted column: {escaped(target)}"]
    total = "" if facts.total in (None, facts.rows) else f" of {facts.total:,}"
    judged = "were kept apart from training" if facts.apart else "were held out of some model's training"
    lines += [f"- Rows that {judged}, and judged: {facts.rows:,}{total}", f"- {_columns(facts)}"]
    if facts.groups is not None and facts.groups < facts.rows:
        lines.append(f"- Groups of rows that were held out together: {facts.groups:,}")
    if facts.task == "multilabel":
        shares = [(escaped(each.name), f"{each.share:.2%}") for each in facts.classes[:CARD_LISTED]]
        return [*lines, "", *_table(["Label", "Share of rows"], shares)]
    largest = sorted(facts.classes, key=lambda each: -each.rows)[:CARD_LISTED]
    listed = [(escaped(each.name), f"{each.rows:,}", f"{each.share:.2%}") for each in largest]
    more = [f"\n... and {len(facts.classes) - CARD_LISTED} more classes"] if len(facts.classes) > CARD_LISTED else []
    return [*lines, "", *_table(["Class", "Rows", "Share"], listed), *more]


def _columns(facts: ModelFacts) -> str:
    if facts.columns is None:
        return "Columns: as the estimator takes them"
    of_kinds = ", ".join(f"{facts.column_kinds[kind]} {KINDS[kind]}" for kind in KINDS if kind in facts.column_kinds)
    names = [escaped(name) for name in facts.column_names]
    listed = ", ".join(names[:CARD_LISTED]) + (", ..." if len(names) > CARD_LISTED else "")
    return f"Columns: {facts.columns}" + (f" ({of_kinds})" if of_kinds else "") + (f": {listed}" if names else "")


def _decision_lines(facts: ModelFacts) -> list[str]:
    """Say for which metric and requirements the model decides, and how."""
    of = "labels" if facts.task == "multilabel" else "classes"
    average = "" if facts.average is None else f", {facts.average} average over the {of}"
    better = "lower" if facts.minimize else "higher"
    lines = [f"- Metric: {escaped(facts.metric)}{average}; {better} is better"]
    if facts.positive is not None:
        lines.append(f"- Positive class: {escaped(facts.positive)}")
    lines += [f"- Requirement {escaped(each.text)}: {each.description}" for each in facts.requirements]
    lines.append(f"- Decision: {escaped(facts.decision, SENTENCE)}")
    if facts.referral is not None:
        lines.append(f"- {escaped(facts.referral)}")
    if facts.prevalence is not None:
        lines.append(
            f"- Class balance that it decides for: {_balance(facts.prevalence)}; the balance of training was another"
        )
    return lines


def _balance(balance: float | Mapping[Any, float]) -> str:
    if isinstance(balance, Mapping):
        return ", ".join(f"{escaped(name)} {share:.3g}" for name, share in balance.items())
    return f"{balance:.3g} of the positive class"


def _value_lines(facts: ModelFacts) -> list[str]:
    ends = facts.value_interval
    interval = "" if ends is None else f" (95 % interval {ends[0]:.4g} to {ends[1]:.4g})"
    return [f"{escaped(facts.metric)} is {facts.value:.4g}{interval}, estimated for new rows: {facts.basis}."]


def _other_metrics(model: Any) -> list[str]:
    """Return a table of other metrics on the held-out rows; nothing for several labels."""
    held_out = held_out_rows(model)
    y = np.asarray(held_out.y)
    if y.ndim == 2:
        return []
    decided, classes = np.asarray(held_out_decisions(model)), len(model.classes_)
    counted = decided >= 0
    weight = None if held_out.weight is None else np.asarray(held_out.weight, dtype=np.float64)[counted]
    part = (decided[counted], y[counted])
    ones = np.ones((1, int(counted.sum()))) if weight is None else weight[None]
    exact, drawn = weighted_counts(classes, part[1], part[0], ones), drawn_counts(*part, classes, weight)
    if classes == 2:
        exact, drawn = (counts.map(lambda cell: cell[..., 1:]) for counts in (exact, drawn))
    rows = []
    for shown in SHOWN:
        if classes > 2 and shown is specificity:
            continue
        value = float(averaged(shown, exact, "macro")[0])
        low, high = percentile_interval(averaged(shown, drawn, "macro"))
        name = shown.name if classes == 2 or shown.whole_matrix else f"macro {shown.name}"
        rows.append((name, f"{value:.4g}", f"{min(low, value):.4g} to {max(high, value):.4g}"))
    return ["", *_table(["On held-out rows", "Value", "95 % interval"], rows)]


def _model_lines(facts: ModelFacts) -> list[str]:
    if facts.estimator is not None:
        return [f"- Estimator: {escaped(facts.estimator)}"]
    fitted = [
        (escaped(row.name), f"{row.weight:.2f}", f"{row.value:.4g}", f"{row.log_loss:.4g}", f"{row.seconds:.1f}")
        for row in facts.families
        if row.left_out is None
    ]
    head = ["Family", "Weight", f"{escaped(facts.metric)} out of fold", "Cross-entropy", "Seconds"]
    left_out = [f"- Left out: {escaped(row.name)} ({escaped(row.left_out)})" for row in facts.families if row.left_out]
    return [*_table(head, fitted), *([""] if left_out else []), *left_out]


def _versions() -> list[tuple[str, str]]:
    found = [("metricfit", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found
