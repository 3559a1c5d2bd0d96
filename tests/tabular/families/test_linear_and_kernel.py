"""Linear and kernel models against scikit-learn's own, and the mean of folds against the mean of logits."""

from itertools import product

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from metricfit.tabular.families.arithmetic import cross_entropy
from metricfit.tabular.families.family import Deadline, Features, OutOfTime, choose_candidates
from metricfit.tabular.families.kernel import Kernel
from metricfit.tabular.families.linear import PENALTIES, Linear, LinearModel, both_scales

NO_LIMIT = Deadline()


def folds_of(family, rows):
    odd = np.arange(len(rows)) % 2 == 1
    splits = [(np.flatnonzero(~odd), np.flatnonzero(odd)), (np.flatnonzero(odd), np.flatnonzero(~odd))]
    return choose_candidates(family.prepare(rows).fit_folds(rows, splits, seed=0, deadline=NO_LIMIT))


def best_of(family, train, held_out):
    return choose_candidates([family.fit(train, held_out, seed=0, deadline=NO_LIMIT)])[0]


@pytest.mark.parametrize("family", [Linear(), Kernel()], ids=["linear", "kernel"])
def test_the_combined_model_has_the_mean_logits(family, rows, held_out):
    models = folds_of(family, rows)
    expected = np.mean([model.logits(held_out.features) for model in models], axis=0)
    np.testing.assert_allclose(family.combine(models).logits(held_out.features), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", [Linear(), Kernel()], ids=["linear", "kernel"])
def test_they_stop_at_the_deadline(family, rows, held_out):
    with pytest.raises(OutOfTime):
        family.fit(rows, held_out, seed=0, deadline=Deadline.after(-1.0))


class TestLinear:
    """Logistic regression."""

    @pytest.mark.parametrize("weighted", [False, True])
    def test_it_is_the_best_of_several_logistic_regressions(self, make_rows, classes, held_out, weighted):
        rows = make_rows(classes, weighted=weighted)
        candidates = []
        for penalty, scale in product(PENALTIES, (slice(0, 4), slice(4, 8))):
            model = LogisticRegression(C=penalty, max_iter=2000, tol=1e-8)
            model.fit(both_scales(rows.x)[:, scale], rows.y, sample_weight=rows.weight)
            logits = model.decision_function(both_scales(held_out.x)[:, scale])
            candidates.append(logits.reshape(len(held_out), -1))
        expected = min(candidates, key=lambda logits: cross_entropy(logits, held_out.y, held_out.weight))
        logits = best_of(Linear(), rows, held_out).logits(held_out.features)
        np.testing.assert_allclose(logits, expected, atol=0.02)
        assert cross_entropy(logits, held_out.y, held_out.weight) == pytest.approx(
            cross_entropy(expected, held_out.y, held_out.weight), rel=1e-3
        )

    @pytest.mark.parametrize("missing", [[1], [0, 2]])
    def test_classes_without_rows_are_very_unlikely(self, make_rows, missing):
        rows = make_rows(4)
        some = rows.take(np.flatnonzero(~np.isin(rows.y, missing)))
        logits = best_of(Linear(), some, some).logits(rows.features)
        known = np.setdiff1d(np.arange(4), missing)
        assert (logits[:, missing].max(axis=1) < logits[:, known].max(axis=1) - 5).all()
        reference = LogisticRegression(C=100.0, max_iter=2000).fit(some.x, some.y)
        best = np.asarray(known)[logits[:, known].argmax(axis=1)]
        assert (best == reference.predict(rows.x)).mean() > 0.97

    def test_the_logits_are_linear(self):
        model = LinearModel(np.array([[2.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]), np.array([0.5, 0.0]))
        x = np.array([[1.0, 1.0], [0.0, -0.5]], dtype=np.float32)
        np.testing.assert_allclose(model.logits(Features(x))[:, 0], [1.5, 1.0])
        np.testing.assert_allclose(model.logits(Features(x))[:, 1], both_scales(x)[:, 3])


class TestKernel:
    """Support vectors."""

    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_logits_are_those_of_svc(self, make_rows, classes, held_out, weighted):
        rows = make_rows(classes, weighted=weighted)
        model = Kernel().prepare(rows).fit(rows, held_out, seed=0, deadline=NO_LIMIT)
        assert model.gamma == pytest.approx(SVC(gamma="scale").fit(rows.x, rows.y)._gamma, rel=1e-4)
        logits = model.logits(held_out.features)
        for output in range(rows.outputs):
            target = rows.y == (1 if classes == 2 else output)
            machine = SVC(C=3.0, gamma=model.gamma, cache_size=500)
            machine.fit(rows.x.astype(float), target, sample_weight=rows.weight)
            np.testing.assert_allclose(
                logits[:, output], machine.decision_function(held_out.x.astype(float)), rtol=1e-4, atol=1e-4
            )

    def test_rows_that_support_several_folds_are_kept_once(self, rows):
        models = folds_of(Kernel(), rows)
        combined = Kernel().combine([models[0], models[0], models[1]])
        every = np.concatenate([models[0].vectors, models[1].vectors])
        assert len(combined.vectors) == len(np.unique(every, axis=0)) < len(every) + 1

    def test_far_rows_and_no_rows(self, rows, make_rows):
        model = Kernel().fit(rows, rows, seed=0, deadline=NO_LIMIT)
        far = make_rows(rows.classes, n=5)
        far.x[:] = 1e6
        np.testing.assert_allclose(model.logits(far.features), np.tile(model.intercepts, (5, 1)))
        assert model.logits(far.take(np.zeros(0, dtype=int)).features).shape == (0, rows.outputs)

    def test_a_class_without_rows_is_very_unlikely(self, make_rows):
        rows = make_rows(3)
        some = rows.take(np.flatnonzero(rows.y != 1))
        logits = Kernel().fit(some, some, seed=0, deadline=NO_LIMIT).logits(rows.features)
        assert (logits[:, 1] < -10).all()

    def test_large_tables_are_skipped(self, make_rows):
        assert Kernel().reason_to_skip(make_rows(2)) is None
        assert "10,000" in Kernel().reason_to_skip(make_rows(2, n=10_001))
