"""The pairs of CocktailParty, built from the tracker's output and the annotated groups as Tsoi et al. 2022 build them.

It is an idea of its own: geometry and the format of two MATLAB files, which the downloads know nothing of.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError

#: The group of a person who is in no group.
ALONE = -1
#: Seconds that a person's nearest tracked instant may lie from the annotated one.
MOST_SECONDS = 0.1
CENTIMETRES = 100.0
MICROSECONDS = 1e6
PLACES = 6


def build_pairs(features: Path, groundtruth: Path) -> pd.DataFrame:
    """Build one row for each pair of people in each annotated frame.

    The origin is the midpoint of the pair, and the x axis points from its second person to its first. Positions are in
    metres, angles are cosine and sine. The other people follow in the order of their numbers. The y positions of the
    pair are always 0 and are left out.

    Args:
        features: ``features.mat``, with a cell of rows (person, x, y, angle) for each tracked instant.
        groundtruth: ``groundtruth.mat``, with a cell of groups for each annotated instant.

    Returns:
        The pairs. ``target`` is 1 for two people who are not in one group, ``frame`` numbers the annotated frames, and
        ``imputed`` is 1 if the tracker lost one of the two at that instant.

    Raises:
        InvalidValueError: The files are not of the expected form.
    """
    frames = read_frames(features, groundtruth)
    rows = [row for _, people in frames.groupby("frame", sort=True) for row in _pairs_of_frame(people)]
    return pd.DataFrame(rows)


def read_frames(features: Path, groundtruth: Path) -> pd.DataFrame:
    """Read the position, angle and group of each person in each annotated frame.

    A person whom the tracker lost at that instant is taken from the nearest instant, and ``gap_s`` is its distance.
    """
    from scipy.io import loadmat  # slow to import

    tracked, annotated = loadmat(features), loadmat(groundtruth)
    missing = {"features", "timestamp"} - set(tracked) | {"GTgroups", "GTtimestamp"} - set(annotated)
    if missing:
        raise InvalidValueError(f"{features} and {groundtruth} have no {', '.join(sorted(missing))}; fetch them again")
    instants = tracked["timestamp"].ravel().astype(np.float64)
    rows = [_read_instant(cell) for cell in tracked["features"].ravel()]
    times = np.repeat(instants, [len(cell) for cell in rows])
    people = np.concatenate(rows)
    numbers = np.unique(people[:, 0])
    result = []
    for frame, (time, groups) in enumerate(
        zip(annotated["GTtimestamp"].ravel().astype(np.float64), annotated["GTgroups"].ravel(), strict=True)
    ):
        group_of = _read_groups(groups)
        for person in numbers:
            own = people[:, 0] == person
            gaps = np.abs(times[own] - time)
            nearest = int(gaps.argmin())
            if gaps[nearest] > MOST_SECONDS:
                raise InvalidValueError(f"{features}: person {person:.0f} is not tracked near {time:.6f} s")
            _, x, y, angle = people[own][nearest]
            result.append(
                {
                    "frame": frame,
                    "timestamp_us": round(time * MICROSECONDS),
                    "person": int(person),
                    "x_cm": x,
                    "y_cm": y,
                    "theta_rad": angle,
                    "group": group_of.get(int(person), ALONE),
                    "gap_s": gaps[nearest],
                }
            )
    return pd.DataFrame(result)


def _read_instant(cell: Any) -> NDArray[np.float64]:
    """Return the rows (person, x, y, angle) of an instant, which may have none."""
    values = np.asarray(cell, np.float64)
    return np.atleast_2d(values)[:, :4] if values.size else np.empty((0, 4))


def _read_groups(groups: Any) -> dict[int, int]:
    """Return the number of the group of each person who is in a group of two or more."""
    members = [np.asarray(group).ravel().astype(int) for group in np.asarray(groups, dtype=object).ravel()]
    return {
        int(person): number for number, people in enumerate(members) if len(people) > 1 for person in people.tolist()
    }


def _pairs_of_frame(people: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of one frame."""
    people = people.sort_values("person")
    numbers, groups = people["person"].to_numpy(), people["group"].to_numpy()
    places = people[["x_cm", "y_cm"]].to_numpy() / CENTIMETRES
    angles, lost = people["theta_rad"].to_numpy(), people["gap_s"].to_numpy() > 0
    start = {"frame": int(people["frame"].iloc[0]), "timestamp_us": int(people["timestamp_us"].iloc[0])}
    rows = []
    for first, second in combinations(range(len(people)), 2):
        others = [index for index in range(len(people)) if index not in (first, second)]
        row: dict[str, Any] = start | {
            "person1": int(numbers[first]),
            "person2": int(numbers[second]),
            "imputed": int(lost[first] or lost[second]),
        }
        row |= _features(places, angles, first, second, others)
        together = groups[first] == groups[second] != ALONE
        rows.append(row | {"target": int(not together)})
    return rows


def _features(
    places: NDArray[np.float64], angles: NDArray[np.float64], first: int, second: int, others: list[int]
) -> dict[str, float]:
    """Return positions and angles in the coordinates of a pair."""
    apart = places[first] - places[second]
    turn = np.arctan2(apart[1], apart[0])
    x_axis, y_axis = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    centred = places - (places[first] + places[second]) / 2
    named = {"dyad1": first, "dyad2": second} | {f"context{number}": index for number, index in enumerate(others, 1)}
    features = {}
    for name, index in named.items():
        features[f"{name}_x"] = float(centred[index] @ x_axis)
        if name.startswith("context"):
            features[f"{name}_y"] = float(centred[index] @ y_axis)
        features[f"{name}_cosa"] = float(np.cos(angles[index] - turn))
        features[f"{name}_sina"] = float(np.sin(angles[index] - turn))
    return {name: round(value, PLACES) for name, value in features.items()}
