"""The page of the runs that are still missing, from ``papers/queue.toml``: what each is for, its command and seconds.

    python -m metricfit_papers.pages.queue           # the commands, one per line, for a shell

An entry has the keys of ``papers/runs.toml``, with ``seconds``, an estimate, and ``why``. A run that was made moves to
runs.toml. Every run continues where it was interrupted, if it is started again in the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from metricfit_papers.pages import repository
from metricfit_papers.pages.gather import Run, listed
from metricfit_papers.results.markdown import markdown_line


def describe_queue(path: Path = repository.QUEUE) -> Iterator[str]:
    """Yield the paragraphs of the page."""
    yield "# Runs that are missing"
    yield (
        "These runs would settle what the [verdicts](index.md#verdicts) leave open. They were not made, because the "
        "project has an H200 for half an hour per session, checkpoints of image networks are too large to carry to "
        "the next session, and its machines download no data. Seconds are estimates for one NVIDIA H200, from the "
        "seconds per epoch of the stored runs. Single repeats of surrogate-2 and surrogate-5 run three at a time. A "
        "run that is stopped continues when its command is started again. Finished cells are kept, and networks of "
        "images continue from a checkpoint. FOLDER has the data, with all 60,000 images of CIFAR-10 ([how to get "
        "them](data.md)). `python -m metricfit_papers.pages.queue` prints the commands."
    )
    runs = listed(path)
    for table in dict.fromkeys(run.table for run in runs):
        yield f"## {table}"
        yield missing_runs(table, runs)


def missing_runs(table: str, runs: list[Run]) -> str:
    """Make a table of the missing runs of one table of a paper; empty if there are none."""
    lines = [[run.why, f"{run.seconds:,}", f"`{run.command}`"] for run in runs if run.table == table]
    head = [["not run, for", "seconds", "command"], ["---", "---:", "---"]]
    return "\n".join(markdown_line(line) for line in [*head, *lines]) if lines else ""


if __name__ == "__main__":
    for waiting in listed(repository.QUEUE):
        print(waiting.command)
