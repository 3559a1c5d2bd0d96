"""scikit-learn's own checks of an estimator, on TunedDecisionClassifier over estimators of several kinds."""

import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from metricfit import TunedDecisionClassifier

ESTIMATORS = [
    TunedDecisionClassifier(RidgeClassifier(), "accuracy", cv=2),
    TunedDecisionClassifier(
        DecisionTreeClassifier(max_depth=3, random_state=0), cv=2, decision="empirical", ensemble=False
    ),
]


def expected_failures(estimator):
    repeated = (
        "models are fitted on random folds, which differ between a row of weight 2 and a row given twice: equal in "
        "expectation, not to the bit"
    )
    return {
        "check_classifiers_train": (
            "asks that the most probable class is predicted; here the threshold is chosen for the metric, and some "
            "rows of this check lie between it and 0.5"
        ),
        "check_sample_weight_equivalence_on_dense_data": repeated,
        "check_sample_weight_equivalence_on_sparse_data": repeated,
    }


# Not strict: whether a row lies between the threshold and 0.5 depends on the last bits of the estimators.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures, xfail_strict=False)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each.estimator).__name__)
def test_every_expected_failure_is_of_a_check_that_is_run(estimator):
    run = {getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(estimator)}
    assert expected_failures(estimator).keys() <= run
