"""Whether rows prove a requirement, and how many more would: by scipy's binomial test."""

import pytest
from scipy.stats import binomtest

from metricfit import Counts, metrics
from metricfit.decide.readiness import describe_readiness
from metricfit.metrics import parse_requirement


@pytest.mark.parametrize("tp", [40, 46, 48, 59, 100, 300])
def test_ready_is_what_the_binomial_test_rejects(tp):
    said = describe_readiness(metrics.recall >= 0.9, Counts(tp=tp, fp=3, fn=4, tn=50))
    proven = binomtest(tp, tp + 4, 0.9, alternative="greater").pvalue <= 0.05
    assert said.startswith("ready") == proven
    assert (said == "not ready") == (tp / (tp + 4) < 0.9)


def test_the_number_of_further_rows_is_about_enough():
    said = describe_readiness(metrics.recall >= 0.9, Counts(tp=92, fp=3, fn=8, tn=50))
    more = int(said.split()[2].replace(",", ""))
    for rows, proven in ((1.1 * (100 + more), True), (0.9 * (100 + more), False)):
        assert (binomtest(round(0.92 * rows), round(rows), 0.9, alternative="greater").pvalue <= 0.05) == proven


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fpr <= 0.06", "negatives"),
        ("precision >= 0.9", "flagged rows"),
        ("accuracy >= 0.9", "rows"),
        ("recall >= 0.92", "needs far more than 100,000 positives"),
    ],
)
def test_rows_are_named_by_what_counts(text, said):
    found = describe_readiness(parse_requirement(text), Counts(tp=92, fp=5, fn=8, tn=95))
    assert found.startswith("needs")
    assert found.endswith(said)


def test_what_is_no_rate_and_what_has_no_rows():
    counts = Counts(tp=0, fp=5, fn=0, tn=95)
    assert describe_readiness(metrics.f1 >= 0.5, counts) is None
    assert describe_readiness(metrics.recall.equals(0.5), counts) is None
    several = Counts(tp=[80, 10], fp=[5, 4], fn=[4, 5], tn=[10, 80])
    assert describe_readiness(parse_requirement("recall[1] >= 0.9"), several) == "not ready"
    assert describe_readiness(parse_requirement("recall[0] >= 0.8"), several).startswith("ready")
