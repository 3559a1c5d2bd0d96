"""What the scripts of this folder share: how a picture is saved and how a page's numbers are filled in.

A page marks the place of generated text with ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; ``fill`` replaces what
stands between. Run a script again and its page is up to date.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parents[1]

# Okabe and Ito's colours, told apart by colour-blind readers too.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#666666"

plt.rcParams.update(
    {
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 11,
        "figure.facecolor": "white",
        "font.size": 10,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "svg.fonttype": "path",
        "svg.hashsalt": "metricfit",  # the same picture gives the same file
    }
)


def save(figure: Figure, name: str, description: str | None = None) -> None:
    """Write ``docs/img/NAME.svg``, where given with a description that no reader sees."""
    figure.tight_layout()
    path = DOCS / "img" / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Description": description})
    plt.close(figure)
    # Matplotlib leaves blanks at line ends, which every diff would show.
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def fill(page: str, name: str, text: str) -> None:
    """Replace what stands between the marks NAME of a page under docs/."""
    path = DOCS / page
    old = path.read_text()
    new = filled(old, name, text)
    path.write_text(new)


def filled(page: str, name: str, text: str) -> str:
    """The text of a page with what stands between the marks NAME replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"the page has no marks {begin} and {end}")
    return re.sub(
        re.escape(begin) + r".*?" + re.escape(end),
        lambda _: f"{begin}\n{text.strip()}\n{end}",
        page,
        count=1,
        flags=re.DOTALL,
    )


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
