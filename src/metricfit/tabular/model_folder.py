"""A model as a folder: model.json, arrays.safetensors, files of skops, a manifest of hashes and a model card.

Loading reads numbers and text. The user's own scikit-learn models are read by skops, which builds only types that it or
the user trusts. The hashes show that a file was cut short or changed, unless the manifest was changed too; they are no
signature, so everything is checked as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as bytes_of

from metricfit._files import hash_bytes, new_folder, parse_json
from metricfit._version import __version__
from metricfit.errors import ModelFileError, quote, shorten
from metricfit.tabular.families.family import MissingArgumentError
from metricfit.tabular.families.skops_files import UntrustedTypeError, check_trusted

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
    with new_folder(path) as unfinished:
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
