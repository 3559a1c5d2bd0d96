"""What the sections say, against other libraries."""

import math

import numpy as np
import pytest
import torch
from page_parts import parts
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, f1_score, matthews_corrcoef, precision_recall_fscore_support

from metricfit import get_metric, metric, report
from metricfit.report.evaluation import Decisions
from metricfit.report.explorer import reliability
from metricfit.report.tables import referral_table
from metricfit.tabular.ensemble import ModelRow


def texts(*sections):
    return " ".join(" ".join(parts(report.render(report.Report("t", "h", "v", sections))).text).split())


def test_methods_are_sorted_best_first():
    rows = [report.ComparisonRow("a", 0.5), report.ComparisonRow("b", 0.7), report.ComparisonRow("c", 0.6)]
    assert [row.name for row in report.comparison(rows, "f1").context["methods"]] == ["b", "c", "a"]
    assert [row.name for row in report.comparison(rows, "fpr").context["methods"]] == ["a", "c", "b"]


def test_numbers_of_a_comparison_are_written_for_people():
    rows = [
        report.ComparisonRow("tuned BCE", 0.6612, (0.6401, 0.6823), seconds=33.14),
        report.ComparisonRow("mix", 0.6821, (0.6609, 0.7033), 0.0209, (0.0042, 0.0376), 0.00001, 3700),
    ]
    shown = texts(report.comparison(rows, "f1", reference="tuned BCE"))
    assert "mix 0.682 0.661 to 0.703 +0.021 +0.004 to +0.038 < 0.001 1 h 1 min" in shown
    assert "tuned BCE (reference) 0.661 0.640 to 0.682 33.1 s" in shown
    assert "Difference to tuned BCE" in shown
    assert "higher is better" in shown


def test_columns_without_a_number_are_left_out():
    shown = texts(report.comparison([report.ComparisonRow("a", 0.5)], "fpr"))
    assert "Difference" not in shown
    assert "Training" not in shown
    assert "lower is better" in shown


@pytest.mark.parametrize("field", ["mean", "difference", "p_value", "seconds"])
def test_a_number_that_is_none_is_refused(field):
    with pytest.raises(ValueError, match="'a' has a number that is not finite; pass None for what is not known"):
        report.ComparisonRow("a", **({"mean": 0.5} | {field: math.nan}))


def test_comparisons_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="at least one method"):
        report.comparison([], "f1")
    with pytest.raises(ValueError, match="the reference 'b' is not among the methods"):
        report.comparison([report.ComparisonRow("a", 0.5)], "f1", reference="b")


def test_models_are_sorted_by_weight_and_those_left_out_are_named():
    rows = [
        ModelRow("linear", 0.0, 0.61, 0.3, 0.5),
        ModelRow("mine <b>", 1.0, 0.7, 0.2, 61.0),
        ModelRow("kernel", left_out="more than 10,000 rows"),
    ]
    text = texts(report.models(rows, "fpr"))
    assert "mine <b> 100.0 % 0.700 0.200 1 min 1 s linear logistic regression not used 0.610 0.300 0.50 s" in text
    assert "kernel : more than 10,000 rows." in text
    assert "A lower fpr and a lower cross-entropy are better." in text
    with pytest.raises(ValueError, match="no model to show"):
        report.models([], "f1")


@pytest.mark.parametrize("name", ["f1", "npv", "kappa", "fbeta(beta=2)"])
def test_a_formula_of_the_explorer_is_the_first_clause_of_the_metrics_documentation(name):
    section = report.scores([0.9, 0.1], [1, 0], threshold=0.5, metric=name)
    formulas = {metric.name: formula for metric, formula in section.context["metrics"]}
    assert formulas[name].startswith(get_metric(name).summary[:20])
    assert "Example" not in formulas[name]
    assert "0 where" not in formulas[name]


def test_a_metric_without_documentation_has_no_formula():
    @metric
    def undocumented(c):
        return c.tp / c.n

    section = report.scores([0.9, 0.1], [1, 0], threshold=0.5, metric=undocumented)
    assert ("undocumented", "") in [(shown.name, formula) for shown, formula in section.context["metrics"]]


def test_learning_curves_of_fit():
    from metricfit import fit
    from metricfit.train import recipes

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 2, generator=generator)
    y = (x[:, 0] > 0.5).long()
    result = fit(torch.nn.Linear(2, 1), (x, y), recipes.two_stage("f1"), validation=(x, y), epochs=2, monitor="best f1")
    section = report.learning_curves(result.history)
    assert section.context["members"] == 1
    shown = texts(section)
    assert "Training and validation loss by epoch, of one model." in shown
    assert "best f1 on the validation set by epoch" in shown


def test_several_members_and_missing_numbers():
    first = [{"train_loss": 1.0}, {"train_loss": math.inf}, {"train_loss": 0.5, "validation_loss": None}]
    section = report.learning_curves([first, [{"train_loss": 2.0}]])
    assert section.context["members"] == 2
    assert [chart.title for chart in section.context["charts"]] == ["Loss"]
    assert "2 members, one line each" in texts(section)


@pytest.mark.parametrize("histories", [[], [[]], [{"epoch": 0}], [{"train_loss": math.nan}]])
def test_nothing_to_draw_is_refused(histories):
    with pytest.raises(ValueError, match="no finite train_loss, validation_loss or value"):
        report.learning_curves(histories)


@pytest.mark.parametrize("weighted", [False, True])
def test_several_classes_are_scikit_learns(weighted):
    r = np.random.default_rng(0)
    truth, guess = r.integers(0, 4, 200), r.integers(0, 4, 200)
    weight = r.random(200) + 0.5 if weighted else None
    section = report.multiclass(guess, truth, classes=list("abcd"), weight=weight)
    given = section.context
    np.testing.assert_allclose(given["matrix"], confusion_matrix(truth, guess, sample_weight=weight))
    expected = precision_recall_fscore_support(truth, guess, sample_weight=weight)
    values = dict(zip(given["columns"], zip(*given["values"], strict=True), strict=True))
    for name, theirs in zip(("precision", "recall", "f1"), expected[:3], strict=True):
        np.testing.assert_allclose(values[name], theirs)
    assert given["value"] == pytest.approx(f1_score(truth, guess, average="macro", sample_weight=weight))
    assert given["metric"] == "macro f1"
    whole = report.multiclass(guess, truth, classes=list("abcd"), weight=weight, metric="mcc").context
    assert whole["value"] == pytest.approx(matthews_corrcoef(truth, guess, sample_weight=weight))
    assert whole["metric"] == "mcc"


def test_too_many_classes_for_a_matrix_are_a_list_of_confusions():
    truth = [0, 0, 0, 1, 1, 2]
    guess = [5, 5, 0, 1, 2, 2]
    section = report.multiclass(guess, truth, classes=[f"c{number}" for number in range(30)])
    assert section.context["confusions"] == [("c0", "c5", 2.0), ("c1", "c2", 1.0)]
    assert "c0 c5 2 c1 c2 1" in texts(section)


def test_classes_without_samples_are_rows_of_zeros():
    assert "c 0 0.000 0.000 0.000 1.000" in texts(report.multiclass([0, 1], [0, 1], classes=list("abc")))


def test_wrong_labels_are_refused():
    with pytest.raises(ValueError, match="no labels given"):
        report.multiclass([], [], classes=["a", "b"])
    with pytest.raises(ValueError, match="two classes or more"):
        report.multiclass([0], [0], classes=["a"])
    with pytest.raises(ValueError, match=r"target labels must lie in 0\.\.1"):
        report.multiclass([0], [2], classes=["a", "b"])


def test_calibration_is_scikit_learns_with_the_binomial_interval():
    r = np.random.default_rng(0)
    s = np.sort(r.random(500).round(2).clip(0.01, 0.99))
    y = (r.random(500) < s**2).astype(float)
    reached = np.array([sum(each * (1 - each) for each in s if each <= score) for score in s])
    share, _ = calibration_curve(y, reached / reached[-1], n_bins=10, strategy="uniform")
    found = np.array(reliability(s, y, None))
    np.testing.assert_allclose(found[:, 1], share)
    bins = np.minimum(np.ceil(10 * reached / reached[-1] - 1e-9), 10)
    for each, (mean, of_bin, low, high) in zip(np.unique(bins), found, strict=True):
        assert mean == pytest.approx(s[bins == each].mean())
        n = int((bins == each).sum())
        interval = binomtest(round(n * of_bin), n).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((interval.low, interval.high))


def test_calibration_shows_a_rare_class():
    s = np.concatenate([np.full(9900, 0.001), np.linspace(0.01, 0.9, 100)])
    means = [each[0] for each in reliability(s, (s > 0.5).astype(float), None)]
    assert sum(mean > 0.1 for mean in means) >= 6


@pytest.mark.parametrize("s", [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
def test_calibration_of_scores_that_are_certain(s):
    found = reliability(np.array(s), np.array([0.0, 1.0, 1.0, 1.0]), None)
    assert [each[:2] for each in found] == ([(0.0, 0.5), (1.0, 1.0)] if s[-1] else [(0.0, 0.75)])


def test_a_threshold_between_the_same_scores_as_the_best_is_the_best():
    def texts_of(threshold):
        given = report.scores([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], threshold=threshold).context["presets"]
        return [each.text for each in given]

    assert texts_of(0.3) == ["chosen and best here, 0.3", "0.5"]
    assert texts_of(0.7) == ["chosen, 0.7", "0.5", "best here, 0.4"]


def test_a_monitored_loss_is_drawn_once():
    rows = [{"train_loss": 1.0, "validation_loss": 0.5, "value": 0.5, "monitor": "loss"}]
    assert [chart.title for chart in report.learning_curves(rows).context["charts"]] == ["Loss"]
    rows[0]["value"] = 0.25
    assert len(report.learning_curves(rows).context["charts"]) == 2


def test_how_often_requirements_held_and_means_without_intervals():
    rows = [report.ComparisonRow("a", 0.5, held=4), report.ComparisonRow("b", 0.4, held=0)]
    shown = texts(report.comparison(rows, "f1", folds=5))
    assert "Requirements held a 0.500 4 of 5 folds b 0.400 0 of 5 folds" in shown
    assert "interval" not in shown.partition("Comparison")[2]


def test_weights_of_calibration_count_as_copies():
    s, y = np.array([0.2, 0.2, 0.8, 0.8]), np.array([0.0, 1.0, 1.0, 0.0])
    found = reliability(s, y, np.array([3.0, 1.0, 1.0, 1.0]))
    assert [each[:2] for each in found] == [pytest.approx((0.2, 0.25)), pytest.approx((0.8, 0.5))]


def test_weighted_scores_are_sums_of_weights():
    shown = texts(report.scores([0.1, 0.9], [0, 1], threshold=0.5, weight=[0.25, 2.0], classes=("no", "yes")))
    assert "2.25 by weight, 2 of them “yes” (88.9 %)." in shown


def test_referred_rows_are_counted_beside_the_decisions():
    rng = np.random.default_rng(0)
    truth, decided = rng.integers(0, 2, 50), rng.integers(-1, 2, 50)
    section = referral_table(Decisions(truth, decided, ("no", "yes"), get_metric("f1")))
    kept = decided >= 0
    assert section.context["value"] == pytest.approx(f1_score(truth[kept], decided[kept]))
    table = confusion_matrix(truth, decided, labels=[-1, 0, 1])[1:]
    assert section.context["rows"] == [("yes", table[1, ::-1].tolist()), ("no", table[0, ::-1].tolist())]
    assert f"{(~kept).sum()} ({100 * (~kept).mean():.1f} %) are referred" in texts(section)


def test_the_costs_of_a_cost_matrix_stand_beside_its_classes():
    costs = get_metric("cost_matrix(costs=[[0, 7.5], [2, 0]])")
    shown = texts(report.multiclass([0, 1, 1], [0, 1, 0], classes=["cat", "dog"], metric=costs))
    assert "cat 1 0 1 7.5 dog 0 2 1 0" in shown
    assert "what one such decision costs" in shown
    assert "what one such decision costs" not in texts(report.multiclass([0, 1, 1], [0, 1, 0], classes=["cat", "dog"]))
