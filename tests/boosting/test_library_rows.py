"""What boosting libraries pass, in both ways of calling, and the start of boosting."""

import lightgbm
import numpy as np
import pytest

from metricfit.boosting import eval_metric, objective, prior_logits
from metricfit.errors import InvalidTypeError, InvalidValueError

xgboost = pytest.importorskip("xgboost")
Y, SCORES, WEIGHT = np.array([0, 1, 1, 0]), np.array([-1.0, 0.5, -0.25, 2.0]), np.array([1.0, 2.0, 0.5, 0.0])


def dataset(y, weight=None):
    features = np.arange(len(y), dtype=float)[:, None]
    return lightgbm.Dataset(features, y, weight=weight, params={"verbose": -1}).construct()


def matrix(y, weight=None):
    return xgboost.DMatrix(np.arange(len(y), dtype=float)[:, None], y, weight=weight)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["no weights", "weights"])
@pytest.mark.parametrize(("library", "rows"), [("lightgbm", dataset), ("xgboost", matrix)])
def test_both_ways_of_calling_give_the_same(library, rows, weight):
    made, evaluation = objective("f1", library), eval_metric("f1", library)
    np.testing.assert_array_equal(made(SCORES, rows(Y, weight)), made(Y, SCORES, weight))
    native, own = evaluation(SCORES, rows(Y, weight)), evaluation(Y, SCORES, sample_weight=weight)
    assert native == (own if library == "lightgbm" else ("loss_of_f1", own))


@pytest.mark.parametrize(
    ("y", "scores", "weight", "message"),
    [
        ([0, 1, 2, 0], SCORES, None, "labels are 0 and 1 here; got 0 to 2.* num_class"),
        ([0, 1, 3, 0], np.zeros((4, 3)), None, "labels are 0 to 2 here; got 0 to 3"),
        ([-1, 1, 1, -1], SCORES, None, "labels are 0 and 1 here; got -1 to 1"),
        ([0, 0.5, 1, 0], SCORES, None, "NaN or not whole"),
        ([0, np.nan, 1, 0], SCORES, None, "NaN or not whole"),
        (["a", "b", "a", "b"], SCORES, None, "LabelEncoder"),
        ([[0, 1], [1, 0], [0, 1], [1, 0]], SCORES, None, "one per row"),
        ([0, 1, 1], SCORES, None, "a label for each row"),
        ([], [], None, "a label for each row"),
        (None, SCORES, None, "no labels"),
        (Y, np.zeros((4, 2, 2)), None, r"\(n, c\) for several; got \(4, 2, 2\)"),
        (Y, [0.0, np.nan, 0.0, 0.0], None, "NaN or infinite"),
        (Y, SCORES, [1.0, 2.0], "one weight per row"),
        (Y, SCORES, [1.0, -2.0, 1.0, 1.0], "at least 0"),
        (Y, SCORES, [1.0, np.inf, 1.0, 1.0], "finite"),
    ],
)
def test_wrong_rows_are_refused(y, scores, weight, message):
    for made in (objective("f1"), eval_metric("f1", "xgboost")):
        with pytest.raises(InvalidValueError, match=message):
            made(y, scores, weight)


def test_rows_of_another_library_are_refused():
    with pytest.raises(InvalidTypeError, match="made for lightgbm and is called by xgboost"):
        eval_metric("f1", "lightgbm")(SCORES, matrix(Y))
    with pytest.raises(InvalidTypeError, match="made for xgboost and is called by lightgbm"):
        objective("f1", "xgboost")(SCORES, dataset(Y))


def test_the_prior_is_that_of_weighted_shares():
    np.testing.assert_allclose(prior_logits([False, False, False, True]), [np.log(1 / 3)])
    np.testing.assert_allclose(prior_logits([0, 1, 1], [2.0, 0.5, 0.5]), [np.log(1 / 2)])
    np.testing.assert_allclose(prior_logits([0, 1, 2, 2]), np.log([0.25, 0.25, 0.5]))
    assert np.isfinite(prior_logits([0, 0], classes=3)).all()
    np.testing.assert_allclose(prior_logits([0, 0, 0, 1], rows=2), [np.log(1 / 3)] * 2)
    np.testing.assert_allclose(prior_logits([0, 1, 2, 2], rows=2), np.log([[0.25, 0.25, 0.5]] * 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "empty"),
        ((["a", "b"],), "LabelEncoder"),
        (([0, -1],), "got -1 to 0"),
        (([0, 1], [0.0, 0.0]), "all weights are 0"),
        (([0, 1], [1.0]), "one weight per row"),
    ],
)
def test_a_prior_of_wrong_rows_is_refused(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        prior_logits(*arguments)
    with pytest.raises(InvalidValueError, match="at least 2 classes"):
        prior_logits([0], classes=1)
