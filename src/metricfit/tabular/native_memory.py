"""What native code of scikit-learn would follow out of its memory is refused before a model is used.

skops says which types a file has, not what their arrays hold. libsvm, trees, neighbours and sparse matrices follow
numbers of the file as places in memory. A crafted file would end the process or read its memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from metricfit.errors import ModelFileError, quote

#: Kernels that take rows with the columns of the support vectors.
KERNELS = ("linear", "poly", "rbf", "sigmoid")


def check_model(model: Any) -> None:
    """Refuse a model that would lead native code out of its memory.

    Args:
        model: What skops built.

    Raises:
        ModelFileError: A part of it does not fit the others; the message names the part.
    """
    for part in _parts_of(model):
        try:
            _check_names(part)
            for kind, check in _checks().items():
                if isinstance(part, kind):
                    check(part)
            if issparse(part):
                part.check_format(full_check=True)
        except ModelFileError as error:
            raise ModelFileError(f"user_model: a {type(part).__name__}: {error}") from None
        except Exception as error:  # an attribute is missing or of another type
            raise ModelFileError(f"user_model: a damaged {type(part).__name__}: {quote(str(error))}") from error


def _parts_of(model: Any) -> Iterator[Any]:
    """Yield a model, its steps, its members and everything else that it holds."""
    waiting, seen = [model], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            waiting.extend(value)
        elif isinstance(value, np.ndarray) and value.dtype == object:
            waiting.extend(value.ravel().tolist())
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            waiting.extend(vars(value).values())


def _check_names(part: Any) -> None:
    """Refuse an object of scikit-learn with an attribute in place of one of its class, such as a method."""
    if not type(part).__module__.startswith("sklearn.") or not hasattr(part, "__dict__"):
        return
    for name in vars(part):
        if inspect.getattr_static(type(part), name, None) is not None:
            raise ModelFileError(f"{quote(name)} stands in place of a part of its class")


def _require(holds: Any, what: str) -> None:
    if not bool(holds):
        raise ModelFileError(what)


def _check_tree(tree: Tree) -> None:
    count = tree.node_count
    _require(1 <= count <= tree.capacity, f"{quote(count)} nodes, of which {quote(tree.capacity)} are held")
    _require(len(tree.value) == count, "another number of values than of nodes")
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = left != -1
    nodes = np.flatnonzero(inner)
    for children in (left[inner], right[inner]):
        _require(
            ((children > nodes) & (children < count)).all(), "a node of a tree leads to an earlier or a missing node"
        )
    in_table = (feature[inner] >= 0) & (feature[inner] < tree.n_features)
    _require(in_table.all(), "a node of a tree splits a column that does not exist")
    finite = np.isfinite(tree.value).all() and np.isfinite(tree.threshold).all()
    _require(finite, "a tree has numbers that are not finite")


def _check_tree_estimator(model: BaseDecisionTree) -> None:
    if hasattr(model, "tree_"):
        _require(isinstance(model.tree_, Tree), "tree_ is no tree")
        _require(_columns(model) == model.tree_.n_features, "another number of columns than its tree")


def _check_members(model: Any) -> None:
    """Trees of these ensembles are used on rows whose number of columns only the ensemble has checked."""
    for member in np.ravel(getattr(model, "estimators_", [])).tolist():
        _require(isinstance(member, BaseDecisionTree), "a member is no tree")
        _require(_columns(member) == _columns(model), "a tree has another number of columns")


def _check_boosting(model: Any) -> None:
    _check_members(model)
    if hasattr(model, "estimators_"):
        start = model._raw_predict_init(np.zeros((1, _columns(model)), dtype=np.float32))
        _require(model.estimators_.shape[1:] == start.shape[1:], "another number of trees per step than of outputs")
        single = all(tree.tree_.value.shape[1:] == (1, 1) for tree in model.estimators_.ravel())
        _require(single, "a tree has several values per leaf")


def _check_libsvm(model: Any) -> None:
    if not hasattr(model, "support_vectors_"):
        return
    _require(model.kernel in KERNELS, f"the kernel {quote(model.kernel)} cannot be loaded, only {', '.join(KERNELS)}")
    classes = len(model.classes_) if hasattr(model, "classes_") else 2
    is_classifier, sparse = hasattr(model, "classes_"), bool(model._sparse)
    vectors, weights, per_class = model.support_vectors_, model._dual_coef_, np.asarray(model._n_support)
    count, pairs = vectors.shape[0], classes * (classes - 1) // 2
    _require(issparse(vectors) == sparse == issparse(weights), "support vectors and weights are of two kinds")
    _require(vectors.ndim == 2 and vectors.shape[1] == _columns(model), "support vectors of another number of columns")
    _require(np.asarray(model.support_).shape == (count,), "another number of rows than of support vectors")
    _require(per_class.shape == (classes,) and (per_class >= 0).all(), "another number of classes")
    held = int(per_class.sum()) if is_classifier else int(per_class[0])
    _require(held == count > 0, "the classes have more or fewer support vectors than there are")
    _require(weights.shape == (max(1, classes - 1), count), "weights of another shape than the support vectors")
    _require(not sparse or weights.data.size == max(1, classes - 1) * count, "weights are missing")
    _require(np.shape(model._intercept_) == (pairs,), "another number of intercepts than of pairs of classes")
    sizes = {np.size(model._probA), np.size(model._probB)}
    _require(sizes in ({0}, {pairs}), "another number of probabilities than of pairs of classes")


def _check_neighbors(model: Any) -> None:
    """Brute force reads labels and rows without checks; trees of neighbours are types that nobody trusts."""
    if not hasattr(model, "_fit_X"):
        return
    rows, columns = model._fit_X.shape
    _require(columns == _columns(model), "rows of another number of columns")
    _require(rows == model.n_samples_fit_, "another number of rows")
    _require((getattr(model, "n_neighbors", None) or 1) <= rows, "more neighbours than rows")
    labels = getattr(model, "_y", None)
    if labels is None:
        return
    _require(len(labels) == rows, "another number of labels than of rows")
    if hasattr(model, "classes_"):
        several = model.classes_ if model.outputs_2d_ else [model.classes_]
        of_output = labels.T if model.outputs_2d_ else [labels]
        for known, column in zip(several, of_output, strict=True):
            _require(((column >= 0) & (column < len(known))).all(), "labels of other classes")


def _check_words(model: Any) -> None:
    if hasattr(model, "vocabulary_"):
        places = sorted(int(place) for place in model.vocabulary_.values())
        _require(places == list(range(len(places))), "words without a column, or two in one")


def _check_one_hot(model: Any) -> None:
    if not hasattr(model, "categories_"):
        return
    sizes = [len(known) for known in model.categories_]
    if getattr(model, "_infrequent_enabled", False):
        for column, mapping in enumerate(model._default_to_infrequent_mappings):
            if mapping is not None:
                _require(len(mapping) == sizes[column], "another number of categories")
                places = np.unique(mapping)
                _require(np.array_equal(places, np.arange(len(places))), "categories without a column")
                sizes[column] = len(places)
    dropped = model._drop_idx_after_grouping
    if dropped is not None:
        _require(len(dropped) == len(sizes), "another number of columns")
        for size, place in zip(sizes, dropped, strict=True):
            _require(place is None or 0 <= place < size, "drops a category that does not exist")
        sizes = [size - (place is not None) for size, place in zip(sizes, dropped, strict=True)]
    _require(list(model._n_features_outs) == sizes, "another number of columns than of categories")


def _columns(model: Any) -> int:
    """Return the number of columns that a model compares rows with before it predicts."""
    columns = getattr(model, "n_features_in_", None)
    if isinstance(columns, bool) or not isinstance(columns, (int, np.integer)) or columns < 1:
        raise ModelFileError(f"n_features_in_ must be a whole number from 1 on, got {quote(columns)}")
    return int(columns)


@cache
def _checks() -> dict[type, Callable[[Any], None]]:
    """Return the check of each kind of object. Its imports are slow, so they run at the first use."""
    from sklearn.ensemble._forest import BaseForest
    from sklearn.ensemble._gb import BaseGradientBoosting
    from sklearn.ensemble._iforest import IsolationForest
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.neighbors._base import NeighborsBase
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.svm._base import BaseLibSVM

    return {
        Tree: _check_tree,
        BaseDecisionTree: _check_tree_estimator,
        BaseForest: _check_members,
        IsolationForest: _check_members,
        BaseGradientBoosting: _check_boosting,
        BaseLibSVM: _check_libsvm,
        NeighborsBase: _check_neighbors,
        CountVectorizer: _check_words,
        OneHotEncoder: _check_one_hot,
    }
