"""The picture of a timeline: where things stand, what is cut, and that no name steers the terminal."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

from rich.console import Console

from argus_celery.cli.tables import printable
from argus_celery.cli.timeline.cells import MANY, parted
from argus_celery.cli.timeline.lanes import chart
from argus_celery.cli.timeline.looks import LOOKS
from argus_celery.cli.timeline.page import page
from argus_celery.cli.timeline.scale import scale
from argus_celery.cli.timeline.svg import svg
from argus_celery.cli.timeline.text import MOST_ROWS, show
from argus_celery.cli.timeline.words import duration
from argus_celery.records import AttemptOutcome
from argus_celery.timeline import Timeline, TimelineAttempt

T0 = 1_796_041_381_000
DOCUMENT = Path(__file__).parents[2] / "docs" / "timeline.md"
HOSTILE = "</script ></script><img src=x onerror=alert(1)>\x1b[31m\x00\u202e\"'&]]>-->[bold]"
How = AttemptOutcome


def ran(
    task: str,
    token: int,
    holder: str,
    start: float,
    end: float | None,
    outcome: AttemptOutcome | None = How.SUCCEEDED,
    *,
    seen: float | None = None,
    name: str = "shop.charge",
    detail: str | None = None,
    node: str | None = "",
    died: bool = False,
) -> TimelineAttempt:
    """Times in seconds."""
    known = f"celery@{holder}" if node == "" else node
    instants = [None if at is None else T0 + round(at * 1000) for at in (start, end, seen)]
    return TimelineAttempt(task, name, None, token, holder, known, *instants[:2], outcome, detail, instants[2], died)


def timeline(*attempts: TimelineAttempt, project: str = "import 1", now: float = 60) -> Timeline:
    return Timeline(project, T0 + round(now * 1000), tuple(sorted(attempts, key=lambda one: one.began_at)))


KILLED = timeline(
    ran("t1", 2, "a", 0, 20, How.LOST, seen=8, detail="its worker died", died=True),
    ran("t2", 2, "b", 0, 9),
    ran("t1", 4, "b", 21, 30),
    ran("t3", 2, "b", 22, None, None),
)


def drawn(told: Timeline, width: int = 80, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(Console(file=file, width=width, highlight=False), chart(told))
    file.flush()
    return file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_what_one_worker_ran_at_once_stands_in_tracks_of_its_lane() -> None:
    lanes = chart(KILLED).lanes
    assert [lane.label for lane in lanes] == ["celery@a", "celery@b"]
    assert [[bar.attempt.task_id for bar in track] for track in lanes[1].tracks] == [["t2", "t1"], ["t3"]]


def test_a_worker_started_again_has_a_lane_of_its_own_below() -> None:
    runs = [
        ran("t1", 2, "w2", 0, 1, node="n10"),
        ran("t2", 2, "w1", 2, 3, node="n2"),
        ran("t3", 2, "w3", 4, 5, node="n2"),
    ]
    unnamed = ran("t4", 2, "w" + "f" * 32, 6, 7, node=None)
    assert [lane.label for lane in chart(timeline(*runs, unnamed)).lanes] == ["n2", "n2 #2", "n10", "worker wfffffff"]


def test_a_hand_over_counts_from_the_last_sign_of_life() -> None:
    (one,) = chart(KILLED).hand_overs
    assert (one.before.attempt.token, one.after.attempt.token, one.took) == (2, 4, 13_000)


def test_an_attempt_that_never_began_stands_where_it_was_noticed() -> None:
    never = TimelineAttempt("t1", "shop.charge", None, 2, "a", None, None, T0 + 5_000, How.LOST, None, T0)
    (bar,) = chart(timeline(never)).bars
    assert bar.start == bar.known == bar.end == T0 + 5_000


def test_a_day_in_which_nothing_ran_is_cut_and_a_regular_beat_is_not() -> None:
    day = 24 * 3_600_000
    cut = scale([(0, 10_000), (day, day + 10_000)])
    assert cut.pieces == ((0, 10_000), (day, day + 10_000))
    assert cut.at(0) == 0 and cut.at(day + 10_000) == 1
    assert 0.45 < cut.at(10_000) < cut.at(day // 2) == cut.at(day) < 0.55
    (gap,) = cut.cuts
    assert gap[2] == day - 10_000
    assert len(scale([(at * 1000, at * 1000 + 10) for at in range(100)]).pieces) == 1
    assert len(scale([(0, 1), (900, 901)]).pieces) == 1  # nobody minds a second
    assert scale([(5, 5)]).at(5) == 0


def test_the_example_of_the_document_runs() -> None:
    code = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)[0]
    told: list[tuple[object, ...]] = []
    earlier = replace(KILLED, earlier=(1, "t1", 2))
    project = SimpleNamespace(timeline=lambda before=None: KILLED if before else earlier)
    exec(code, {"project": project, "print": lambda *words: told.append(words)})
    assert ("t1", 13_000) in told


def test_ticks_stand_at_round_instants_and_are_few() -> None:
    ticks = scale([(T0 + 123, T0 + 61_123)]).ticks(6)
    assert 3 <= len(ticks) <= 7
    assert all(tick.label.endswith(("0", "5")) for tick in ticks)
    assert [tick.at for tick in ticks] == sorted(tick.at for tick in ticks)


def test_the_terminal_shows_the_kill_the_silence_and_who_took_over() -> None:
    text = drawn(KILLED)
    a, b = (next(line for line in text.splitlines() if line.startswith(f"celery@{one} ")) for one in "ab")
    assert "━━✗╌╌" in a
    assert "╸" in b and "╺━" in b
    assert "✗ shop.charge t1 killed on celery@a → celery@b after 13 s: its worker died" in drawn(KILLED, 140)
    assert "1 killed, 1 running, 2 succeeded" in text


def test_every_end_has_a_sign_of_its_own_and_a_line_of_the_legend() -> None:
    told = timeline(*(ran(f"t{at}", 2, "a", at * 5, at * 5 + 4, how) for at, how in enumerate(How)))
    text = drawn(told, 120)
    signs = [LOOKS[how].sign for how in How if LOOKS[how].sign]
    assert len(set(signs)) == len(How) - 1
    assert all(text.count(sign) >= 2 and how in text for how in How if (sign := LOOKS[how].sign))


def test_a_worker_that_only_fell_silent_is_not_called_killed() -> None:
    silent = timeline(ran("t1", 2, "a", 0, 20, How.LOST, seen=8), ran("t1", 4, "b", 21, 30))
    assert "━━?╌╌" in drawn(silent) and "? shop.charge t1 lost by celery@a → celery@b after 13 s" in drawn(silent, 140)
    for text in (drawn(silent), svg(chart(silent)), page(chart(silent)).split('id="data"')[0]):
        assert "1 lost" in text and "1 killed" not in text


def test_it_keeps_to_the_width_and_to_plain_characters_where_there_are_no_others() -> None:
    for width in (40, 80, 140):
        assert max(map(len, drawn(KILLED, width).splitlines())) <= width
    assert "x......" in drawn(KILLED, 80, "ascii")
    drawn(timeline(ran("tä", 2, "ä", 0, 1, name="shop.ä…", detail="ö" * 200)), 80, "ascii")


def test_no_name_steers_the_terminal() -> None:
    attempts = [ran(HOSTILE, 2, "a", 0, 9, How.LOST, seen=5, name=HOSTILE, detail=HOSTILE, node=HOSTILE)]
    text = drawn(timeline(*attempts, ran(HOSTILE, 4, "b", 10, None, None), project=HOSTILE), 200)
    assert not [char for char in text if not char.isprintable() and char != "\n"]
    assert "\\x1b[31m\\x00\\u202e" in text and "[bold]" in text


def test_many_workers_are_a_row_each() -> None:
    many = timeline(
        *(ran(f"t{at}", 2, f"w{at // 40}", 0, 9, How.FAILED if at == 7 else How.SUCCEEDED) for at in range(80))
    )
    rows = [line for line in drawn(many).splitlines() if line.startswith("celery@")]
    assert sum(len(lane.tracks) for lane in chart(many).lanes) > MOST_ROWS
    assert len(rows) == 2 and "██" in rows[1] and "!" in rows[0]


def test_a_project_in_which_nothing_ran_says_so() -> None:
    assert drawn(timeline()).splitlines() == ["import 1", "no attempt yet"]
    assert "no attempt yet" in svg(chart(timeline())) and "no attempt yet" in page(chart(timeline()))


def test_without_scripts_the_page_shows_the_picture_if_it_is_small() -> None:
    assert svg(chart(KILLED)) in page(chart(KILLED))
    assert "<code>--svg</code> writes it as a picture" in page(chart(many(MANY + 2)))


def test_durations_have_two_units_at_most() -> None:
    told = [duration(ms) for ms in (0, 870, 9_200, 59_990, 250_000, 3_600_000, 93_600_000)]
    assert told == ["0 ms", "870 ms", "9.2 s", "60 s", "4 min 10 s", "1 h", "1 d 2 h"]


# --- as a picture and as a page


def many(number: int = 10_000) -> Timeline:
    """Eight workers of four processes each; every hundredth run is lost and taken over."""
    runs = []
    for at in range(number // 2):
        start, worker = (at // 32) * 2.0 + (at % 32) / 64, f"w{at % 8}"
        lost = at % 50 == 7
        how = How.LOST if lost else How.RETRIED
        runs.append(ran(f"t{at}", 2, worker, start, start + 1, how, seen=start + 0.5, died=lost))
        runs.append(ran(f"t{at}", 4, f"w{(at + 1) % 8}", start + 1, start + 1.8))
    return timeline(*runs, now=10_000)


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.script = self._inside = ""
        self.data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        if self._inside == "data":
            self.data += data
        elif self._inside == "script":
            self.script += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def test_the_picture_is_xml_that_names_each_attempt_and_asks_for_nothing_else() -> None:
    picture = svg(chart(KILLED))
    titles = [one.text or "" for one in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert all(any(f"task {task}, token {token}" in title for title in titles) for task, token in RUNS_OF_KILLED)
    assert "shop.charge: taken over after 13 s" in titles
    assert "last sign of life" in next(title for title in titles if "token 2" in title and "t1" in title)
    for text in (picture, page(chart(KILLED))):
        assert not re.findall(r"""(?:src|href)=|url\((?!#)|https?://(?!www\.w3\.org/2000/svg")""", text)


RUNS_OF_KILLED = [(one.task_id, one.token) for one in KILLED.attempts]


def test_every_end_has_a_shape_or_a_sign_of_its_own_beside_its_colour() -> None:
    looks = {(look.shape, look.mark) for look in LOOKS.values()}
    assert len(looks) == len(LOOKS)
    assert {"running", "killed", *How} == set(LOOKS)


def test_no_name_becomes_an_element_or_a_script() -> None:
    bad = timeline(
        ran(HOSTILE, 2, HOSTILE, 0, 9, How.LOST, seen=5, name=HOSTILE, detail=HOSTILE, node=HOSTILE),
        ran(HOSTILE, 4, "b", 10, 12, How.FAILED, name=HOSTILE, detail="\ud800" + HOSTILE),
        project=HOSTILE,
    )
    drawing = ElementTree.fromstring(svg(chart(bad)).encode())
    assert HOSTILE.split("\x1b")[0] in "".join(drawing.itertext())
    text = page(chart(bad))
    text.encode()
    elements = Elements(text)
    tags = [tag for tag, _ in elements.found]
    assert tags.count("script") == 2 and "img" not in tags
    assert not [name for _, given in elements.found for name in given if name.startswith("on")]
    assert "<" not in elements.data  # what a browser takes for an end is more than this parser does
    assert json.loads(elements.data)["names"] == [printable(HOSTILE)]


def test_the_page_lets_no_script_run_but_its_own() -> None:
    elements = Elements(page(chart(KILLED)))
    (policy,) = (given["content"] for tag, given in elements.found if tag == "meta" and "http-equiv" in given)
    digest = base64.b64encode(hashlib.sha256(elements.script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy) and "default-src 'none'" in str(policy)


def test_the_page_tells_in_words_too_what_was_handed_over_and_what_failed() -> None:
    told = page(chart(timeline(*KILLED.attempts, ran("t9", 2, "b", 1, 2, How.FAILED, detail="a\nOSError: broke"))))
    rows = re.findall(r"<tr>(.*?)</tr>", told)
    assert any("shop.charge t1" in row and "13 s" in row and "its worker died" in row for row in rows)
    assert any("shop.charge t9" in row and "OSError: broke" in row for row in rows)


def test_ten_thousand_attempts_stay_light_and_no_kill_is_left_out() -> None:
    big = chart(many())
    whole, picture = page(big), svg(big)
    assert len(picture) < 1_000_000 and len(whole) < 1_000_000
    assert len(json.loads(Elements(whole).data)["bars"]) == 10_000
    bars, cells = parted(big.lanes[0].tracks[0], big.scale, 1_000, many=True)
    assert not bars and {id(bar) for cell in cells for bar in cell.bars} == {id(bar) for bar in big.lanes[0].tracks[0]}
    kills = {round(big.scale.at(bar.known) * 1006 / 9) for bar in big.bars if bar.kind == "killed"}
    signs = re.findall(r'translate\(([\d.]+) [\d.]+\) scale\(0\.\d\)"><path class="halo" d="M-4-4L4 4', picture)
    assert {round((float(at) - 170) / 9) for at in signs} >= kills


def test_a_narrow_bar_with_room_around_it_is_drawn_as_itself() -> None:
    told = chart(timeline(*(ran(f"t{at}", 2, "a", at * 10, at * 10 + 0.01) for at in range(5))))
    bars, cells = parted(told.lanes[0].tracks[0], told.scale, 1_000, many=False)
    assert len(bars) == 5 and not cells
