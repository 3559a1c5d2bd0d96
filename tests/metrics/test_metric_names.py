"""Metrics by name: parsed, never evaluated; aliases, suggestions, parameters."""

import math

import pytest

from metricfit import get_metric, metrics, parse_requirement
from oracles import INSTANCES

ATTACKS = [
    "__import__('os')",
    "__import__('os').system('true')",
    "fbeta(beta=open('x'))",
    "fbeta(beta=__import__('os').getpid())",
    "fbeta(open('x'))",
    "fbeta(beta=f1)",
    "fbeta(beta=10**9)",
    "fbeta(beta=[1, open('x')])",
    "fbeta(beta=(lambda: 1)())",
    "fbeta(beta=[x for x in (1, 2)])",
    "fbeta(*[2])",
    "fbeta(**{'beta': 2})",
    "f1.formula",
    "f1.__class__",
    "f1.formula(1)",
    "f1; 1",
    "f1\nimport os",
    "f1 + f1",
    "-f1",
    "f1 if 1 else f1",
    "f1 or f1",
    "lambda: f1",
    "(f1 := 1)",
    "f1[open('x')]",
    "f1[f1()]",
    "f1[:]",
    "f1[0][1]",
    "f1[0].formula",
    "f1[{[]: 1}]",
    "fbeta(beta={[]})",
    "fbeta(2)(2)",
    "await f1",
    "f'{f1}'",
    "'f1'",
    "1",
    "",
    "   ",
    "f1\x00",
    "f1(",
    "(" * 3000,
    "-" * 100_000 + "1",
    "eval('f1')",
    "exec",
    "get_metric",
]


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: repr(text[:30]))
def test_what_is_not_a_name_with_literals_is_refused(text):
    with pytest.raises(ValueError, match=r"cannot read the (metric|formula)|there is no metric"):
        get_metric(text)


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: repr(text[:30]))
def test_requirements_are_as_strict_about_the_metric(text):
    with pytest.raises(ValueError, match=r"cannot read|there is no metric|one side must be a number"):
        parse_requirement(f"{text} >= 0.5")


@pytest.mark.parametrize("text", [text for text in ATTACKS if text != "1"], ids=lambda text: repr(text[:30]))
def test_requirements_are_as_strict_about_the_bound(text):
    with pytest.raises(ValueError, match=r"cannot read|there is no metric|one side must be a number"):
        parse_requirement(f"recall >= {text}")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("dice", "f1"),
        ("iou", "jaccard"),
        ("ppv", "precision"),
        ("tpr", "recall"),
        ("sensitivity", "recall"),
        ("tnr", "specificity"),
        ("youden", "informedness"),
    ],
)
def test_aliases(alias, name):
    assert get_metric(alias) is get_metric(name) is getattr(metrics, name)


@pytest.mark.parametrize("name", metrics.names())
def test_every_name_is_found_and_is_the_modules_own(name):
    found = get_metric(INSTANCES.get(name, name))
    assert found.base_name == name
    if name not in INSTANCES:
        assert found is getattr(metrics, name)


def test_names_of_the_design_are_there():
    assert set(metrics.names()) >= {
        *("f1", "accuracy", "precision", "recall", "specificity", "fpr", "fnr", "npv", "jaccard", "gmean"),
        "selection_rate",
        *("balanced_accuracy", "mcc", "kappa", "informedness", "markedness", "fowlkes_mallows", "p4"),
        *("fbeta", "tversky", "cost", "cost_matrix", "weighted_kappa"),
    }


def test_white_space_is_free():
    assert get_metric("  fbeta( beta = 2 ) [ 1 ] ") == metrics.fbeta(beta=2)[1]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("fone", None),
        ("recal", "recall"),
        ("accurracy", "accuracy"),
        ("sensitivty", "sensitivity"),
        ("F1", "f1"),
        ("f1_score", "f1"),
        ("f2", "fbeta(beta=2)"),
        ("f0_5", "fbeta(beta=0.5)"),
        ("Dice", "dice"),
        ("cohen_kappa_score", "kappa"),
        ("balanced_accuracy_score", "balanced_accuracy"),
    ],
)
def test_an_unknown_name_lists_the_known_and_suggests(wrong, right):
    with pytest.raises(ValueError, match=f"there is no metric '{wrong}'") as caught:
        get_metric(wrong)
    message = str(caught.value)
    assert set(metrics.names()) <= set(message.split("Known: ")[1].split(", "))
    if right is not None:
        assert f"did you mean '{right}'?" in message


@pytest.mark.parametrize("written", ["auroc", "AUC", "roc_auc_score", "AUROC", "roc_auc"])
def test_the_area_under_the_roc_curve_is_suggested_as_a_measure_of_scores(written):
    with pytest.raises(ValueError, match=f"'{written}' is not a metric of decisions.*metrics.auroc or curves.auroc"):
        get_metric(written)


def test_an_unknown_name_without_a_suggestion_is_still_a_sentence():
    with pytest.raises(ValueError, match=r"there is no metric 'zzzz'[.;:,] ?Known: "):
        get_metric("zzzz")


def test_parameters_by_position_by_name_and_as_lists():
    assert get_metric("fbeta(2)") == get_metric("fbeta(beta=2)") == metrics.fbeta(2) == metrics.fbeta(beta=2)
    assert get_metric("tversky(0.3, beta=0.7)") == metrics.tversky(alpha=0.3, beta=0.7)
    assert get_metric("fbeta(beta=[1, 1, 5])") == metrics.fbeta(beta=(1, 1, 5))
    assert get_metric("cost(fp=1, fn=10)").parameters == {"fp": 1, "fn": 10}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("fbeta", TypeError, r"fbeta.*needs its parameters|missing a required argument: 'beta'"),
        ("fbeta()", TypeError, "missing a required argument: 'beta'"),
        ("fbeta(gamma=2)", TypeError, "missing a required argument: 'beta'|unexpected keyword argument 'gamma'"),
        ("fbeta(1, 2)", TypeError, "too many positional arguments"),
        ("fbeta(2, beta=2)", TypeError, "multiple values for argument 'beta'"),
        ("fbeta(beta='2')", TypeError, "beta must be a number or a list of them, got '2'"),
        ("fbeta(beta=None)", TypeError, "beta must be a number or a list of them, got None"),
        ("fbeta(beta=True)", TypeError, "beta must be a number or a list of them, got True"),
        ("fbeta(beta=[1, 'a'])", TypeError, "beta must be a number or a list of them, got 'a'"),
        ("fbeta(beta=[])", ValueError, "beta has no values"),
        ("fbeta(beta=-1)", ValueError, "beta must be at least 0, got -1"),
        ("fbeta(beta=-inf)", ValueError, "beta must be at least 0, got -inf"),
        ("tversky(1, 1e999)", ValueError, "beta must be at least 0 and at most 1e\\+20, got inf"),
        ("f1(2)", ValueError, r"f1 takes no parameters; write 'f1' alone"),
        ("f1(beta=2)", ValueError, "f1 takes no parameters"),
        ("f1[-1]", TypeError, r"f1\[k\] takes a class number from 0 on, or the name of a class, got -1"),
        ("f1['']", TypeError, r"f1\[k\] takes a class number from 0 on, or the name of a class, got ''"),
        ("f1[True]", TypeError, r"f1\[k\] takes a class number from 0 on, or the name of a class, got True"),
        ("accuracy[0]", TypeError, "accuracy is one number for the whole confusion matrix"),
    ],
)
def test_wrong_parameters_are_refused_by_name(text, error, message):
    with pytest.raises(error, match=message):
        get_metric(text)


def test_a_parameter_given_twice_is_refused():
    with pytest.raises((ValueError, TypeError), match="beta"):
        get_metric("fbeta(beta=1, beta=2)")


@pytest.mark.parametrize("text", ["fbeta(beta=inf)", "fbeta(inf)", "fbeta(beta=1e999)"])
def test_an_infinite_beta_is_read_and_written(text):
    found = get_metric(text)
    assert found == metrics.fbeta(beta=math.inf)
    assert found.name == "fbeta(beta=inf)"
    assert get_metric("fbeta(beta=[1, inf])").parameters == {"beta": (1.0, math.inf)}


def test_a_nan_parameter_is_refused():
    with pytest.raises(ValueError, match="beta must be at least 0, got nan"):
        metrics.fbeta(beta=math.nan)


def test_objects_that_are_not_metrics_are_refused():
    with pytest.raises(TypeError, match="a metric is a Metric, its name or a function of Counts, got 3"):
        get_metric(3)
    with pytest.raises(TypeError, match="needs its parameters, as in fbeta"):
        get_metric(metrics.fbeta)
    with pytest.raises(TypeError, match="takes parameters besides Counts"):
        get_metric(lambda c, k: c.tp * k)
