"""Crafted files of scikit-learn's models: what native code would follow out of its memory is refused."""

import io
import json
import os
import resource
import signal
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC, NuSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import all_estimators

from metricfit.errors import MetricfitError, ModelFileError
from metricfit.tabular.native_memory import check_model
from metricfit.tabular.storage import model_from_bytes, model_to_bytes

TRUSTED = ["sklearn.tree._tree.Tree", "scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"]
RNG = np.random.default_rng(0)
X = np.abs(RNG.normal(size=(60, 5)))
Y = (X[:, 0] > 0.7).astype(int) + (X[:, 1] > 1)
WORDS = pd.DataFrame({"text": [f"a{n % 7} b{n % 5}" for n in range(60)]})


def words():
    return make_pipeline(make_column_transformer((CountVectorizer(token_pattern=r"\w+"), "text")), LogisticRegression())


def rare():
    return make_pipeline(OneHotEncoder(min_frequency=4, handle_unknown="infrequent_if_exist"), LogisticRegression())


def replace(*path, by):
    """Return a function that replaces an attribute of a part of a model by a function of it."""

    def change(model):
        part = model
        for name in path[:-1]:
            part = part[name] if isinstance(name, int) else getattr(part, name)
        value = getattr(part, path[-1])
        vars(part)[path[-1]] = by(value) if callable(by) else by

    return change


def replace_in_tree(*path, **values):
    def change(model):
        part = model
        for name in path:
            part = part[name] if isinstance(name, (int, tuple)) else getattr(part, name)
        tree = part.tree_
        state = tree.__getstate__()
        nodes = state["nodes"].copy()
        for name, value in values.items():
            if name in nodes.dtype.names:
                nodes[name][0] = value
        tree.__setstate__(state | {"nodes": nodes, "node_count": values.get("node_count", state["node_count"])})

    return change


def exchange_trees(model):
    """Put the trees of a model of more columns into a model; its number of columns stays."""
    wide = np.tile(X, 20)[:, ::-1] * RNG.normal(size=100)
    other = clone(model).fit(wide, Y)
    if isinstance(model, DecisionTreeClassifier):
        model.tree_ = other.tree_
    else:
        model.estimators_ = other.estimators_


def zeros(values):
    return np.concatenate([values, np.zeros((30_000, *values.shape[1:]), values.dtype)])


FOREST, STEPS, TREE = RandomForestClassifier(3), GradientBoostingClassifier(n_estimators=3), DecisionTreeClassifier()


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (SVC(), replace("_n_support", by=zeros), "another number of classes"),
        (SVC(), replace("_n_support", by=lambda counts: counts - np.int32(1)), "more or fewer support vectors"),
        (SVC(), replace("support_vectors_", by=lambda vectors: vectors[:0]), "another number of rows"),
        (SVC(), replace("support_vectors_", by=lambda vectors: vectors[:, :2].copy()), "another number of columns"),
        (SVC(), replace("_dual_coef_", by=lambda weights: weights[:, :3]), "weights of another shape"),
        (SVC(), replace("_intercept_", by=lambda intercepts: intercepts[:1]), "another number of intercepts"),
        (SVC(), replace("_probA", by=lambda numbers: np.zeros(1)), "another number of probabilities"),
        (SVC(), replace("kernel", by="precomputed"), "the kernel 'precomputed' cannot be loaded"),
        (SVC(), replace("_impl", by="one_class"), "'_impl' stands in place of a part of its class"),
        (SVC(), replace("n_features_in_", by=None), "n_features_in_ must be a whole number"),
        (NuSVC(nu=0.1), replace("_n_support", by=zeros), "another number of classes"),
        (OneClassSVM(), replace("_dual_coef_", by=lambda weights: weights[:, :3]), "weights of another shape"),
        (KNeighborsClassifier(algorithm="brute"), replace("_y", by=lambda labels: labels[:3]), "number of labels"),
        (KNeighborsClassifier(algorithm="brute"), replace("_y", by=lambda labels: labels + 10**6), "other classes"),
        (KNeighborsClassifier(algorithm="brute"), replace("n_neighbors", by=10**6), "more neighbours than rows"),
        (TREE, replace_in_tree(left_child=10**6), "leads to an earlier or a missing node"),
        (TREE, replace_in_tree(right_child=0), "leads to an earlier or a missing node"),
        (TREE, replace_in_tree(feature=99), "splits a column that does not exist"),
        (TREE, replace_in_tree(threshold=np.nan), "numbers that are not finite"),
        (TREE, replace_in_tree(node_count=10**9), "nodes"),
        (TREE, exchange_trees, "another number of columns than its tree"),
        (TREE, replace("n_features_in_", by=True), "n_features_in_ must be a whole number"),
        (FOREST, exchange_trees, "a tree has another number of columns"),
        (FOREST, replace("estimators_", 1, "n_features_in_", by=9), "another number of columns"),
        (FOREST, replace("_validate_X_predict", by=lambda _: np.positive), "stands in place of a part of its class"),
        (STEPS, exchange_trees, "a tree has another number of columns"),
        (STEPS, replace("estimators_", by=lambda trees: np.tile(trees, 40)), "another number of trees per step"),
        (words(), replace(0, "transformers_", by=lambda parts: spoil_words(parts)), "words without a column"),
        (rare(), replace(0, "_n_features_outs", by=lambda sizes: [-9, *sizes[1:]]), "another number of columns"),
        (
            rare(),
            replace(0, "_default_to_infrequent_mappings", by=lambda maps: [maps[0] + 9, *maps[1:]]),
            "without a column",
        ),
    ],
)
def test_a_part_that_does_not_fit_is_refused(model, change, message):
    table = WORDS if isinstance(model[0] if hasattr(model, "steps") else model, type(words()[0])) else np.round(X, 1)
    fitted = clone(model).fit(table, Y)
    check_model(fitted)
    change(fitted)
    with pytest.raises(ModelFileError, match=message):
        check_model(fitted)


def spoil_words(parts):
    parts[0][1].vocabulary_["a1"] = 10**7
    return parts


def test_files_are_checked_before_their_model_is_used():
    fitted = SVC().fit(X, Y)
    again = model_from_bytes(model_to_bytes(fitted), ())
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    fitted._n_support = zeros(fitted._n_support)
    with pytest.raises(ModelFileError, match="a SVC: another number of classes"):
        model_from_bytes(model_to_bytes(fitted), ())


def test_a_sparse_matrix_that_points_outside_is_refused():
    fitted = SGDClassifier().fit(X, Y).sparsify()
    fitted.coef_.indices[0] = 10**6
    with pytest.raises(ModelFileError, match=r"csr_(matrix|array)"):
        model_from_bytes(model_to_bytes(fitted), TRUSTED)


def crafted_files(content, several):
    """Yield files in which one array or one number is another, chosen at random."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    for _ in range(several):
        name = sorted(files)[RNG.integers(len(files))]
        if name.endswith(".npy"):
            yield name, _pack({**files, name: _spoil_array(files[name])})
        else:
            yield name, _pack({**files, "schema.json": _spoil_number(files["schema.json"])})


def _spoil_array(content):
    array, out = np.load(io.BytesIO(content), allow_pickle=False), io.BytesIO()
    changes = [array[: len(array) // 2], array[:0], zeros(array), array.ravel()] if array.ndim else []
    if array.ndim == 2:
        changes += [array[:, :1], np.tile(array, 50)]
    for number in (10**6, -(10**6), 2**31 - 1):
        if array.dtype.kind in "if":
            changes.append(np.full_like(array, number))
    np.save(out, changes[RNG.integers(len(changes))] if changes else array)
    return out.getvalue()


def _spoil_number(content):
    schema = json.loads(content)
    places, waiting = [], [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("__class__") in ("int", "float", "bool"):
                places.append(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    if places:
        places[RNG.integers(len(places))]["content"] = str(RNG.choice([0, -1, 7, 10**6, 2**31 - 1, -(2**62)]))
    return json.dumps(schema).encode()


def _pack(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return out.getvalue()


def signal_of_use(content, table):
    """Load and use a model in a process of its own; return the signal that ended it, 0 for none."""
    process = os.fork()
    if process == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(30)
        resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
        try:
            model = model_from_bytes(content, TRUSTED)
            (model.predict_proba if hasattr(model, "predict_proba") else model.decision_function)(table)
            model.predict(table)
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return 0 if ended_by == signal.SIGALRM else ended_by


def every_model():
    """Yield classifiers, and transformers before a classifier, that are fitted without further arguments."""
    for name, kind in all_estimators(type_filter=["classifier", "transformer"]):
        try:
            model = kind()
        except TypeError:
            continue
        few = {"n_estimators": 3, "max_iter": 20, "n_components": 2}
        model.set_params(**{key: value for key, value in few.items() if key in model.get_params()})
        is_classifier = hasattr(kind, "predict_proba") or hasattr(kind, "decision_function")
        yield name, model if is_classifier else make_pipeline(model, LogisticRegression()), X
    yield "words", words(), WORDS
    yield "rare categories", rare(), np.round(X, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_crafted_file_of_any_estimator_ends_the_process():
    ended, tried = [], 0
    for name, model, table in every_model():
        try:
            content = model_to_bytes(clone(model).fit(table, Y))
            model_from_bytes(content, TRUSTED)
        except (ValueError, TypeError, AttributeError, MetricfitError):
            continue  # another kind of table is needed, or its types are not trusted
        tried += 1
        ended += [(name, file) for file, crafted in crafted_files(content, 12) if signal_of_use(crafted, table)]
    assert ended == []
    assert tried > 60
