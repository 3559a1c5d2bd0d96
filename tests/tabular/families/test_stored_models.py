"""Fitted models as plain data and back; damaged data is refused before a model is built from it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC
from stored_state import restore, state_of

from metricfit.errors import InvalidTypeError, ModelFileError
from metricfit.metrics.metric import get_metric
from metricfit.tabular.families.boosting import SMALL, Boosting, Trees
from metricfit.tabular.families.family import Deadline, choose_candidates
from metricfit.tabular.families.forest import ExtraTrees
from metricfit.tabular.families.kernel import Kernel
from metricfit.tabular.families.linear import Linear
from metricfit.tabular.families.network import Network
from metricfit.tabular.families.network_models import NetworkFamily
from metricfit.tabular.families.user_model import UserModel
from metricfit.tabular.storage import (
    UntrustedTypeError,
    model_from_bytes,
    model_to_bytes,
    trusted_types,
)

TREE = "sklearn.tree._tree.Tree"
FAMILIES = {
    "boosting": Boosting(trees=Trees({"num_leaves": 15, "num_iterations": 20}, 30)),
    "large trees": Boosting(trees=Trees({"num_leaves": 31, "num_iterations": 20}, 30)),
    "boosting_metric": Boosting("boosting_metric", SMALL, metric=get_metric("f1")),
    "extra_trees": ExtraTrees(10),
    "linear": Linear(),
    "kernel": Kernel(),
    "network": NetworkFamily(Network("embedded", epochs=1), get_metric("f1")),
    "tabm": NetworkFamily(Network("tabm", epochs=1), get_metric("f1")),
    "user probabilities": UserModel("mine", LogisticRegression()),
    "user scores": UserModel("mine", LinearSVC()),
}


def fit_folds(family, rows):
    odd = np.arange(len(rows)) % 2 == 1
    splits = [(np.flatnonzero(~odd), np.flatnonzero(odd)), (np.flatnonzero(odd), np.flatnonzero(~odd))]
    return family.combine(choose_candidates(family.fit_folds(rows, splits, seed=0, deadline=Deadline())))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_restored_model_has_the_same_logits(family, rows, held_out, classes):
    model = fit_folds(family, rows)
    again = restore(state_of(model), rows.x.shape[1], classes)
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.logits(held_out.features), model.logits(held_out.features))


@pytest.mark.parametrize("family", ["boosting", "extra_trees", "linear", "kernel", "network"])
@pytest.mark.parametrize("change", ["fewer columns", "more classes"])
def test_a_model_of_another_table_is_refused(family, change, make_rows):
    state = state_of(fit_folds(FAMILIES[family], make_rows(4)))
    with pytest.raises(ModelFileError):
        restore(state, *((1, 4) if change == "fewer columns" else (4, 5)))


@pytest.fixture(scope="module")
def states(make_rows):
    rows = make_rows(3)
    return {name: state_of(fit_folds(FAMILIES[name], rows)) for name in ("boosting", "extra_trees", "linear", "kernel")}


def damage(state, name, change):
    array = state.arrays[name].copy()
    change(array)
    return replace(state, arrays=state.arrays | {name: array})


def with_value(state, name, value):
    return replace(state, values=state.values | {name: value})


def put(at, value):
    def change(array):
        array[at] = value

    return change


def shift_a_node(nodes):
    nodes[:2] += 1, -1


@pytest.mark.parametrize(
    ("family", "name", "change", "message"),
    [
        ("boosting", "starts", put((0, 0), np.nan), "not finite"),
        ("boosting", "ends", put(0, 0), "numbers outside of 1 to"),
        ("boosting", "ends", put(0, 10), "does not hold trees"),
        ("boosting", "ends", put(1, 10), "one text per fold"),
        ("boosting", "text", put(0, 0), "does not hold trees"),
        ("boosting", "text", put(-1, 255), "does not hold trees"),
        ("extra_trees", "nodes", put(0, 1), "feature has the shape"),
        ("extra_trees", "nodes", shift_a_node, "no tree"),
        ("extra_trees", "nodes", put(0, 2**31 - 1), "feature has the shape"),
        ("extra_trees", "feature", put(0, 4), "numbers outside of -1 to 3"),
        ("extra_trees", "feature", put(0, -1), "threshold has the shape"),
        ("extra_trees", "share", put(0, 10_000), "share has numbers outside"),
        ("extra_trees", "share", put(0, -1), "share has numbers outside"),
        ("extra_trees", "shares", put((0, 0), 2.0), "shares outside of 0 to 1"),
        ("extra_trees", "threshold", put(0, np.inf), "not finite"),
        ("linear", "coefficients", put((0, 0), np.nan), "not finite"),
        ("kernel", "vectors", put((0, 0), np.inf), "not finite"),
    ],
)
def test_damaged_arrays_are_refused(states, family, name, change, message):
    with pytest.raises(ModelFileError, match=message):
        restore(damage(states[family], name, change), 4, 3)


@pytest.mark.parametrize(
    ("line", "by", "message"),
    [
        (r"num_leaves=\d+", "num_leaves=0", "more or fewer numbers"),
        (r"num_leaves=\d+", "num_leaves=999999999", "more or fewer numbers"),
        (r"num_leaves=\d+", "num_leaves=99999999999", "does not hold trees"),
        (r"num_cat=0", "num_cat=1", "does not hold trees"),
        (r"is_linear=0", "is_linear=1", "does not hold trees"),
        (r"num_cat=0", "num_cat=0\nnum_cat=1", "does not hold trees"),
        (r"split_feature=\d+", "split_feature=4", "column that does not exist"),
        (r"split_feature=\d+", "split_feature=-1", "column that does not exist"),
        (r"split_feature=\d+ ", "split_feature=", "more or fewer numbers"),
        (r"decision_type=2", "decision_type=1", "not one of numbers"),
        (r"left_child=-?\d+", "left_child=0", "not in its tree"),
        (r"right_child=-?\d+", "right_child=1000", "not in its tree"),
        (r"left_child=-?\d+", "left_child=-1001", "not in its tree"),
        (r"left_child=[^\n]+", lambda line: re.sub(r"-?\d+", "-1", line[0]), "reached in two ways"),
        (r"threshold=[^ ]+", "threshold=1e+999", "not finite"),
        (r"threshold=[^ ]+", "threshold=nan", "does not hold trees"),
        (r"leaf_value=[^ ]+", "leaf_value=inf", "does not hold trees"),
        (r"leaf_value=[^ ]+", "leaf_value=-1e+999", "not finite"),
    ],
)
def test_damaged_trees_are_refused(states, line, by, message):
    state = states["boosting"]
    text = state.arrays["text"].tobytes().decode()[: state.arrays["ends"][0]]
    changed, count = re.subn(line, by, text, count=1)
    assert count == 1
    arrays = {
        "starts": state.arrays["starts"][:1],
        "ends": np.array([len(changed)]),
        "text": np.frombuffer(changed.encode(), np.uint8),
    }
    with pytest.raises(ModelFileError, match=message):
        restore(replace(state, arrays=arrays), 4, 3)


@pytest.mark.parametrize("family", ["boosting", "extra_trees", "linear", "kernel"])
def test_missing_arrays_and_other_types_are_refused(states, family):
    state = states[family]
    for name, array in state.arrays.items():
        others = {key: value for key, value in state.arrays.items() if key != name}
        for wrong in (others, others | {name: array.astype("U3")}, others | {name: array[None]}):
            with pytest.raises(ModelFileError, match=name):
                restore(replace(state, arrays=wrong), 4, 3)


@pytest.mark.parametrize("value", [None, True, 0, -1, 0.5, "1", 10**400])
def test_wrong_values_are_refused(states, value):
    with pytest.raises(ModelFileError, match="folds must be a whole number"):
        restore(with_value(states["extra_trees"], "folds", value), 4, 3)
    if value != 0.5:
        with pytest.raises(ModelFileError, match="gamma must be a finite number"):
            restore(with_value(states["kernel"], "gamma", value), 4, 3)


@pytest.mark.parametrize("kind", ["os.system", "", "mean_of_folds"])
def test_unknown_kinds_and_empty_means_are_refused(states, kind):
    with pytest.raises(ModelFileError, match=r"not known|models must be a list"):
        restore(replace(states["linear"], kind=kind), 4, 3)


class TestModelsOfTheUser:
    """Only types that skops or the user trusts are written and read."""

    def test_untrusted_types_are_named_at_load(self, rows, held_out, classes):
        model = fit_folds(UserModel("mine", RandomForestClassifier(3, random_state=0)), rows)
        state = state_of(model)
        with pytest.raises(UntrustedTypeError, match=rf"'{TREE}'.*load\(path, trusted="):
            restore(state, 4, classes)
        again = restore(state, 4, classes, (TREE,))
        np.testing.assert_array_equal(again.logits(held_out.features), model.logits(held_out.features))

    def test_a_function_of_the_user_is_not_trusted(self):
        content = model_to_bytes(FunctionTransformer(fit_folds))
        with pytest.raises(UntrustedTypeError, match="fit_folds"):
            model_from_bytes(content, ())

    def test_what_skops_cannot_write_is_refused(self):
        with pytest.raises(InvalidTypeError, match="without pickle"):
            model_to_bytes(FunctionTransformer(kw_args={"generator": (number for number in range(3))}))

    @pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x04N."])
    def test_damaged_files_are_refused(self, content):
        with pytest.raises(ModelFileError, match="cannot be read"):
            model_from_bytes(content, ())

    def test_a_classifier_of_other_classes_is_refused(self, rows):
        state = state_of(UserModel("mine", LogisticRegression()).fit(rows, rows, seed=0, deadline=Deadline()))
        content = model_to_bytes(LogisticRegression().fit(rows.x, rows.y + 7))
        other = replace(state, files={"model.model.skops": content})
        with pytest.raises(ModelFileError, match="knows no class"):
            restore(other, 4, rows.classes)

    @pytest.mark.parametrize("names", ["one", [1], [TREE, None]])
    def test_trusted_is_a_list_of_names(self, names):
        with pytest.raises(InvalidTypeError, match="list of names"):
            trusted_types(names)

    def test_a_classifier_of_other_columns_is_refused(self, rows):
        state = state_of(UserModel("mine", LogisticRegression()).fit(rows, rows, seed=0, deadline=Deadline()))
        with pytest.raises(ModelFileError, match="of 4 columns in a table of 5"):
            restore(state, 5, rows.classes)
