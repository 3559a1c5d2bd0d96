"""The family of free text: what it reads, what it learns, and what it is stored as."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from stored_state import restore, state_of

from metricfit import MetricClassifier, TunedDecisionClassifier, compare
from metricfit.errors import ModelFileError
from metricfit.metrics import f1
from metricfit.tabular.encoding.columns import free_text_columns
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families import linear as text_module
from metricfit.tabular.families.choice import make_families
from metricfit.tabular.families.family import Deadline, Features, TrainingRows
from metricfit.tabular.families.linear import ANALYZERS, BUCKETS, Terms, TextLinear
from metricfit.tabular.out_of_fold import fit_family

NEUTRAL = [f"{first}{last}" for first in ("ba", "de", "ki", "lo", "mu", "ro") for last in ("nar", "pel", "tis", "vom")]
TOLD = [["slow", "broken", "refund"], ["lovely", "fresh", "again"], ["plain", "usual", "average"], ["odd", "green"]]


def texts_of(y, seed=0, share=0.7):
    """Sentences of neutral words; in a share of them one word tells the class."""
    rng = np.random.default_rng(seed)
    sentences = []
    for label in y:
        words = rng.choice(NEUTRAL, 12).tolist()
        if rng.random() < share:
            words[rng.integers(12)] = rng.choice(TOLD[label])
        sentences.append(" ".join(words))
    return sentences


def table_of(classes=2, n=300, seed=0, share=0.7):
    y = np.random.default_rng(seed).integers(0, classes, n)
    size = np.random.default_rng(seed + 1).normal(size=n)
    return pd.DataFrame({"size": size, "note": texts_of(y, seed + 2, share)}), y


def rows_of(X, y, classes=2, weight=None):
    return TrainingRows(Features(TableEncoder().fit(X), X), y, weight, classes)


def result_of(X, y, classes=2, weight=None, folds=4):
    rows = rows_of(X, y, classes, weight)
    return fit_family(TextLinear(), rows, folds_of(len(y), folds), seed=0, jobs=1, deadline=Deadline())


def folds_of(n, folds):
    part = np.arange(n) % folds
    return [(np.flatnonzero(part != fold), np.flatnonzero(part == fold)) for fold in range(folds)]


def test_only_sentences_that_hardly_repeat_are_free_text():
    n = 120
    table = pd.DataFrame(
        {
            "number": np.arange(n),
            "note": [f"it took {each} days" for each in range(n)],
            "town": ["Bad Homburg vor der Höhe", "Ulm"] * (n // 2),
            "name": [f"Ada Number{each}" for each in range(n)],
            "code": [f"A-{each}" for each in range(n)],
            "when": [f"{1 + each % 28} January {1900 + each} 10:00" for each in range(n)],
            "gaps": [f"it took {each} days" if each % 9 else None for each in range(n)],
            "empty": [None] * n,
            "mixed": [each if each % 2 else f"it took {each} days" for each in range(n)],
        }
    )
    assert [table.columns[at] for at in free_text_columns(table)] == ["note", "gaps"]
    assert free_text_columns(table.astype({"note": "string"}))[0] == 1
    assert free_text_columns(table[["number"]].to_numpy()) == []


@pytest.mark.parametrize("rows_per_part", [7, 4096])
def test_weights_are_those_of_scikit_learn(monkeypatch, rows_per_part):
    monkeypatch.setattr(text_module, "ROWS_PER_PART", rows_per_part)
    X, _ = table_of(n=60)
    features = Features(np.zeros((60, 1), dtype=np.float32), X)
    terms = Terms.learned(X, [1])
    weights = terms.weigh(features)
    for block, (settings, _, length) in enumerate(ANALYZERS):
        own = (terms.numbers >= block * BUCKETS) & (terms.numbers < (block + 1) * BUCKETS)
        counts = HashingVectorizer(n_features=BUCKETS, alternate_sign=False, norm=None, **settings).transform(X["note"])
        kept = np.flatnonzero(counts.getnnz(axis=0) >= 2)
        np.testing.assert_array_equal(terms.numbers[own] - block * BUCKETS, kept)
        expected = length * TfidfTransformer(sublinear_tf=True).fit_transform(counts[:, kept])
        actual = weights[:, np.flatnonzero(np.append(own, False))]
        np.testing.assert_allclose(actual.toarray(), expected.toarray(), atol=1e-12)


def test_the_vocabulary_is_limited_to_the_terms_of_most_rows(monkeypatch):
    X, _ = table_of(n=100)
    monkeypatch.setattr(text_module, "ANALYZERS", tuple((each, 10, length) for each, _, length in ANALYZERS))
    terms = Terms.learned(X.assign(other=X["note"].str.upper()), [1, 2])
    assert len(terms) == 4 * 5
    counts = HashingVectorizer(n_features=BUCKETS, alternate_sign=False, norm=None, **ANALYZERS[0][0]).transform(
        X["note"]
    )
    assert terms.rarity[:5] == pytest.approx(np.log(101 / (1 + np.sort(counts.getnnz(axis=0))[-5:].min())) + 1, abs=0.3)


@pytest.mark.parametrize("classes", [2, 4])
def test_words_are_learned_and_the_model_is_restored(classes):
    X, y = table_of(classes)
    result = result_of(X, y, classes)
    new, labels = table_of(classes, seed=9)
    encoder = TableEncoder()
    encoder.fit(X)
    logits = result.model.logits(Features(encoder.transform(new), new))
    decided = (logits[:, 0] > 0) if classes == 2 else logits.argmax(axis=1)
    assert np.mean(decided == labels) > {2: 0.75, 4: 0.65}[classes]
    features = rows_of(X, y, classes).features
    state = state_of(result.model)
    assert not state.files
    again = restore(state, features.encoded.shape[1], classes)
    np.testing.assert_array_equal(again.logits(features), result.model.logits(features))
    mean = np.mean([model.logits(features) for model in result.fold_models], axis=0)
    np.testing.assert_allclose(result.model.logits(features), mean, atol=1e-9)
    for columns, number in ((1, classes), (features.encoded.shape[1], 5)):
        with pytest.raises(ModelFileError):
            restore(state, columns, number)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("terms.columns", 0, -1, "outside of 0"),
        ("terms.numbers", 0, 2**40, "outside of 0"),
        ("terms.numbers", 1, 0, "ascending"),
        ("terms.rarity", 0, np.nan, "not finite"),
        ("terms.rarity", 0, 1e200, "too large"),
        ("coefficients", (0, 0), np.inf, "not finite"),
        ("intercepts", 0, -1e200, "too large"),
    ],
)
def test_damaged_arrays_are_refused(name, place, value, message):
    X, y = table_of(n=80)
    state = state_of(result_of(X, y, folds=2).model)
    array = state.arrays[name].copy()
    array[place] = value
    with pytest.raises(ModelFileError, match=message):
        restore(replace(state, arrays=state.arrays | {name: array}), TableEncoder().fit(X).shape[1], 2)


def test_noise_labels_look_like_noise():
    aucs = []
    for seed in range(12):
        X, _ = table_of(n=120, seed=seed)
        y = np.random.default_rng(100 + seed).permutation(np.arange(120) % 3 == 0).astype(np.int64)
        logits = result_of(X, y).logits[:, 0]
        aucs += [roc_auc_score(y[part], logits[part]) for _, part in folds_of(120, 4)]
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.05)  # three standard errors


def test_no_fold_learns_from_its_held_out_labels():
    X, y = table_of(n=120)
    splits = folds_of(120, 4)
    held_out = splits[0][1]
    flipped = y.copy()
    flipped[held_out] = 1 - y[held_out]
    fitted = [
        TextLinear().fit_folds(rows_of(X, labels), splits, seed=0, deadline=Deadline())[0] for labels in (y, flipped)
    ]
    for penalty in range(len(fitted[0].losses)):
        models = [candidates.select(penalty) for candidates in fitted]
        np.testing.assert_array_equal(models[0].coefficients, models[1].coefficients)
    assert fitted[0].losses.min() < fitted[1].losses.min()


def test_weights_of_rows_count_in_training():
    X, y = table_of(n=200, share=0.3)
    plain, heavy = result_of(X, y), result_of(X, y, weight=np.where(y == 1, 9.0, 1.0))
    assert heavy.logits.mean() > plain.logits.mean() + 0.5


def test_new_words_and_missing_texts_are_neutral(tmp_path):
    X, y = table_of()
    X.loc[::9, "note"] = None
    X.loc[1::9, "note"] = ""
    model = MetricClassifier("f1", models=["text"], members=3, random_state=0).fit(X, y)
    new = pd.DataFrame({"size": 0.0, "note": ["xxyyzz wwqqjj", None, "", "slow broken refund", "lovely fresh again"]})
    probability = model.predict_proba(new)[:, 1]
    np.testing.assert_allclose(probability[:3], probability[0], atol=0.02)
    assert probability[3] < probability[0] < probability[4]
    model.save(tmp_path / "model")
    again = MetricClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".skops"))]
    assert b"lovely" not in b"".join(path.read_bytes() for path in (tmp_path / "model").iterdir())


def test_auto_has_the_family_for_tables_with_text_only():
    X, y = table_of()
    settings = {"metric": f1, "average": "macro", "requirements": ()}
    names = [family.name for family in make_families("auto", table=X, **settings)]
    assert names == ["linear", "text", "boosting_small", "extra_trees", "boosting", "kernel"]
    assert "text" not in [family.name for family in make_families("auto", table=X[["size"]], **settings)]
    with pytest.raises(ValueError, match=r"text: the table has no column of free text"):
        MetricClassifier("f1", models=["text"], members=2).fit(X[["size"]], y)
    assert "at most" in TextLinear().reason_to_skip(rows_of(X.assign(note=X["note"] * 1000), y))


def test_it_is_not_worse_than_tf_idf_under_the_same_decision():
    X, y = table_of(n=500, share=0.6)
    new, labels = table_of(n=800, seed=50, share=0.6)
    model = MetricClassifier("f1", models=["text"], members=4, random_state=0).fit(X, y)

    words = make_column_transformer((TfidfVectorizer(), "note"))
    rival = TunedDecisionClassifier(make_pipeline(words, LogisticRegression()), "f1", random_state=0).fit(X, y)
    assert f1_score(labels, model.predict(new)) > f1_score(labels, rival.predict(new)) - 0.02


def test_the_default_of_compare_has_the_family():
    X, y = table_of(n=120)
    comparison = compare(X, y, "f1", methods=["metricfit"], folds=2)
    assert comparison.recommended
    assert not [note for note in comparison.notes if "text" in note]
