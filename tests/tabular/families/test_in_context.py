"""Our own network, and TabICL and TabPFN with small random weights of the real classes, as families."""

import shutil

import numpy as np
import pytest
from stored_state import restore, state_of

from metricfit import MetricClassifier
from metricfit.errors import InvalidValueError, ModelFileError
from metricfit.tabular import InContext
from metricfit.tabular.families import in_context
from metricfit.tabular.families.context_network import WEIGHTS, ContextClassifier
from metricfit.tabular.families.family import Deadline, Features, TrainingRows
from metricfit.tabular.families.in_context import InContextFamily, InContextModel, draw_by_class


def tabicl_weights(path):
    import torch

    pytest.importorskip("tabicl", reason="TabICL is not installed")
    from tabicl._model.tabicl import TabICL

    config = {
        "embed_dim": 16,
        "col_num_blocks": 1,
        "col_nhead": 2,
        "col_num_inds": 4,
        "row_num_blocks": 1,
        "row_nhead": 2,
        "row_num_cls": 2,
        "icl_num_blocks": 1,
        "icl_nhead": 2,
    }
    model = TabICL(**config)
    for parameter in model.parameters():
        if not parameter.any():  # layers that begin at 0 would make every prediction equal
            torch.nn.init.normal_(parameter, std=0.3)
    torch.save({"config": config, "state_dict": model.state_dict()}, path)


def tabpfn_weights(path):
    import torch

    pytest.importorskip("tabpfn", reason="TabPFN is not installed")
    from tabpfn.architectures.tabpfn_v2 import TabPFNV2Config, get_architecture

    config = TabPFNV2Config(max_num_classes=10, num_buckets=10, emsize=24, nlayers=2, nhead=2)
    model = get_architecture(config)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    torch.save({"config": vars(config), "state_dict": model.state_dict()}, path)


def our_weights(path):
    shutil.copy(WEIGHTS, path)


MAKERS = {"metricfit": our_weights, "tabicl": tabicl_weights, "tabpfn": tabpfn_weights}


@pytest.fixture(scope="module", params=list(MAKERS))
def settings(request, tmp_path_factory):
    import torch

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / f"{request.param}.ckpt"
    MAKERS[request.param](path)
    return InContext(request.param, weights=str(path), members=2)


pytestmark = pytest.mark.filterwarnings("ignore:Running on CPU")


@pytest.fixture
def family(request, settings):
    if settings.package == "metricfit" and request.node.callspec.params.get("classes", 2) != 2:
        pytest.skip("our network is for two classes")
    return InContextFamily(settings, "cpu")


def own_probabilities(settings, x, y, new, seed):
    """The package's own probabilities, by its public classifier."""
    if settings.package == "metricfit":
        made = ContextClassifier(WEIGHTS, 2, seed)
    elif settings.package == "tabicl":
        from tabicl import TabICLClassifier

        made = TabICLClassifier(n_estimators=2, model_path=settings.weights, device="cpu", random_state=seed)
    else:
        from tabpfn import TabPFNClassifier

        made = TabPFNClassifier(n_estimators=2, model_path=settings.weights, device="cpu", random_state=seed)
    return made.fit(x, y).predict_proba(new)


def test_the_logits_are_the_log_odds_of_the_package(family, settings, rows, held_out, classes):
    model = family.fit(rows, held_out, seed=5, deadline=Deadline())
    expected = np.log(own_probabilities(settings, rows.x, rows.y, held_out.x, 5))
    if classes == 2:
        expected = expected[:, 1:] - expected[:, :1]
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-3, atol=1e-4)


def test_the_context_of_all_folds_is_every_row_once_and_each_fold_is_known(family, rows, held_out):
    parts = np.arange(len(rows)) % 3
    models = [
        family.fit(rows.take(np.flatnonzero(parts != k)), held_out, seed=1, deadline=Deadline()) for k in range(3)
    ]
    combined = family.combine(models)
    assert (combined.folds, len(combined.x)) == (3, len(rows))
    for fold, model in enumerate(models):
        again = combined.of_fold(fold)
        own, kept = (each.x[np.lexsort(each.x.T)] for each in (model, again))
        np.testing.assert_array_equal(kept, own)
    np.testing.assert_array_equal(np.sort(combined.y), np.sort(rows.y))


def test_a_context_drawn_by_class_gets_the_balance_of_the_table_back(family, settings, make_rows, monkeypatch):
    monkeypatch.setitem(in_context.MOST_ROWS, settings.package, 40)
    rows, new = make_rows(2, n=300), make_rows(2, n=30, seed=1)
    rare = rows.take(np.concatenate([np.flatnonzero(rows.y == 0), np.flatnonzero(rows.y == 1)[:10]]))
    model = family.fit(rare, new, seed=1, deadline=Deadline())
    assert np.bincount(model.y).tolist() == [30, 10]
    plain = InContextModel(model.weights, model.settings, model.x, model.y, model.context, np.array([0.75, 0.25]))
    shift = np.log(10 / 150) - np.log(10 / 30)
    np.testing.assert_allclose(model.logits(new.features) - plain.logits(new.features), shift, rtol=1e-6)


def test_an_ensemble_with_it_is_saved_by_reference_and_loaded(settings, blobs, tmp_path):
    X, y = blobs
    model = MetricClassifier("f1", models=[settings], members=3, random_state=0, device="cpu").fit(X, y)
    folder = tmp_path / "model"
    assert [row.name for row in model.models_] == [in_context.FAMILIES[settings.package]]
    model.save(folder)
    held = b"".join(path.read_bytes() for path in folder.iterdir())
    assert settings.weights.encode() not in held
    assert model.ensemble_.members[0].model.weights.sha256.encode() in held
    if settings.package != "metricfit":  # whose weights are installed with it
        with pytest.raises(ValueError, match="no weights of"):
            MetricClassifier.load(folder)
    again = MetricClassifier.load(folder, weights=settings.weights)
    np.testing.assert_array_equal(again.predict_proba(X[:20]), model.predict_proba(X[:20]))
    (tmp_path / "other.ckpt").write_bytes(b"other weights")
    with pytest.raises(ValueError, match="not the file of weights"):
        MetricClassifier.load(folder, weights=str(tmp_path / "other.ckpt"))


def test_its_state_survives(family, settings, rows, held_out, classes):
    model = family.fit(rows, held_out, seed=5, deadline=Deadline())
    again = restore(state_of(model), rows.x.shape[1], classes, weights=settings.weights)
    np.testing.assert_array_equal(again.logits(held_out.features), model.logits(held_out.features))
    state = state_of(model)
    state.arrays["context"][:] = 0
    with pytest.raises(ModelFileError, match="without context"):
        restore(state, rows.x.shape[1], classes, weights=settings.weights)


def test_its_time_is_estimated_and_a_family_without_time_is_left_out(family, make_rows):
    rows = make_rows(2)
    splits = [(np.arange(100, 300), np.arange(100)), (np.arange(200), np.arange(200, 300))]
    assert 0 < family.estimate(rows, splits, deadline=Deadline()) < 300


def test_tables_that_it_is_not_for_are_skipped(family, make_rows):
    wide = TrainingRows(Features(np.zeros((4, 501), dtype=np.float32)), np.array([0, 1, 0, 1]), None, 2)
    assert family.reason_to_skip(wide) == "more than 500 columns"
    assert "weights" in family.reason_to_skip(make_rows(2, weighted=True))
    assert family.reason_to_skip(make_rows(2)) is None
    many = TrainingRows(Features(np.zeros((4, 2), dtype=np.float32)), np.arange(4), None, 1001)
    assert "classes" in family.reason_to_skip(many)


def test_nothing_is_downloaded_unless_asked(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(in_context, "own_weights", lambda package: None)
    with pytest.raises(InvalidValueError, match="download=True"):
        MetricClassifier("f1", models=[in_context.FAMILIES[settings.package]]).fit(
            np.arange(40.0).reshape(20, 2), np.arange(20) % 2
        )
    with pytest.raises(InvalidValueError, match="no weights"):
        InContextFamily(InContext(settings.package, weights=str(tmp_path / "missing.ckpt")))


def test_rare_classes_are_kept_when_rows_are_drawn():
    y = np.repeat([0, 1, 2], [500, 60, 5])
    drawn = draw_by_class(y, 100, 0)
    assert np.bincount(y[drawn]).tolist() == [48, 47, 5]
    assert len(np.unique(drawn)) == 100
    np.testing.assert_array_equal(draw_by_class(y, 1000, 0), np.arange(565))


@pytest.mark.parametrize("wrong", [{"package": "tabnet"}, {"package": "tabicl", "members": 0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=r"package|members"):
        InContext(**wrong)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("builtins.__import__", _without("tabicl", __import__))
    with pytest.raises(ModuleNotFoundError, match=r"pip install metricfit\[tabicl\]"):
        InContextFamily(InContext("tabicl"))


def _without(package, imports):
    def load(name, *arguments, **keywords):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imports(name, *arguments, **keywords)

    return load


def test_our_network_says_so_for_three_classes_and_needs_no_column_that_differs():
    family = InContextFamily(InContext("metricfit", members=1))
    rows = TrainingRows(Features(np.ones((30, 2), dtype=np.float32)), np.arange(30) % 3, None, 3)
    assert family.reason_to_skip(rows) == "more than 2 classes"
    many = TrainingRows(Features(np.ones((10_001, 2), dtype=np.float32)), np.arange(10_001) % 2, None, 2)
    assert family.reason_to_skip(many) == "more than 10,000 rows"
    labels = (np.arange(30) % 3 == 0).astype(np.int64)
    constant = TrainingRows(rows.features, labels, None, 2)
    logits = family.fit(constant, constant, seed=0, deadline=Deadline()).logits(rows.features)
    np.testing.assert_allclose(logits, np.log(0.5), rtol=1e-6)
