"""Ray and Dask on one machine give loky's numbers; what is not installed is told with the remedy."""

import importlib
import sys

import pytest

from metricfit.runs import Cell, run
from metricfit.runs import executor as module


def cells(n=5):
    return [Cell(("table", "method", str(index)), {"n": index}) for index in range(n)]


def work():
    return lambda cell: {"value": cell.spec["n"] / 3}  # travels by value: workers cannot import a test's module


def values(result):
    return {name: report["value"] for name, report in result.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_on_one_machine_gives_lokys_numbers(tmp_path, backend, package):
    pytest.importorskip(package)
    seen = []
    result = run(cells(), work(), tmp_path / backend, jobs=2, backend=backend, watch=seen.append)
    assert values(result) == values(run(cells(), work(), tmp_path / "loky", jobs=2))
    assert [item.done for item in seen] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_missing_package_is_reported_with_the_install_command(tmp_path, monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match=rf"'{backend}' needs {package}.*pip install metricfit\[cluster\]"):
        run(cells(), work(), tmp_path, jobs=2, backend=backend)


def test_more_jobs_than_ray_has_cores_are_refused(monkeypatch):
    class Ray:
        is_initialized = staticmethod(lambda: True)
        cluster_resources = staticmethod(lambda: {"CPU": 2.0})

    monkeypatch.setattr(module, "import_module", lambda name: Ray if name == "ray" else importlib.import_module(name))
    with pytest.raises(ValueError, match="jobs is 3, but Ray has 2 cores"), module.start_backend("ray", 3):
        pass


@pytest.mark.parametrize("jobs", [0, -5])
def test_an_invalid_number_of_jobs_is_refused(tmp_path, jobs):
    with pytest.raises(ValueError, match="1 or more, or -1 for one per core"):
        run(cells(), work(), tmp_path, jobs=jobs)
