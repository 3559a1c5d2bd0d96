"""Tables 8 and 10 of Bridging the Gap agree with the splits of the protocol `paper`."""

import numpy as np
import pytest
from scipy.stats import hypergeom

import metricfit_papers as papers
from metricfit_papers.datasets.catalogue import CATALOGUE
from metricfit_papers.pages.class_balance import PUBLISHED, UCI_TRAINING, class_weights, expected_negatives


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_published_counts_and_weights_are_those_of_such_splits(name):
    balance = PUBLISHED[name]
    rows, positives = balance.drawn_from or (CATALOGUE[name].rows, CATALOGUE[name].positives)
    oracle = hypergeom(rows, rows - positives, round(balance.share * rows))
    mean, deviation = expected_negatives(name, balance)
    assert mean == pytest.approx(oracle.mean(), rel=1e-3)
    assert deviation == pytest.approx(oracle.std(), rel=1e-3)
    assert abs(balance.negatives - mean) < 2.5 * deviation
    draws = rows * balance.share - hypergeom(rows, rows - positives, round(balance.share * rows)).rvs(
        999, random_state=0
    )
    possible = np.array([class_weights(rows * balance.share, drawn) for drawn in draws])
    low, high = possible.min(0) - 0.005, possible.max(0) + 0.005  # published to two places
    assert (low <= balance.weights).all()
    assert (balance.weights <= high).all()


def test_adult_is_not_split_at_random_and_the_tables_do_the_same():
    adult = CATALOGUE["adult"]
    mean, deviation = expected_negatives("adult", PUBLISHED["adult"]._replace(drawn_from=None, share=0.64))
    assert (mean - PUBLISHED["adult"].negatives) / deviation > 50
    assert UCI_TRAINING[0] == 32561 < adult.rows
    for name in ("btg-1", "btg-4", "btg-6", "btg-7", "btg-9", "btg-11"):
        assert papers.find_table(name).protocols["paper"].published_test, name
