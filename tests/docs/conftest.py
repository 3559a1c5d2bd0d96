"""How the tests of this folder get at the scripts under docs/."""

import importlib.util
import sys

import pytest


@pytest.fixture
def load_script(monkeypatch):
    """A script as a module, with its neighbours on the path as when it is run."""

    def load(path):
        monkeypatch.syspath_prepend(str(path.parent))
        spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look up their own module
        spec.loader.exec_module(module)
        return module

    return load
