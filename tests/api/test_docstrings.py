"""Every public object is documented: its arguments, what it returns, what it raises, and an example that runs.

Public objects are those that the ``__all__`` of a module without a leading underscore exports. The examples themselves
are run by ``--doctest-modules``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import textwrap
from types import FunctionType, ModuleType

import pytest

DISTRIBUTIONS = ("metricfit", "metricfit_papers")
#: Modules that are exported themselves and have no ``__all__``.
EXPORTED_MODULES = ("metricfit.train.recipes",)
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Note|See also):$", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\S[^:]*?):(?:\s|$)", re.MULTILINE)


def _is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def _public_modules():
    for distribution in DISTRIBUTIONS:
        root = importlib.import_module(distribution)
        names = [info.name for info in pkgutil.walk_packages(root.__path__, distribution + ".", onerror=lambda _: None)]
        for name in [distribution, *names]:
            parts = name.split(".")
            if not any(part.startswith("_") for part in parts):
                spec = importlib.util.find_spec(name)
                if "\n__all__ = " in spec.loader.get_source(name) or name in EXPORTED_MODULES:
                    yield importlib.import_module(name)


def _exported(module):
    if module.__name__ in EXPORTED_MODULES:
        return [name for name, value in vars(module).items() if _is_public_function(name, value, module)]
    return module.__all__


def _is_public_function(name, value, module):
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def _public_objects():
    """Every exported object once, under the longest name of a module that exports it."""
    objects = {}
    for module in _public_modules():
        for name in _exported(module):
            value = getattr(module, name)
            is_documented = inspect.isclass(value) or callable(value)
            if is_documented and not isinstance(value, ModuleType):
                objects[id(value)] = (f"{module.__name__}.{name}", value)
    return dict(sorted(objects.values()))


OBJECTS = _public_objects()
CLASSES = {name: value for name, value in OBJECTS.items() if inspect.isclass(value)}


def _members():
    """The public functions, methods and properties that exported classes and their bases in this library define."""
    members = {}
    for owner in CLASSES.values():
        for base in owner.__mro__:
            if not _is_within(base.__module__, DISTRIBUTIONS):
                continue
            for attribute, value in vars(base).items():
                if not attribute.startswith("_") and _is_documented_member(value):
                    members.setdefault(f"{base.__module__}.{base.__qualname__}.{attribute}", (owner, base, attribute))
    return members


def _is_documented_member(value):
    return isinstance(value, (FunctionType, classmethod, staticmethod, property)) or hasattr(value, "func")


MEMBERS = _members()


def _sections(doc):
    """The names of a docstring's sections, with the entries of each; an override may add entries to a section."""
    parts = SECTION.split(inspect.cleandoc(doc or ""))
    sections = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        entries = [name.strip() for entry in ENTRY.findall(body) for name in entry.split(",")]
        sections[title] = [*sections.get(title, []), *entries]
    return sections


def _described(doc):
    sections = _sections(doc)
    entries = [*sections.get("Args", []), *sections.get("Attributes", [])]
    return {re.sub(r"\s*\(.*\)$", "", entry).lstrip("*") for entry in entries}


def _parameters(function):
    if inspect.isclass(function) and _constructor_is_foreign(function):
        return []
    try:
        signature = inspect.signature(function)
    except ValueError:
        return []
    return [name for name in signature.parameters if name not in ("self", "cls") and not name.startswith("_")]


def _constructor_is_foreign(owner):
    """Whether a class takes the constructor of torch's modules or of built-in errors as it is."""
    if "__new__" in vars(owner):
        return False
    definer = next(base for base in owner.__mro__ if "__init__" in vars(base))
    return not _is_within(definer.__module__, DISTRIBUTIONS)


def _tree(function):
    """The syntax tree of a function, or None where there is no source, as for the methods of a dataclass."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def _raises(function):
    """Whether the function raises an error, other than one that it caught."""
    tree = _tree(function)
    return tree is not None and any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def _returns(function):
    annotation = inspect.unwrap(function).__annotations__.get("return", "None")
    return annotation not in (None, "None", "NoReturn", "Never")


def _problems(doc, parameters, *, raises, returns):
    sections = _sections(doc)
    if not doc:
        return ["no docstring"]
    missing = [name for name in parameters if name not in _described(doc)]
    problems = [f"{name} is not described" for name in missing]
    if returns and not {"Returns", "Yields"} & set(sections):
        problems.append("no Returns")
    if raises and "Raises" not in sections:
        problems.append("no Raises")
    return problems


def _class_problems(owner):
    doc = vars(owner).get("__doc__") or ""
    if dataclasses.is_dataclass(owner) and doc.startswith(owner.__name__ + "("):
        return ["no docstring"]
    makers = [vars(owner)[name] for name in ("__init__", "__new__", "__post_init__") if name in vars(owner)]
    return _problems(doc, _parameters(owner), raises=any(_raises(maker) for maker in makers), returns=False)


def _member_problems(owner, base, attribute):
    value = vars(base)[attribute]
    function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
    if not function.__doc__:
        return ["no docstring"]
    if function is not value and not isinstance(value, (classmethod, staticmethod)):
        return _problems(function.__doc__, [], raises=False, returns=False)
    if attribute != "forward" and any(
        getattr(getattr(other, attribute, None), "__doc__", None)
        for other in owner.__mro__
        if not _is_within(other.__module__, DISTRIBUTIONS)
    ):
        return []  # torch or scikit-learn documents it
    # An override may leave the sections to the method that it overrides.
    docs = [getattr(vars(other).get(attribute), "__doc__", None) or "" for other in base.__mro__]
    doc = "\n\n".join([inspect.cleandoc(function.__doc__), *map(inspect.cleandoc, docs)])
    return _problems(doc, _parameters(function), raises=_raises(function), returns=_returns(function))


def _function_problems(value):
    is_metric = not inspect.isfunction(value)
    parameters = _parameters(value)
    raises = not is_metric and _raises(value)
    returns = is_metric or _returns(value)
    return _problems(value.__doc__, parameters, raises=raises, returns=returns)


@pytest.mark.parametrize("name", OBJECTS)
def test_an_exported_object_is_documented_with_an_example(name):
    value = OBJECTS[name]
    problems = _class_problems(value) if name in CLASSES else _function_problems(value)
    if ">>>" not in (value.__doc__ or ""):
        problems.append("no example")
    assert not problems


@pytest.mark.parametrize("name", MEMBERS)
def test_a_public_member_of_an_exported_class_is_documented(name):
    assert not _member_problems(*MEMBERS[name])


def _sentences(text):
    """The sentences of a docstring outside of examples and formulas, with one word for code."""
    text = re.sub(r"`+[^`]*`+", "CODE", re.sub(r"^Example:.*", "", text, flags=re.MULTILINE | re.DOTALL))
    paragraphs = [part for part in re.split(r"\n\s*\n|\n(?=\s+[\w*]+: )", text) if ">>>" not in part]
    ends = re.compile(r"(?<=[.!?:;])\s+")
    return [sentence for part in paragraphs if ".. math" not in part for sentence in ends.split(" ".join(part.split()))]


@pytest.mark.parametrize("name", [name for name in OBJECTS if name.startswith("metricfit.")])
def test_sentences_of_public_docstrings_have_at_most_25_words(name):
    found = OBJECTS[name]
    texts = [inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        methods = [value for key, value in vars(found).items() if not key.startswith("_") and inspect.isfunction(value)]
        texts += [inspect.getdoc(value) or "" for value in methods]
    assert [each for text in texts for each in _sentences(text) if len(each.split()) > 25] == []
