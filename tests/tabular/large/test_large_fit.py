"""fit on large tables: boosted trees on all rows from batches, other families on a sample that is named."""

import logging

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from metricfit import MetricClassifier
from metricfit.boosting import prior_logits
from metricfit.data.reading import ParquetTable
from metricfit.tabular import large_rows
from metricfit.tabular.families import large_boosting
from metricfit.tabular.families.boosting import Boosting
from metricfit.tabular.families.family import Deadline, TrainingRows, choose_candidates
from metricfit.tabular.large_rows import encode_large_table

pytestmark = pytest.mark.usefixtures("small_is_large")


def test_trees_from_batches_are_those_of_rows_in_memory(frame, labels, monkeypatch):
    monkeypatch.setattr(large_boosting, "ROWS_OF_TREES", {})
    features = encode_large_table(frame)[1]
    rows = TrainingRows(features, labels, np.linspace(0.5, 1.5, len(labels)), 2)
    split = np.arange(1200), np.arange(1200, 1500)
    alone = Boosting().fit(*(rows.take(part) for part in split), seed=3, deadline=Deadline())
    (family,) = large_boosting.families_of_large_table([Boosting()], features, 1, Deadline())
    (together,) = family.fit_folds(rows, [split], seed=3, deadline=Deadline())
    in_memory, in_batches = (choose_candidates([fitted])[0] for fitted in (alone, together))
    assert in_memory.boosters[0].num_trees() > 5
    part = features.take(np.arange(300))
    np.testing.assert_allclose(in_batches.logits(part), in_memory.logits(part), atol=1e-5)
    assert in_batches.starts[0] == pytest.approx(prior_logits(labels[:1200], rows.weight[:1200], classes=2))


@pytest.fixture(scope="module")
def fitted(frame, labels):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_rows, "LARGE_ROWS", 1000)
        patch.setattr(large_rows, "BATCH_ROWS", 400)
        patch.setattr(large_rows, "FITTED_ROWS", 300)
        patch.setattr(large_rows, "JUDGING_ROWS", 100)
        patch.setattr(large_rows, "HELD_OUT_ROWS", 250)
        model = MetricClassifier("f1", models=["linear", "boosting_small"], random_state=0, n_jobs=1)
        return model.fit(frame, labels)


def test_families_on_a_sample_say_so(fitted, tmp_path):
    by_name = {row.name: row for row in fitted.models_}
    assert by_name["linear"].sample == "fitted on 300 of 1,500 rows"
    assert by_name["boosting_small"].sample is None
    fitted.save(tmp_path / "model")
    assert MetricClassifier.load(tmp_path / "model").models_ == fitted.models_
    assert "fitted on 300 of 1,500 rows" in fitted.report(tmp_path / "page.html").read_text()


def test_the_decision_rests_on_the_held_out_part(fitted, frame, labels):
    assert len(fitted.held_out_.y) == pytest.approx(300, abs=20)
    assert fitted.score(frame, labels) > 0.5
    assert fitted.predict_proba(frame).shape == (1500, 2)


def test_parquet_files_give_the_model_of_the_frame(fitted, frame, labels, tmp_path, caplog):
    frame.to_parquet(tmp_path / "rows.parquet")
    model = MetricClassifier("f1", models=["linear", "boosting_small"], random_state=0, n_jobs=2)
    with caplog.at_level(logging.INFO, "metricfit.tabular"):
        model.fit(ParquetTable([tmp_path / "rows.parquet"]), labels)
    np.testing.assert_allclose(model.predict_proba(frame), fitted.predict_proba(frame), atol=1e-6)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert "linear is fitted on 300 of 1,500 rows" in caplog.text


def test_trees_that_end_for_time_are_kept(frame, labels, caplog):
    model = MetricClassifier("f1", models=["boosting"], time_budget=0.01, random_state=0, n_jobs=1)
    with caplog.at_level(logging.INFO, "metricfit.tabular"):
        model.fit(frame, labels)
    assert "boosting ends after 1 rounds" in caplog.text
    assert model.models_[0].left_out is None


@pytest.mark.parametrize("options", [{"members": 2}, {"cv": 2}, {"cv": "forward", "members": 2}])
def test_other_folds_are_as_asked(frame, labels, options):
    model = MetricClassifier("f1", models=["linear"], random_state=0, **options).fit(frame, labels)
    held_out = 750 if options.get("cv") == "forward" else 1500
    assert len(model.held_out_.y) == held_out


def test_several_classes_weights_and_groups(frame, labels):
    y = np.where(labels == 1, "a", np.where(frame["items"] > 4, "b", "c"))
    model = MetricClassifier("f1", models=["boosting_small"], random_state=0, n_jobs=1, time_budget=2)
    model.fit(frame, y, sample_weight=np.linspace(0, 2, len(y)), groups=np.arange(len(y)) // 3)
    assert set(model.predict(frame)) == {"a", "b", "c"}


def test_models_of_the_user_get_a_sample_of_the_table(frame, labels):
    pipeline = make_pipeline(FunctionTransformer(lambda table: table[["amount"]].fillna(0)), LogisticRegression())
    model = MetricClassifier("f1", models=[("own", pipeline)], random_state=0, n_jobs=1).fit(frame, labels)
    assert model.models_[0].sample == "fitted on 300 of 1,500 rows"
    assert model.score(frame, labels) > 0.4
