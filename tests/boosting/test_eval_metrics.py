"""Metrics as evaluations: values by brute force, and early stopping of each library at the round that is best."""

import copy
import pickle

import lightgbm
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score, fbeta_score, matthews_corrcoef

from metricfit.boosting import eval_metric, objective, prior_logits
from metricfit.errors import InvalidValueError

pytestmark = pytest.mark.filterwarnings("ignore:Failed to import numba:UserWarning")  # CatBoost, where it is missing
SCORERS = {
    "f1": lambda y, decided, w: f1_score(y, decided, sample_weight=w, zero_division=0),
    "mcc": lambda y, decided, w: matthews_corrcoef(y, decided, sample_weight=w),
    "cost(fp=1, fn=10)": lambda y, decided, w: np.average((decided & ~y) + 10.0 * (~decided & y), weights=w),
}
LIBRARIES = ("lightgbm", "xgboost", "catboost")


def best_by_brute_force(name, scores, y, weight):
    values = [SCORERS[name](y, scores >= threshold, weight) for threshold in [*np.unique(scores), np.inf]]
    return min(values) if name.startswith("cost") else max(values)


@pytest.fixture(scope="module")
def table():
    """Rows to train on and rows to stop on, with labels 0 and 1, labels of three classes, and weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    signal = x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=600)
    y, classes = (signal > 1.5).astype(int), np.digitize(signal, [-1.0, 1.5])
    weight = rng.integers(1, 9, 600) / 4
    train, held_out = np.arange(300), np.arange(300, 600)
    return {
        part: {"x": x[at], "y": y[at], "classes": classes[at], "weight": weight[at]}
        for part, at in (("train", train), ("held_out", held_out))
    }


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weights"])
@pytest.mark.parametrize("name", SCORERS)
def test_value_is_the_best_over_all_thresholds(name, weighted):
    rng = np.random.default_rng(1)
    scores, y = rng.normal(size=60).round(1), rng.random(60) < 0.3
    weight = rng.integers(1, 9, 60) / 4 if weighted else None
    expected = best_by_brute_force(name, scores, y, weight)
    lower = name.startswith("cost")
    assert eval_metric(name)(y, scores, weight) == (name, pytest.approx(expected), not lower)
    assert eval_metric(name, "xgboost")(y, scores, weight) == pytest.approx(expected if lower else 1 - expected)
    made = eval_metric(name, "catboost")
    assert made.get_final_error(*made.evaluate([scores], y, weight)) == pytest.approx(expected)
    assert made.is_max_optimal() is not lower


def test_a_fixed_threshold_and_several_classes():
    rng = np.random.default_rng(1)
    scores, y, weight = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), rng.random(60)
    positive = y == 1
    assert eval_metric("f1", threshold=0.0)(positive, scores[:, 0], weight)[1] == pytest.approx(
        f1_score(positive, scores[:, 0] >= 0, sample_weight=weight)
    )
    for average in ("macro", "micro", "weighted"):
        expected = fbeta_score(y, scores.argmax(1), beta=2, average=average, sample_weight=weight)
        assert eval_metric("fbeta(beta=2)", average=average)(y, scores, weight)[1] == pytest.approx(expected)
    kappa = cohen_kappa_score(y, scores.argmax(1), weights="quadratic", sample_weight=weight)
    assert eval_metric("weighted_kappa(power=2)")(y, scores, weight)[1] == pytest.approx(kappa)
    assert eval_metric("mcc")(y, scores)[1] == pytest.approx(matthews_corrcoef(y, scores.argmax(1)))
    with pytest.raises(InvalidValueError, match="threshold is for two classes"):
        eval_metric("f1", threshold=0.5)(y, scores)


@pytest.mark.parametrize("metric", ["f1", "precision", "cost(fp=1, fn=10)"])
@pytest.mark.parametrize("classes", [2, 3])
def test_lightgbm_stops_where_the_metric_is_best(table, metric, classes):
    label = "y" if classes == 2 else "classes"
    start = prior_logits(table["train"][label], rows=300)
    rows = {
        part: lightgbm.Dataset(data["x"], data[label], weight=data["weight"], init_score=start, params={"verbose": -1})
        for part, data in table.items()
    }
    settings = {"objective": objective(metric), "metric": "none", "verbose": -1, "num_leaves": 7, "num_threads": 1}
    history = {}
    model = lightgbm.train(
        settings | {"num_class": 1 if classes == 2 else 3},
        rows["train"],
        30,
        valid_sets=[rows["held_out"]],
        feval=eval_metric(metric),
        callbacks=[lightgbm.early_stopping(30, verbose=False), lightgbm.record_evaluation(history)],
    )
    values = history["valid_0"][metric]
    best = min(values) if metric.startswith("cost") else max(values)
    assert model.best_iteration == values.index(best) + 1
    assert len(set(values)) > 3


@pytest.mark.parametrize("metric", ["f1", "precision", "cost(fp=1, fn=10)"])
@pytest.mark.parametrize("classes", [2, 3])
def test_xgboost_stops_where_the_metric_is_best(table, metric, classes):
    xgboost = pytest.importorskip("xgboost")
    label = "y" if classes == 2 else "classes"
    start = prior_logits(table["train"][label], rows=300)
    rows = {
        part: xgboost.DMatrix(data["x"], data[label], weight=data["weight"], base_margin=start)
        for part, data in table.items()
    }
    settings = {"max_depth": 3, "nthread": 1, "disable_default_eval_metric": True}
    history = {}
    model = xgboost.train(
        settings if classes == 2 else settings | {"num_class": 3},
        rows["train"],
        30,
        obj=objective(metric, "xgboost"),
        custom_metric=eval_metric(metric, "xgboost"),
        evals=[(rows["held_out"], "held_out")],
        early_stopping_rounds=30,
        evals_result=history,
        verbose_eval=False,
    )
    (losses,) = history["held_out"].values()
    assert model.best_iteration == losses.index(min(losses))
    assert len(set(losses)) > 3
    last = model.predict(rows["held_out"], output_margin=True, iteration_range=(0, 30))
    own = eval_metric(metric, "xgboost")(last, rows["held_out"])[1]
    assert own == pytest.approx(losses[-1], abs=1e-6)


@pytest.mark.parametrize("metric", ["f1", "cost(fp=1, fn=10)"])
@pytest.mark.parametrize("classes", [2, 3])
def test_catboost_stops_where_the_metric_is_best(table, metric, classes):
    catboost = pytest.importorskip("catboost")
    label = "y" if classes == 2 else "classes"
    rows = {part: catboost.Pool(data["x"], data[label], weight=data["weight"]) for part, data in table.items()}
    model = catboost.CatBoostClassifier(
        iterations=30,
        loss_function="Logloss" if classes == 2 else "MultiClass",
        eval_metric=eval_metric(metric, "catboost"),
        depth=3,
        thread_count=1,
        allow_writing_files=False,
        verbose=False,
    )
    model.fit(rows["train"], eval_set=rows["held_out"])
    values = model.get_evals_result()["validation"]["CatBoostEvalMetric"]
    best = min(values) if metric.startswith("cost") else max(values)
    assert model.get_best_iteration() == values.index(best)
    scores = model.predict(rows["held_out"], prediction_type="RawFormulaVal")
    made = eval_metric(metric, "lightgbm")(table["held_out"][label], scores, table["held_out"]["weight"])
    assert made[1] == pytest.approx(best, abs=1e-6)


def test_catboost_passes_an_objective_parts_of_the_rows_and_an_evaluation_all():
    catboost = pytest.importorskip("catboost")
    rows_per_call = {"objective": set(), "evaluation": set()}

    class Objective:
        def calc_ders_range(self, approxes, targets, weights):
            rows_per_call["objective"].add(len(targets))
            return [(target - 0.5, -0.25) for target in targets]

    class Evaluation:
        def is_max_optimal(self):
            return True

        def evaluate(self, approxes, target, weight):
            rows_per_call["evaluation"].add(len(target))
            return 1.0, 1.0

        def get_final_error(self, error, weight):
            return error

    x = np.random.default_rng(0).normal(size=(3500, 2))
    settings = {"iterations": 1, "thread_count": 1, "allow_writing_files": False, "verbose": False}
    catboost.CatBoostClassifier(loss_function=Objective(), eval_metric=Evaluation(), **settings).fit(x, x[:, 0] > 0)
    assert max(rows_per_call["objective"]) <= 1000
    assert rows_per_call["evaluation"] == {3500}


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_estimators_of_the_libraries_take_both(table, library, classes):
    pytest.importorskip(library)
    from sklearn.base import clone

    label = "y" if classes == 2 else "classes"
    train, held_out = table["train"], table["held_out"]
    made, evaluation = objective("f1", library), eval_metric("f1", library)
    if library == "lightgbm":
        model = clone(lightgbm.LGBMClassifier(objective=made, n_estimators=20, verbose=-1, n_jobs=1, num_leaves=7))
        held = {"eval_X": held_out["x"], "eval_y": held_out[label], "eval_sample_weight": [held_out["weight"]]}
        stop = [lightgbm.early_stopping(20, verbose=False)]
        model.fit(train["x"], train[label], train["weight"], eval_metric=evaluation, callbacks=stop, **held)
        loss = 1 - model.best_score_["valid_0"]["f1"]
        scores = model.predict(held_out["x"], raw_score=True)
    else:
        import xgboost

        settings = {"n_estimators": 20, "n_jobs": 1, "max_depth": 3, "early_stopping_rounds": 20}
        model = clone(xgboost.XGBClassifier(objective=made, eval_metric=evaluation, **settings))
        held = {"eval_set": [(held_out["x"], held_out[label])], "sample_weight_eval_set": [held_out["weight"]]}
        model.fit(train["x"], train[label], sample_weight=train["weight"], verbose=False, **held)
        loss = model.best_score
        scores = model.predict(held_out["x"], output_margin=True)
    expected = eval_metric("f1", "xgboost")(held_out[label], scores, held_out["weight"])
    assert loss == pytest.approx(expected, abs=1e-6)
    assert loss < 0.6


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_pickled_and_copied(library):
    made = eval_metric("fbeta(beta=2)", library)
    scores, y = np.array([0.9, 0.6, 0.4]), np.array([1, 0, 1])
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert repr(other) == repr(made) == f"eval_metric('fbeta(beta=2)', '{library}')"
        if library == "catboost":
            assert other.evaluate([scores], y, None) == made.evaluate([scores], y, None)
        else:
            assert other(y, scores) == made(y, scores)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"library": "prophet"}, "'lightgbm' or 'xgboost' or 'catboost'; got 'prophet'"),
        ({"threshold": float("nan")}, "threshold is a number"),
        ({"average": "mean"}, "average must be"),
        ({"average": None}, "one number"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        eval_metric("f1", **arguments)
