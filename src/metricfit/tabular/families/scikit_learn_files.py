"""The user's scikit-learn models as files of skops: nothing is unpickled, and types are named before they are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zipfile import ZIP_DEFLATED

from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote, shorten

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
        trusted: Names of types that the user trusts, beside those that skops trusts.

    Raises:
        UntrustedTypeError: It has other types; nothing was built.
        ModelFileError: It cannot be read, or a part of it does not fit the others.
    """
    from metricfit.tabular.families.model_checks import check_model  # imports most of scikit-learn, as skops does

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
