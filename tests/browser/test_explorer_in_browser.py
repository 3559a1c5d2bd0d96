"""The threshold explorer in Chromium: methods, costs, groups, clicks, rare classes and small screens."""

import re

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from metricfit import report

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=alert(1)>"
SITES = np.array(["north", "south", EVIL])[np.arange(300) % 3]


def methods():
    r = np.random.default_rng(0)
    y = (r.random(300) < 0.3).astype(int)
    one, two = (1 / (1 + np.exp(-(2 * y - 1.3 + noise * r.normal(size=300)))) for noise in (1.0, 1.6))
    return y, one, two


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    y, one, two = methods()
    section = report.scores(
        one,
        y,
        threshold=0.4,
        requirements="recall >= 0.5",
        interval=(0.35, 0.47),
        method="first (recommended)",
        others={EVIL: report.ScoredMethod(two, 0.3, (0.2, 0.4))},
        groups=SITES,
        group_name="site",
    )
    curves = report.Section("Learning curves", "charts.html", {"charts": []}, folded=True)
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    return report.write(report.Report("t", "h", "v", [section, curves]), path)


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """100,000 rows, 100 of them positive."""
    r = np.random.default_rng(0)
    y = np.zeros(100_000, int)
    y[:100] = 1
    logits = r.normal(size=100_000) + 3.5 * y - 8.5
    scores = 1 / (1 + np.exp(-logits))
    path = tmp_path_factory.mktemp("rare") / "page.html"
    section = report.scores(scores, y, threshold=0.01, interval=(0.008, 0.02))
    return report.write(report.Report("t", "h", "v", [section]), path), scores, y


def counts(page):
    """The confusion matrix that the page shows, and the threshold in effect."""
    shown = page.eval_on_selector_all(
        ".confusion [data-count]", "all => all.map(e => [e.dataset.count, Number(e.getAttribute('value'))])"
    )
    threshold = page.locator(".effect").get_attribute("value").replace("Infinity", "inf")
    return float(threshold), dict(shown)


def check(page, scores, y):
    threshold, shown = counts(page)
    (tn, fp), (fn, tp) = confusion_matrix(y, scores >= threshold).tolist()
    assert shown == {"tp": tp, "fp": fp, "fn": fn, "tn": tn}
    words = page.locator(".words").inner_text().replace("\u00a0", " ")
    called = f"{100 * tp / (tp + fp):.1f} %" if tp + fp else "0.0 %"
    expected = (
        f"Finds {tp} of {tp + fn} ({100 * tp / (tp + fn):.1f} %); {tp} of its {tp + fp:,} alarms are right ({called})."
    )
    assert " ".join(words.split()) == expected
    return threshold


def center(page, selector, share_x):
    """A point of a chart, at a share of its width between the axes' ends."""
    return page.locator(selector).evaluate(
        """(mark, share) => {
            const [, , start, end] = mark.dataset.xRange.split(" ").map(Number);
            const svg = mark.ownerSVGElement;
            svg.scrollIntoView({block: "center"});
            const at = new DOMPoint(start + share * (end - start), 60).matrixTransform(svg.getScreenCTM());
            return [at.x, at.y];
        }""",
        share_x,
    )


def test_methods_costs_groups_hovering_and_clicking(opened, compared):
    y, one, two = methods()
    page = opened(compared, viewport={"width": 1280, "height": 800})
    assert check(page, one, y) == 0.4
    # Slider, curve and confusion matrix fit on one screen.
    page.locator(".explorer").evaluate("e => e.scrollIntoView()")
    for part in (".sweep.wide svg", ".slider", ".confusion"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 800
    # The interval and the stretch where the requirement holds.
    shaded = page.locator(".sweep.wide g.interval rect")
    width, place = shaded.evaluate("e => [e.getAttribute('width'), e.parentNode.dataset.xRange]")
    low, high, start, end = map(float, place.split())
    assert float(width) == pytest.approx((0.47 - 0.35) / (high - low) * (end - start), abs=0.1)
    assert page.locator(".sweep.wide g.feasible rect").count() == 1
    assert "0.350 to 0.470" in page.locator(".legend").inner_text()
    # Hovering shows a threshold, a click sets it.
    x, at = center(page, ".sweep.wide circle.mark", 0.25)
    page.mouse.move(x, at)
    tip = page.locator(".tip")
    assert re.match(r"Threshold 0\.2\d+: f1 0\.\d+, finds \d+\.\d.%, \d+\.\d.% of alarms right", tip.inner_text())
    page.mouse.click(x, at)
    assert check(page, one, y) == pytest.approx(0.25, abs=0.003)
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    x, at = center(page, "circle.mark[data-x=fpr]", 0.5)
    page.mouse.click(x, at)
    assert check(page, one, y) < 0.25
    # Groups.
    threshold = counts(page)[0]
    rows = page.locator("table.groups tbody tr")
    assert sorted(rows.locator("th").all_text_contents()) == sorted(["north", "south", EVIL])
    for row in rows.all():
        inside = row.locator("th").text_content() == SITES
        value = float(row.locator("data.value").get_attribute("value"))
        assert value == pytest.approx(f1_score(y[inside], one[inside] >= threshold), abs=1e-6)
        positives, tp = y[inside].sum(), (y[inside] * (one[inside] >= threshold)).sum()
        assert row.locator(".found").inner_text().startswith(f"{tp} of {positives} ")
    # Costs move to the cheapest threshold under the requirement.
    page.get_by_label("A miss costs").fill("7")
    page.get_by_label("A miss costs").press("Enter")
    costs = {t: 7 * ((one < t) & (y == 1)).sum() + ((one >= t) & (y == 0)).sum() for t in [*one, 0.5, 0.4]}
    kept = {t: cost for t, cost in costs.items() if (y * (one >= t)).sum() >= 0.5 * y.sum()}
    threshold = check(page, one, y)
    assert costs[threshold] == min(kept.values())
    assert f"which costs {min(kept.values())} on these samples" in page.locator(".price").inner_text()
    assert f"The chosen threshold costs {costs[0.4]}," in page.locator(".price").inner_text()
    line = page.locator(".sweep.wide line.cost")
    assert line.evaluate("e => getComputedStyle(e).visibility") == "visible"
    ratio = page.get_by_role("slider", name="How many false alarms a miss is worth")
    ratio.fill("-1")
    assert page.get_by_label("a false alarm", exact=True).input_value() == "10"
    assert counts(page)[0] > threshold
    page.get_by_label("A miss costs").fill("-1")
    page.get_by_label("A miss costs").press("Enter")
    assert page.locator(".price").inner_text() == "Type two costs of 0 or more."
    # Another method, chosen with the keyboard.
    before = page.locator(".sweep.wide path.curve.first").get_attribute("d")
    select = page.get_by_label("Method")
    select.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert select.evaluate("e => e.selectedOptions[0].textContent") == EVIL
    assert check(page, two, y) == 0.3
    assert page.locator(".sweep.wide path.curve.first").get_attribute("d") != before
    assert "0.200 to 0.400" in page.locator(".legend").inner_text()
    assert not page.get_by_role("heading", name="Calibration").is_visible()
    page.get_by_role("button", name="0.5", exact=True).click()
    assert check(page, two, y) == 0.5
    select.select_option(index=0)
    assert check(page, one, y) == 0.4
    assert page.get_by_role("heading", name="Calibration").is_visible()
    # Everything that can be used has a name, and is reached with the keyboard.
    controls = page.locator(".explorer").locator("input, select, button, summary")
    names = controls.evaluate_all(
        "all => all.map(e => (e.labels && e.labels[0] ? e.labels[0].textContent : e.ariaLabel || e.textContent).trim())"
    )
    assert len(names) >= 12
    assert all(names)
    assert controls.evaluate_all("all => all.every(e => e.tabIndex === 0 && !e.disabled)")
    # What is folded opens on demand.
    table = page.locator("table.metrics")
    assert not table.is_visible()
    page.get_by_text("Every metric at this threshold").click()
    assert table.is_visible()
    details = page.locator("details.folded")
    assert details.get_attribute("open") is None
    assert details.get_by_role("heading", name="Learning curves").is_visible()
    # Printing opens what is folded, and closes it again.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert details.get_attribute("open") is None


def test_the_script_draws_the_curves_that_the_page_comes_with(opened, compared):
    """Without a script the curves are Python's; both go through the same points."""
    with_script = opened(compared)
    without = opened(compared, java_script_enabled=False)
    boxes = "e => { const b = e.getBBox(); return [b.x, b.y, b.width, b.height]; }"
    for curve in (".sweep.wide path.curve.first", ".sweep.wide path.curve.second", "path.curve.first[data-x=recall]"):
        theirs = with_script.locator(curve).evaluate(boxes)
        text = without.locator(curve).get_attribute("d")
        numbers = [float(number) for number in re.findall(r"[\d.]+", text)]
        assert len(numbers) > 40
        drawn = with_script.locator(curve).evaluate(
            f"e => {{ e.setAttribute('d', {text!r}); const b = e.getBBox(); return [b.x, b.y, b.width, b.height]; }}"
        )
        assert drawn == pytest.approx(theirs, abs=0.11)


def test_a_phone_shows_slider_and_matrix_together_and_tables_have_a_cue(opened, compared):
    page = opened(compared, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator(".explorer").evaluate("e => e.scrollIntoView()")
    for part in (".sweep.narrow svg", ".slider", ".confusion"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 844
    wide = page.locator(".scroll:has(table.groups)")
    cue = page.locator(".cue:has(+ .scroll table.groups)")
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
    assert cue.is_visible()
    wide.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    page.wait_for_function("box => box.classList.contains('at-end')", arg=wide.element_handle())
    assert not cue.is_visible()


def test_a_rare_class_has_an_axis_in_logits(opened, rare):
    path, scores, y = rare
    assert path.stat().st_size < 1_000_000
    page = opened(path, viewport={"width": 1280, "height": 800})
    assert check(page, scores, y) == 0.01
    # The mark is where the threshold lies between logits, and the curve's peak is well inside the chart.
    share = "e => { const [low, high, a, b] = e.dataset.xRange.split(' ').map(Number);"
    share += "return [(e.getAttribute('x1') - a) / (b - a), low, high]; }"
    place, low, high = page.locator(".sweep.wide line.mark").evaluate(share)
    logit = np.log(0.01 / 0.99)
    assert place == pytest.approx((logit - low) / (high - low), abs=1e-3)
    assert 0.2 < place < 0.8
    assert page.locator(".sweep.wide svg text", has_text=re.compile(r"^0\.001$")).count() == 1
    # The slider moves from stop to stop, with exact numbers at each.
    slider = page.get_by_role("slider", name="Threshold", exact=True)
    seen = {check(page, scores, y)}
    for _ in range(3):
        slider.press("PageDown")
        seen.add(check(page, scores, y))
    assert len(seen) == 4
    assert max(seen) == 0.01
    assert not page.locator(".explanation").is_visible()
    slider.press("End")
    assert counts(page)[1]["tp"] <= 1
    x, at = center(page, ".sweep.wide circle.mark", place)
    page.mouse.click(x, at)
    assert check(page, scores, y) == pytest.approx(0.01, rel=0.05)
