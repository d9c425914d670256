"""The page of a kill table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.reports.fixed_kills import DRILLS, kill, table
from treedrift.reports.drills import KillsError, kills_page, read_kills


def written(tmp_path: Path, told: Any) -> Path:
    path = tmp_path / "kills.json"
    path.write_text(json.dumps(told))
    return path


def test_the_page_says_how_many_are_caught_and_how_small_they_get(tmp_path: Path) -> None:
    kills = read_kills(written(tmp_path, table()))
    assert kills.verdict() == (
        "3 of 4 drills caught within 60 s each (75.0%). "
        "After shrinking 3 ops at the median, 9 at the 95th percentile."
    )
    assert kills.verdict() in kills_page(kills)


def test_what_was_missed_comes_first_then_what_took_longest(tmp_path: Path) -> None:
    page = kills_page(read_kills(written(tmp_path, table())))
    names = re.findall(r'<th scope="row" role="rowheader"><code>([a-z]+)</code>', page)
    assert names == ["hidden", "slow", "leaky", "quick"]
    assert "<b>spoilt" not in page
    assert "time ran out" in page


def test_of_many_drills_the_quicker_ones_are_folded(tmp_path: Path) -> None:
    drills = [kill(f"drill{number}", seconds=float(number)) for number in range(60)]
    page = kills_page(read_kills(written(tmp_path, table(drills))))
    assert "20 quicker drills, all caught within 19.0 s" in page
    shown, folded = page.split("<details>")
    assert shown.count("<code>drill") == 40
    assert "<code>drill19</code>" in folded


def test_the_page_counts_what_sees_a_drill_first(tmp_path: Path) -> None:
    kills = read_kills(written(tmp_path, table()))
    assert kills.catchers() == [("difference in calls", 2), ("oracle conservation", 1)]


def test_a_missed_canary_is_said_first(tmp_path: Path) -> None:
    missed = {"drill": "leaked-slots", "caught": False, "ops": 17, "seconds": 0.2}
    kills = read_kills(written(tmp_path, table(canary=missed, interrupted=True)))
    assert kills.verdict().startswith("The canary (leaked-slots) was not caught")
    assert kills.verdict().endswith("It was interrupted.")


@pytest.mark.parametrize("drills", [[], DRILLS[3:], [kill("fresh", size=None, is_minimal=None)]])
def test_a_table_without_catches_or_sizes_has_a_page(
    tmp_path: Path, drills: list[dict[str, Any]]
) -> None:
    page = kills_page(read_kills(written(tmp_path, table(drills))))
    assert f"{'1 of 1 drill' if drills and drills[0]['caught'] else '0 of'}" in page


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    kills = read_kills(written(tmp_path, table()))
    assert kills_page(kills) == kills_page(kills)


def test_a_file_that_is_no_kill_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(KillsError, match=r"kills.json: no kill table: .*drills --json"):
        read_kills(written(tmp_path, {"drills": 3}))
    with pytest.raises(KillsError, match=r"none.json: can't be read: No such file"):
        read_kills(tmp_path / "none.json")
