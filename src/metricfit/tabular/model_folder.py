"""A model as a folder: model.json, arrays.safetensors, files of skops, a manifest of hashes and a model card.

Loading reads numbers and text. The user's own scikit-learn models are read by skops, which builds only types that it or
the user trusts. The hashes show that a file was cut short or changed, unless the manifest was changed too; they are no
signature, so everything is checked as well.

skops says which types a file has, not what their arrays hold. libsvm, trees, neighbours and sparse matrices follow
numbers of the file as places in memory. A crafted file would end the process or read its memory, so what native code
follows without looking is checked before a model is used.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as bytes_of
from scipy.sparse import issparse
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from metricfit._files import hash_bytes, new_folder, parse_json
from metricfit._version import __version__
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote, shorten
from metricfit.tabular.families.family import MissingArgumentError

FORMAT = 2
MODEL, ARRAYS, MANIFEST = "model.json", "arrays.safetensors", "manifest.json"
CARD = "model_card.md"  # for people; nothing reads it
SKOPS_FILE = re.compile(r"[a-z0-9._-]{1,200}\.skops")
#: The estimator of manifests that name none.
FIRST = "MetricClassifier"

#: Builds a model from what model.json holds, the arrays and all files.
Restore = Callable[[Any, dict[str, NDArray[Any]], dict[str, bytes]], None]


def write_folder(
    path: str | os.PathLike[str],
    estimator: str,
    description: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    files: Mapping[str, bytes],
    trusted: tuple[str, ...],
    card: str,
    overwrite: bool = False,
) -> None:
    """Write a model to a new or empty folder; a failure leaves nothing behind.

    Args:
        path: The folder.
        estimator: The name of the model's class.
        description: What JSON holds.
        arrays: Arrays by name.
        files: Files of skops by name.
        trusted: Names of types that the user trusts.
        card: The model card. The manifest does not name it, so that people may edit it.
        overwrite: Whether to replace a model in the folder. Other folders with files are never replaced.

    Raises:
        UntrustedTypeError: A file has types that nobody trusts.
    """
    for content in files.values():
        check_trusted(content, trusted, "save")
    contents = {
        MODEL: json.dumps(description, allow_nan=False, indent=1).encode(),
        ARRAYS: bytes_of({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
        **files,
    }
    hashes = {name: hash_bytes(content, length=64) for name, content in contents.items()}
    manifest = {"format": FORMAT, "metricfit": __version__, "estimator": estimator, "sha256": hashes}
    contents[MANIFEST], contents[CARD] = json.dumps(manifest, indent=1).encode(), card.encode()
    with new_folder(path, overwrite=overwrite and (Path(path) / MANIFEST).is_file()) as unfinished:
        for name, content in contents.items():
            (unfinished / name).write_bytes(content)


def read_folder(path: str | os.PathLike[str], estimator: str, trusted: tuple[str, ...], restore: Restore) -> None:
    """Build a model from a folder.

    Args:
        path: The folder that `write_folder` wrote.
        estimator: The name of the class that is expected.
        trusted: Names of types that the user trusts.
        restore: Builds the model.

    Raises:
        ModelFileError: The folder is damaged, or what it holds is no model that this version can use.
        UntrustedTypeError: A model of the user has types that nobody trusts; nothing was built.
        MissingArgumentError: A function of the user is needed.
    """
    folder = Path(path)
    contents = _checked_contents(folder, estimator)
    try:
        for name, content in contents.items():
            if name not in (MODEL, ARRAYS):
                check_trusted(content, trusted, "load")
        arrays = arrays_from(contents[ARRAYS])
        _check_numbers(arrays)
        restore(parse_json(contents[MODEL]), arrays, contents)
    except ModelFileError as error:
        raise ModelFileError(
            f"{folder} holds no whole model ({error}): save it again from the fitted one, or load it with the version "
            "of metricfit that saved it"
        ) from error
    except (ImportError, MissingArgumentError, UntrustedTypeError):  # what the user can add
        raise
    except Exception as error:  # whatever else fails while it reads the folder is the folder's fault
        raise ModelFileError(
            f"{folder} holds no model of this version: {type(error).__name__}: {shorten(error)}"
        ) from error


def _check_numbers(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that would make predictions NaN; families check the arrays of their models themselves.

    Raises:
        ModelFileError: An array has numbers that are not finite.
    """
    for name, array in arrays.items():
        if array.dtype.kind != "f" or name.startswith("model."):
            continue
        if not np.isfinite(array).all():
            raise ModelFileError(f"{quote(name)} has numbers that are not finite")


def name_of_estimator(path: str | os.PathLike[str]) -> str | None:
    """Return the name of the class whose model a folder holds; None if its manifest does not say."""
    try:
        return str(parse_json((Path(path) / MANIFEST).read_bytes()).get("estimator", FIRST))
    except (OSError, ValueError, AttributeError):
        return None


def _checked_contents(folder: Path, estimator: str) -> dict[str, bytes]:
    """Return the contents of the files that the manifest names, if they have the hashes that it states."""
    if not (folder / MANIFEST).is_file():
        raise ModelFileError(f"{folder} has no {MANIFEST}: it is no saved model, or one whose saving was cut short")
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes())
        format_of, hashes = manifest["format"], manifest["sha256"]
        saved = manifest.get("estimator", FIRST)
        expected = {name: str(hashes[name]) for name in dict.fromkeys((MODEL, ARRAYS, *hashes))}
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: {shorten(error)}") from error
    if format_of != FORMAT:
        raise ModelFileError(
            f"{folder} is of format {quote(format_of)}, this version reads {FORMAT}: use the metricfit it names"
        )
    if saved != estimator:
        raise ModelFileError(f"{folder} holds a {quote(saved)}, not a {estimator}: load it with metricfit.{saved}.load")
    contents = {}
    for name, wanted in expected.items():
        if name not in (MODEL, ARRAYS) and not SKOPS_FILE.fullmatch(name):
            raise ModelFileError(f"{folder / MANIFEST} names a file that is no part of a model: {quote(name)}")
        if not (folder / name).is_file():
            raise ModelFileError(f"{folder} lacks {name}; copy the folder again")
        contents[name] = (folder / name).read_bytes()
        if hash_bytes(contents[name], length=64) != wanted:
            raise ModelFileError(f"{folder / name} is not what was saved: cut short or changed. Copy the folder again")
    return contents


#: Types that skops does not trust yet, and that hold nothing but values: plain classes, and numpy's types, which skops
#: reads from an empty array.
PLAIN_TYPES = (
    "collections.OrderedDict",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.utils._bunch.Bunch",
    *(
        f"sklearn.model_selection._split.{splitter}"
        for splitter in (
            "GroupKFold",
            "GroupShuffleSplit",
            "KFold",
            "PredefinedSplit",
            "ShuffleSplit",
            "StratifiedGroupKFold",
            "StratifiedKFold",
            "StratifiedShuffleSplit",
            "TimeSeriesSplit",
        )
    ),
)
#: Kernels that take rows with the columns of the support vectors.
KERNELS = ("linear", "poly", "rbf", "sigmoid")


class UntrustedTypeError(InvalidValueError):
    """A model of the user has types that are only saved and loaded if the user names them."""


def model_to_bytes(model: Any) -> bytes:
    """Write a scikit-learn model.

    Raises:
        InvalidTypeError: skops cannot write it.
    """
    try:
        content: bytes = _skops().dumps(model, compression=ZIP_DEFLATED)
    except Exception as error:  # whatever the model's own classes raise
        raise InvalidTypeError(
            f"{type(model).__name__} cannot be saved without pickle: {shorten(error)}. Use another model, or leave it "
            "out of models"
        ) from error
    return content


def model_from_bytes(content: bytes, trusted: Sequence[str]) -> Any:
    """Read a scikit-learn model, and check what native code follows in it.

    Args:
        content: What `model_to_bytes` returned.
        trusted: Names of types that the user trusts, in addition to the types that skops trusts.

    Raises:
        UntrustedTypeError: It has other types; nothing was built.
        ModelFileError: It cannot be read, or a part of it does not fit the others.
    """
    check_trusted(content, trusted, "load")
    try:
        model = _skops().loads(content, trusted=[*trusted, *PLAIN_TYPES])
    except Exception as error:  # a damaged file may fail anywhere
        raise ModelFileError(f"user_model: cannot be read: {type(error).__name__}: {shorten(error)}") from error
    check_model(model)
    return model


def check_trusted(content: bytes, trusted: Sequence[str], method: str) -> None:
    """Refuse a file with types that neither skops nor the user trusts.

    Args:
        content: What `model_to_bytes` returned.
        trusted: Names of types that the user trusts.
        method: "save" or "load", for the message.

    Raises:
        UntrustedTypeError: There are such types; the message names them.
        ModelFileError: The file cannot be read.
    """
    try:
        untrusted = [str(name) for name in _skops().get_untrusted_types(data=content)]
    except Exception as error:  # a damaged file may fail anywhere
        raise ModelFileError(f"user_model: cannot be read: {type(error).__name__}: {shorten(error)}") from error
    missing = sorted(set(untrusted) - {*trusted, *PLAIN_TYPES})
    if missing:
        names = ", ".join(map(quote, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise UntrustedTypeError(
            f"a model of the user has types that could run code or crash: {names}. If you trust them, name them: "
            f"{method}(path, trusted=[...])"
        )


def trusted_types(trusted: Any) -> tuple[str, ...]:
    """Return the names of the types that the user trusts.

    Raises:
        InvalidTypeError: It is no list of names.
    """
    if trusted is None:
        return ()
    if isinstance(trusted, str) or not all(isinstance(name, str) for name in trusted):
        raise InvalidTypeError(f"trusted is a list of names of types; got {quote(trusted)}")
    return tuple(trusted)


def _skops() -> Any:
    """Load skops, which imports all of scikit-learn, only for those who have such models."""
    import skops.io

    return skops.io


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
