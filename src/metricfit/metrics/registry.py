"""The names of metrics, and which name was probably meant where there is none."""

from __future__ import annotations

import difflib
import re
from typing import Any

from metricfit.errors import InvalidValueError, quote

_BUILTIN: dict[str, Any] = {}
_USER_DEFINED: dict[str, Any] = {}
#: Second names.
_ALIASES = {
    "dice": "f1",
    "iou": "jaccard",
    "ppv": "precision",
    "tpr": "recall",
    "sensitivity": "recall",
    "tnr": "specificity",
    "youden": "informedness",
}

#: Measures of scores, which are no formulas over counts.
_RANKINGS: dict[str, Any] = {}

#: Names of other libraries, without ``_score`` at the end and in lower case, and the name here.
_OTHER_NAMES = {
    "acc": "accuracy",
    "ap": "average_precision",
    "auc": "auroc",
    "auc_pr": "average_precision",
    "auc_roc": "auroc",
    "auprc": "average_precision",
    "balanced_acc": "balanced_accuracy",
    "cohen_kappa": "kappa",
    "f": "f1",
    "f_1": "f1",
    "false_negative_rate": "fnr",
    "false_positive_rate": "fpr",
    "g_mean": "gmean",
    "geometric_mean": "gmean",
    "jaccard_index": "jaccard",
    "matthews_corrcoef": "mcc",
    "pr_auc": "average_precision",
    "hand_till": "auroc_ovo",
    "roc_auc": "auroc",
    "roc_auc_ovo": "auroc_ovo",
    "roc_auc_ovr": "auroc",
    "true_negative_rate": "specificity",
    "true_positive_rate": "recall",
}


def add_builtin(name: str, entry: Any) -> None:
    """Register a metric or factory of this library."""
    _BUILTIN[name] = entry


def add_ranking(name: str, entry: Any) -> None:
    """Register a measure of scores of this library."""
    _RANKINGS[name] = entry


def add_user_defined(name: str, entry: Any) -> None:
    """Register a user's metric; defining it again, as notebooks do, replaces it.

    Raises:
        InvalidValueError: The name belongs to a metric of this library.
    """
    if name in _BUILTIN or name in _ALIASES or name in _RANKINGS:
        raise InvalidValueError(f"{name!r} is the name of a metric of this library; give yours another name")
    _USER_DEFINED[name] = entry


def names() -> tuple[str, ...]:
    """List the metrics of this library.

    Returns:
        The names that ``get_metric`` takes, without parameters and without aliases.

    Example:
        >>> "f1" in names()
        True
    """
    return tuple(_BUILTIN)


def aliases(name: str) -> tuple[str, ...]:
    """List the other names of a metric of this library."""
    return tuple(other for other, metric in _ALIASES.items() if metric == name)


def is_known(name: str) -> bool:
    """Return whether a metric, a factory or a measure of scores has this name."""
    return any(name in names for names in (_BUILTIN, _USER_DEFINED, _ALIASES, _RANKINGS))


def find(name: str) -> Any:
    """Look up a metric or factory by its name or alias.

    Raises:
        InvalidValueError: There is none; the message suggests the name that was probably meant.
    """
    known = _BUILTIN | _USER_DEFINED
    metric = known.get(_ALIASES.get(name, name)) or known.get(_of_scoring(name))
    if metric is not None:
        return metric
    suggestion = _suggestion(name, known)
    if suggestion in _RANKINGS:
        raise InvalidValueError(ranking_message(name, suggestion))
    hint = "." if suggestion is None else f"; did you mean {suggestion!r}?"
    raise InvalidValueError(f"there is no metric {quote(name)}{hint} Known: {', '.join(sorted(known))}")


def _of_scoring(name: str) -> str:
    """Return the metric of one of scikit-learn's scoring names; its average is the default one.

    Raises:
        InvalidValueError: The name holds another average, which metrics do not have.
    """
    if name == "matthews_corrcoef":
        return "mcc"
    metric, average = split_scoring_name(name)
    if average in (None, "macro"):
        return metric
    raise InvalidValueError(f"{name!r} is {metric!r} with average={average!r}: pass the two separately")


def split_scoring_name(name: str) -> tuple[str, Any]:
    """Split one of scikit-learn's scoring names into the metric and its average, which is None for other names.

    Example:
        >>> split_scoring_name("f1_weighted"), split_scoring_name("gmean")
        (('f1', 'weighted'), ('gmean', None))
    """
    metric, _, average = name.rpartition("_")
    is_scoring = metric in ("f1", "precision", "recall", "jaccard") and average in ("macro", "micro", "weighted")
    return (metric, average) if is_scoring else (name, None)


def name_in_scikit_learn(function: Any) -> str | None:
    """Return the name of a function or scorer of ``sklearn.metrics``; None for anything else."""
    if not str(getattr(function, "__module__", "")).startswith("sklearn.metrics"):
        return None
    theirs = getattr(function, "_score_func", function)
    return str(getattr(theirs, "__name__", type(theirs).__name__))


def suggestion(name: str) -> str | None:
    """Guess which metric or measure of scores was meant by a name; None if nothing is like it."""
    return _suggestion(name, _BUILTIN | _USER_DEFINED)


def resolve_aliases(text: str) -> str:
    """Replace the second names of metrics in a text by the names that results have.

    Example:
        >>> resolve_aliases("best dice"), resolve_aliases("iou per image")
        ('best f1', 'jaccard per image')
    """
    return re.sub(r"\w+", lambda word: _ALIASES.get(word[0], word[0]), text)


def find_ranking(name: str) -> Any | None:
    """Look up a measure of scores by its name; None if there is none of that name."""
    return _RANKINGS.get(_OTHER_NAMES.get(name, name) if name.startswith("roc_auc") else name)


def rankings() -> tuple[str, ...]:
    """List the measures of scores."""
    return tuple(_RANKINGS)


def ranking_message(written: str, name: str) -> str:
    """Explain that a measure of scores is no metric of decisions, and what to use instead.

    Args:
        written: What the user wrote.
        name: The name of the measure.
    """
    did_you_mean = "." if written == name else f"; did you mean {name!r}?"
    first = "losses.AveragePrecisionLoss" if name == "average_precision" else "losses.SoftAUROCLoss"
    curve = "curves.auroc(..., versus='one')" if name == "auroc_ovo" else f"curves.{name}"
    return (
        f"{quote(written)} is not a metric of decisions{did_you_mean} {name} ranks scores: call metrics.{name} or "
        f"{curve} with scores and labels. {first} and losses.PairHingeLoss train for a good ranking"
    )


def _suggestion(name: str, known: dict[str, Any]) -> str | None:
    """Guess which name was meant."""
    plain = name[:100].lower().removesuffix("_score")
    plain = _OTHER_NAMES.get(plain, plain)
    if plain in known or plain in _ALIASES or plain in _RANKINGS:
        return plain
    if beta := re.fullmatch(r"f_?(\d)(?:_?(\d))?", plain):
        whole, tenth = beta.groups()
        return f"fbeta(beta={whole}.{tenth})" if tenth else f"fbeta(beta={whole})"
    close = difflib.get_close_matches(plain, [*known, *_ALIASES, *_RANKINGS], n=1)
    return close[0] if close else None
