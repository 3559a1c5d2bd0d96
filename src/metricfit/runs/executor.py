"""The executor of parallel work: joblib with its backends, on one machine or a cluster of Ray or Dask.

Worker processes end with the process that started them.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

import joblib
from joblib._parallel_backends import LokyBackend, MultiprocessingBackend, SequentialBackend, ThreadingBackend

from metricfit._extras import explain_missing
from metricfit.core.threads import thread_count
from metricfit.errors import InvalidValueError, quote

BACKENDS = ("loky", "threading", "sequential", "ray", "dask")
#: Backends that can use several machines.
CLUSTERS = ("ray", "dask")
TASKS_PER_RAY_JOB = 4


def check_backend(jobs: int, backend: str) -> None:
    """Check the number of jobs and the name of the backend.

    Args:
        jobs: Number of cells that run at the same time, or -1 for one per core.
        backend: One of `BACKENDS`.

    Raises:
        ValueError: One of them is not valid.
    """
    if backend not in BACKENDS:
        raise InvalidValueError(f"backend must be one of {', '.join(BACKENDS)}, got {quote(backend)}")
    if jobs < 1 and jobs != -1:
        raise InvalidValueError(
            f"jobs is the number of cells to run at the same time: 1 or more, or -1 for one per core; got {jobs}"
        )


def threads_per_job(jobs: int) -> int | None:
    """Compute how many threads each of several jobs may use.

    Args:
        jobs: Number of jobs, or -1 for one per core.

    Returns:
        An equal share of the cores, at most OMP_NUM_THREADS; None (no limit) for a single job.
    """
    workers = joblib.effective_n_jobs(jobs)
    return None if workers == 1 else max(1, min(joblib.cpu_count() // workers, thread_count()))


@contextmanager
def ignore_interrupts_in_children() -> Iterator[None]:
    """Start child processes that ignore Ctrl-C, which this process ignores inside the context as well.

    A terminal sends Ctrl-C to all processes at once, and workers would print tracebacks. Children inherit an ignored
    signal.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def end_with_parent(parent: int) -> None:
    """Make this worker process end soon after its parent does, however the parent ends.

    loky calls this function when it starts a worker. A command that is killed cannot stop its workers, and they would
    wait for work, or continue to work, without it. A thread checks the parent; Linux's PR_SET_PDEATHSIG is not used
    because it is sent when the thread that started the worker ends. Only the parent handles Ctrl-C.

    Args:
        parent: Process id of the command that started this worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32" and os.getppid() != parent:  # the parent ended before this worker had started
        os._exit(1)
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: int) -> None:
    """Wait for the parent process to end, then end this one without cleaning up."""
    if sys.platform == "win32":  # a process keeps the id of a parent that has ended
        import _winapi

        _winapi.WaitForSingleObject(_winapi.OpenProcess(_winapi.SYNCHRONIZE, False, parent), _winapi.INFINITE)
    else:
        while os.getppid() == parent:
            time.sleep(0.5)
    os._exit(1)


@contextmanager
def start_backend(backend: str, jobs: int) -> Iterator[None]:
    """Make joblib use a backend; a Ray or Dask cluster that is not running is started here and stopped at the end.

    A running cluster is found by the environment variable RAY_ADDRESS or DASK_SCHEDULER_ADDRESS.

    Args:
        backend: One of `BACKENDS`.
        jobs: Number of jobs, or -1 for one per core.

    Raises:
        ModuleNotFoundError: The backend's package is not installed.
        ValueError: Ray has fewer cores than there are jobs.
    """
    clusters = {"ray": _start_ray, "dask": _start_dask}
    settings = {"initializer": end_with_parent, "initargs": (os.getpid(),)} if backend == "loky" else {}
    cluster = clusters[backend](jobs) if backend in clusters else nullcontext()
    with cluster, joblib.parallel_config(backend=backend, **settings):
        yield


def runs_on_cluster() -> bool:
    """Return whether joblib's active backend is one that can use several machines, outside of its workers."""
    backend, _ = joblib.parallel.get_active_backend()
    known = (LokyBackend, MultiprocessingBackend, SequentialBackend, ThreadingBackend)
    on_machine = isinstance(backend, known) and not _is_ray(backend)
    return not on_machine and not backend.nesting_level


def run_unordered(tasks: Iterable[Any], jobs: int | None) -> Generator[Any, None, None]:
    """Run joblib's tasks with its active backend, and yield their results as they are ready.

    Args:
        tasks: What ``joblib.delayed`` makes.
        jobs: Number of jobs; -1 for one per core, None for what the active backend says.
    """
    backend, _ = joblib.parallel.get_active_backend()
    if _is_ray(backend):  # it returns results only at the end of a call: several small calls show progress
        remaining = iter(tasks)
        with joblib.Parallel(n_jobs=jobs) as parallel:
            while batch := list(itertools.islice(remaining, TASKS_PER_RAY_JOB * joblib.effective_n_jobs(jobs))):
                yield from parallel(batch)
        return
    with ignore_interrupts_in_children():  # the workers are started here
        results = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")(tasks)
    yield from results


@contextmanager
def without_nested_jobs() -> Iterator[None]:
    """Make joblib work sequentially inside a task; Dask would send every tree of a forest to the cluster again."""
    with joblib.parallel_config(backend="sequential"):
        yield


def _is_ray(backend: Any) -> bool:
    return type(backend).__name__ == "RayBackend"  # a subclass of the backend of processes


@contextmanager
def _start_ray(jobs: int) -> Iterator[None]:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # otherwise Ray writes a token into the home folder
    ray = _import_backend("ray")
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if jobs > cores:
            raise InvalidValueError(
                f"jobs is {jobs}, but Ray has {cores} cores; use fewer jobs, or give Ray more machines"
            )
        import_module("ray.util.joblib").register_ray()
        yield
    finally:
        if started_here:
            ray.shutdown()


@contextmanager
def _start_dask(jobs: int) -> Iterator[None]:
    distributed = _import_backend("distributed", "dask")
    try:
        distributed.get_client()
    except ValueError:
        local = {"n_workers": joblib.cpu_count() if jobs == -1 else jobs, "threads_per_worker": 1}
        quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
        elsewhere = import_module("dask").config.get("scheduler-address", None)
        with ignore_interrupts_in_children():
            client = distributed.Client() if elsewhere else distributed.Client(**local, **quiet)
        with client:
            yield
    else:
        yield


def _import_backend(name: str, backend: str | None = None) -> ModuleType:
    with explain_missing(f"the backend {backend or name!r}", ("ray", "distributed", "dask"), "metricfit[cluster]"):
        return import_module(name)
