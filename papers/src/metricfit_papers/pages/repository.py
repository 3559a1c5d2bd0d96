"""Where the files of the pages are in a checkout of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PAPERS = ROOT / "papers"
RESULTS, VERDICTS, RUNS = PAPERS / "results", PAPERS / "verdicts", PAPERS / "runs.toml"
QUEUE = PAPERS / "queue.toml"
#: The page of the documentation that tells what the verdicts come to.
SUMMARY = ROOT / "docs" / "evidence" / "papers.md"
PAGES, IMAGES = PAPERS / "pages", PAPERS / "pages" / "img"


def check_checkout() -> None:
    """Raise FileNotFoundError where the package was installed without the repository around it."""
    if not RESULTS.is_dir():
        raise FileNotFoundError(
            f"the pages are built in a checkout of the repository, and there is no folder {RESULTS}: clone it, and "
            "install both packages with pip install -e . -e papers"
        )
