import math

import pytest
from shunter.plot import Curve, draw


def curve(count: int = 100) -> Curve:
    xs = [float(x) for x in range(1, count + 1)]
    return Curve("loss", xs, [3 * math.exp(-x / 30) + 1 for x in xs], marks=[50.0])


def test_a_curve_has_its_newest_least_and_greatest_values_in_the_title() -> None:
    title = draw(curve())[0]

    assert title == "loss: 1.107 at 100, least 1.107 at 100, most 3.902 at 1"


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("height", [3, 12])
@pytest.mark.parametrize("braille", [True, False])
def test_a_curve_fits_its_space(width: int, height: int, braille: bool) -> None:
    lines = draw(curve(), width=width, height=height, braille=braille)

    assert max(map(len, lines[1:])) <= width
    assert len(lines) == 1 + height + 2


def test_a_falling_curve_falls() -> None:
    rows = [line.partition("|")[2] for line in draw(curve(), height=8, braille=False)[1:9]]

    first_marks = [row.index("*") for row in rows if "*" in row]
    assert first_marks == sorted(first_marks)
    assert "*" in rows[0]
    assert "*" in rows[-1]


def test_the_scale_names_the_ends_and_the_middle() -> None:
    lines = draw(Curve("x", [0, 10], [0.0, 100.0]), height=5)

    labels = [line.partition("|")[0].strip() for line in lines[1:6]]
    assert labels == ["100", "", "50", "", "0"]
    assert lines[-1].split() == ["0", "10"]


def test_restarts_are_marked_on_the_axis() -> None:
    axis = draw(curve(), width=80)[-2].partition("+")[2]

    assert axis.count("^") == 1
    assert 0.4 < axis.index("^") / len(axis) < 0.6


def test_a_logarithmic_scale_leaves_out_what_has_no_logarithm() -> None:
    lines = draw(Curve("x", [1, 2, 3], [0.0, 10.0, 1000.0]), height=3, log=True)

    assert lines[0].endswith(", log scale")
    assert lines[1].split("|")[0].strip() == "1000"
    assert lines[3].split("|")[0].strip() == "10"


@pytest.mark.parametrize("values", [[], [math.nan, math.inf]])
def test_nothing_to_draw_is_said(values: list[float]) -> None:
    assert draw(Curve("x", list(range(len(values))), values)) == ["x: no points"]


def test_one_point_and_a_flat_line_are_drawn_in_the_middle() -> None:
    for xs in ([5.0], [1.0, 2.0]):
        rows = draw(Curve("x", xs, [2.0] * len(xs)), height=5, braille=False)[1:6]

        assert [("*" in row) for row in rows] == [False, False, True, False, False]
