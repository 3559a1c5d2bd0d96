"""A linear model that is wrong: what cross-entropy, weights, metric losses and the best possible line reach.

    python -m studies.wrong_model          # about a minute; stores the results and fills in the page
    python -m studies.wrong_model --page   # from the stored results

Negatives are one cloud around (0, 0). Of the positives 80 % are a cloud around (3, 0), and the others are far away,
around (-8, 8). No line separates both from the negatives. Cross-entropy turns the line towards the far cloud, whose
rows cost the more the further away they are; F1 is best if the line ignores them. There are 4,000 rows to train on and
4,000 others to measure on, in five draws: enough rows for three weights, so that what differs is due to the loss.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from studies.common import DOCS, fill, plain, table
from studies.little_capacity import LOSSES
from studies.stacked_networks import Loss, Part, Stack, best_f1, f1_at, train

RESULTS, PAGE = DOCS.parent / "studies" / "results" / "wrong_model.json", DOCS / "evidence" / "losses.md"
ROWS, PRIOR, DRAWS, STARTS, RATES, ANGLES = 4000, 0.1, 5, 8, (0.02, 0.3), 360
#: Centres of the clouds of positives, and their shares.
CLOUDS: Mapping[tuple[float, float], float] = {(3.0, 0.0): 0.8, (-8.0, 8.0): 0.2}


def draw_rows(seed: int) -> Part:
    """Rows of one draw; equally many positives in each."""
    x = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(seed))
    y, start = torch.zeros(ROWS, dtype=torch.long), 0
    for centre, share in CLOUDS.items():
        end = start + round(ROWS * PRIOR * share)
        x[start:end] += torch.tensor(centre)
        y[start:end] = 1
        start = end
    return Part(x, y)


def draws(first: int) -> Part:
    rows = [draw_rows(first + draw) for draw in range(DRAWS)]
    return Part(torch.stack([part.x for part in rows]), torch.stack([part.y for part in rows]))


def best_line(part: Part) -> Tensor:
    """The highest F1 of any line, for each draw: all thresholds in each of many directions."""
    angles = torch.linspace(0, 2 * torch.pi, ANGLES + 1)[:-1].split(30)
    scores = [part.x @ torch.stack([angle.cos(), angle.sin()]) for angle in angles]
    return torch.cat([best_f1(each, part.y.unsqueeze(2))[0] for each in scores], dim=1).amax(1)


def last_looks(losses: list[Loss], rows: Part, new: Part, start: int) -> Tensor:
    """Last looks ``(rates, draws, 4)``: F1 of the training rows, tuned and at 0.5, and of new rows."""
    found: list[Tensor] = []
    for rate in RATES:
        model = Stack(range(start * DRAWS, (start + 1) * DRAWS), 2, 0, 1, PRIOR)

        def look(model: Stack = model) -> Tensor:
            known, unknown = (model(rows.x), rows.y.unsqueeze(2)), (model(new.x), new.y.unsqueeze(2))
            tuned, threshold = best_f1(*known)
            values = [tuned, f1_at(*known), f1_at(*unknown, threshold), f1_at(*unknown)]
            return torch.stack([value.double() for value in values], dim=-1)

        # The last look alone: early ones of many starts would be a random search for a direction.
        found += train(model, rows, losses, rate, look)[-1:]
    return torch.stack(found).squeeze(2)


def measure(losses: list[Loss], rows: Part, new: Part) -> dict[str, dict[str, float]]:
    """F1 of new rows: of one start (the mean of all starts), and of the start that is best on the training rows."""
    starts = torch.stack([last_looks(losses, rows, new, start) for start in range(STARTS)])
    values = {}
    for decision, place in (("0.5", 1), ("tuned", 0)):
        by, test = starts[..., place], starts[..., 2 + place]  # (starts, rates, draws)
        one = test.gather(1, by.argmax(1, keepdim=True)).mean()
        best = test.flatten(0, 1).gather(0, by.flatten(0, 1).argmax(0, keepdim=True)).mean()
        values[decision] = {"one start": float(one), "best start": float(best)}
    return values


def parts_of_page(stored: dict[str, dict[str, dict[str, float]]]) -> dict[str, str]:
    columns = [(decision, start) for decision in ("0.5", "tuned") for start in ("one start", "best start")]
    best = stored["the best line"]["tuned"]["best start"]
    rows = [
        [loss, *(f"{stored[loss][decision][start]:.3f}" for decision, start in columns)]
        for loss in stored
        if loss != "the best line"
    ]
    head = [f"F1, {decision}, {start.replace('best start', f'best of {STARTS} starts')}" for decision, start in columns]
    return {"wrong model": table(["loss", *head], [*rows, ["the best line", "", "", "", f"{best:.3f}"]])}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only fill in the page")
    if not parser.parse_args(arguments).page:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # the metric loss alone may stall at the start, which is measured here
        rows, new = draws(0), draws(100)
        stored = {loss: measure(losses(PRIOR), rows, new) for loss, losses in LOSSES.items()}
        stored["the best line"] = {"tuned": {"best start": statistics.fmean(best_line(new).tolist())}}
        RESULTS.write_text(json.dumps(plain(stored), indent=1) + "\n", encoding="utf-8")
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page(stored)), encoding="utf-8")


if __name__ == "__main__":
    main()
