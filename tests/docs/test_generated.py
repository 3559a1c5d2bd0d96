"""What scripts write into the pages is up to date, and the hooks do what the pages rely on."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
Load = Callable[[Path], ModuleType]


def between(page: str, name: str) -> str:
    found = re.search(f"<!-- begin {name} -->\n(.*?)\n<!-- end {name} -->", page, re.DOTALL)
    assert found, f"no marks for {name}"
    return found[1]


def test_the_table_of_metrics_matches_the_registry(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "metrics_table.py")
    page = (DOCS / module.PAGE).read_text(encoding="utf-8")
    assert between(page, module.MARK) == module.metrics_table(), "run: python docs/figures/metrics_table.py"


def test_the_page_of_commands_matches_their_help(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "cli_reference.py")
    page = (DOCS / module.PAGE).read_text(encoding="utf-8")
    assert between(page, module.MARK) == module.cli_reference(), "run: python docs/figures/cli_reference.py"


def test_the_page_of_json_matches_the_schemas(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "json_output.py")
    page = (DOCS / module.PAGE).read_text(encoding="utf-8")
    assert between(page, module.MARK) == module.json_output(), "run: python docs/figures/json_output.py"


def test_the_families_of_a_table_are_those_of_the_pages() -> None:
    from metricfit.tabular import MetricClassifier
    from metricfit.tabular.families.choice import DEFAULT, NAMES

    page = (DOCS / "api" / "classifier.md").read_text(encoding="utf-8")
    rows = re.findall(r'^\| `"(\w+)"`.*\| (yes|no)[^|]*\|$', page, re.MULTILINE)
    assert [name for name, _ in rows] == list(NAMES)
    assert [name for name, in_default in rows if in_default == "yes"] == list(DEFAULT)
    quoted = [f'"{name}"' for name in DEFAULT]
    assert f'"auto" is {", ".join(quoted[:-1])} and {quoted[-1]}.' in " ".join((MetricClassifier.__doc__ or "").split())


@pytest.mark.parametrize(("mark", "function"), [("saturation", "saturation"), ("zero", "zero_over_zero")])
def test_tables_of_numerics_are_measured(mark: str, function: str, load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "numerics.py")
    page = (DOCS / "concepts" / "numerics.md").read_text(encoding="utf-8")
    assert between(page, mark) == getattr(module, function)(), "run: python docs/figures/numerics.py"


def test_the_gallery_is_drawn_from_the_results(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "gallery.py")
    drawn = (DOCS / "img" / "gallery.svg").read_text(encoding="utf-8")
    assert module.digest(module.numbers()) in drawn, "run: python docs/figures/gallery.py"


def test_the_page_on_growth_has_the_stored_results(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "cost_growth.py")
    results = module.read()
    page = (DOCS / module.PAGE).read_text(encoding="utf-8")
    for name, text in module.generated(results).items():
        assert between(page, name) == text.strip(), "run: python docs/figures/cost_growth.py"
    for picture in (DOCS / "img").glob("cost-growth-*.svg"):
        assert module.digest(results) in picture.read_text(encoding="utf-8"), "run: python docs/figures/cost_growth.py"


def test_messages_of_many_processes_cost_what_the_formulas_say(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "growth_network.py")
    step, byte = module.LATENCY, 1 / module.BANDWIDTH
    assert module.seconds_of_message("all_reduce", 16, 1024) == pytest.approx(20 * (step + 16 * byte))  # the tree
    assert module.seconds_of_message("all_reduce", 1e9, 4) == pytest.approx(6 * (step + 2.5e8 * byte))  # the ring
    assert module.seconds_of_message("all_gather", 100, 5) == pytest.approx(4 * (step + 100 * byte))


def test_a_gallery_title_that_contradicts_the_numbers_is_refused(load_script: Load) -> None:
    module = load_script(DOCS / "figures" / "gallery.py")
    sets = {"one": [0.7, 0.6, 0.7], "two": [0.5, 0.4, 0.6]}  # AnyLoss below BCE
    with pytest.raises(ValueError, match="no longer say"):
        module.draw_perceptron(module.plt.figure().subplots(), {"sets": sets, "published": [], "smaller": ""})
    module.plt.close("all")


def test_every_picture_is_used_and_every_used_picture_exists() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    shown = {
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"!\[[^]]*\]\(([^)]+\.(?:svg|webp))\)", page.read_text(encoding="utf-8"))
        if "://" not in link
    }
    assert shown == {path.resolve() for path in (DOCS / "img").iterdir()}
    assert all(path.stat().st_size < 200_000 for path in (DOCS / "img").glob("*.webp"))


def test_formulas_become_mathml(load_script: Load) -> None:
    pytest.importorskip("latex2mathml")
    module = load_script(DOCS / "hooks" / "mathml.py")
    inline = module.on_page_content(r'<p><span class="arithmatex">\(a &lt; b\)</span></p>')
    assert inline.startswith("<p><math")
    assert "arithmatex" not in inline
    block = module.on_page_content('<div class="arithmatex">\\[\nx^2\n\\]</div>')
    assert 'display="block"' in block


def test_docstrings_become_markdown(load_script: Load) -> None:
    pytest.importorskip("griffe")
    module = load_script(DOCS / "hooks" / "docstrings.py")
    text = module.as_markdown("First :math:`x^2`.\n\n.. math:: a\n    + b\n\n>>> 1 + 1\n2\n\nLast.")
    assert text == "First $x^2$.\n\n$$\na + b\n$$\n\n```pycon\n>>> 1 + 1\n2\n```\n\nLast."
    indented = module.as_markdown("Example:\n    >>> 1 + 1\n    2")
    assert indented == "Example:\n    ```pycon\n    >>> 1 + 1\n    2\n    ```"


@pytest.fixture(autouse=True)
def _forget_the_figures_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "page", raising=False)
