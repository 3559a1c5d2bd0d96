"""The soft-set metric and the metric tend to the limit that the papers' proofs name."""

import re

import numpy as np
import pytest

from metricfit_papers.pages import repository
from metricfit_papers.pages.claims import read_claims
from metricfit_papers.pages.consistency import METRICS, distances, draw

DRAWS = 40


@pytest.mark.parametrize("name", list(METRICS))
def test_both_values_approach_the_limit_like_one_over_the_root_of_n(name):
    few, many = distances(name, 100, DRAWS), distances(name, 2500, DRAWS)
    roots = [np.sqrt((each**2).mean(0)) for each in (few, many)]
    assert (roots[0] / roots[1] > 3).all()  # 5 expected
    assert (roots[0] / roots[1] < 8.5).all()
    assert (abs(many.mean(0)) < 4 * many.std(0) / np.sqrt(DRAWS)).all()
    assert (roots[1] < 0.02).all()


@pytest.mark.parametrize("claim", ["btg-consistent", "multiclass-consistent"])
def test_the_distances_of_the_claims_are_those_of_the_draws(claim):
    figure = next(each for each in read_claims(repository.VERDICTS / "claims.toml") if each.id == claim).figures[0]
    said = re.findall(r"(F1|accuracy|AUROC|macro F2) (0\.\d+) \(soft\) and (0\.\d+) \(hard\)", figure.text)
    assert {name for name, _, _ in said} == ({"macro F2"} if claim.startswith("multi") else {*METRICS} - {"macro F2"})
    for name, *values in said:
        roots = np.sqrt((distances(name, 2500, DRAWS) ** 2).mean(0))
        assert [f"{root:.3f}" for root in roots] == values


def test_the_picture_is_drawn(tmp_path):
    draw(tmp_path / "consistency.svg", sizes=(10, 20), draws=2)
    assert (tmp_path / "consistency.svg").read_text(encoding="utf-8").count('<g id="axes_') == 4
