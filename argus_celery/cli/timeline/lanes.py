"""Where everything stands: a lane for each worker, in it as many tracks as it ran tasks at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from argus_celery.cli.tables import printable
from argus_celery.cli.timeline.scale import Scale, scale
from argus_celery.cli.timeline.words import counted, ended, span
from argus_celery.timeline import Timeline, TimelineAttempt


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt in its place. A lost one was known to run until ``known``; what follows is silence."""

    attempt: TimelineAttempt
    kind: str
    start: int
    known: int
    end: int
    lane: int
    track: int


@dataclass(frozen=True, slots=True)
class Lane:
    label: str
    holder: str
    tracks: tuple[tuple[Bar, ...], ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """A run that was lost or given back, and the one that took over."""

    before: Bar
    after: Bar

    @property
    def took(self) -> int:
        """From the last sign of life to the next run, in milliseconds."""
        return max(self.after.start - self.before.known, 0)


@dataclass(frozen=True, slots=True)
class Chart:
    timeline: Timeline
    lanes: tuple[Lane, ...]
    hand_overs: tuple[HandOver, ...]
    scale: Scale

    @property
    def bars(self) -> list[Bar]:
        return [bar for lane in self.lanes for track in lane.tracks for bar in track]

    @property
    def facts(self) -> list[str]:
        """In words: how many attempts, tasks and workers, and when."""
        if not self.lanes:
            return ["no attempt yet"]
        attempts = self.timeline.attempts
        tasks = len({one.task_id for one in attempts})
        numbers = [counted(len(attempts), "attempt"), counted(tasks, "task"), counted(len(self.lanes), "worker")]
        return [*numbers, span(self.scale.start, self.scale.end)]

    @property
    def counts(self) -> Counter[str]:
        return Counter(ended(attempt) for attempt in self.timeline.attempts)


def chart(timeline: Timeline) -> Chart:
    by_holder: dict[str, list[TimelineAttempt]] = {}
    for attempt in timeline.attempts:
        by_holder.setdefault(attempt.holder, []).append(attempt)
    labels = _labels(by_holder)
    lanes = tuple(
        Lane(labels[holder], holder, _tracks(by_holder[holder], timeline.now, at)) for at, holder in enumerate(labels)
    )
    bars = {(bar.attempt.task_id, bar.attempt.token): bar for lane in lanes for track in lane.tracks for bar in track}
    hand_overs = tuple(
        HandOver(bars[before.task_id, before.token], bars[after.task_id, after.token])
        for before, after in timeline.hand_overs
    )
    return Chart(timeline, lanes, hand_overs, scale((bar.start, bar.end) for bar in bars.values()))


def _labels(by_holder: dict[str, list[TimelineAttempt]]) -> dict[str, str]:
    """Node names in order; the second incarnation of one is its ``#2``, below the first."""
    incarnations: dict[str, list[str]] = {}
    for holder, attempts in by_holder.items():
        node = next((one.node for one in attempts if one.node is not None), None)
        incarnations.setdefault(f"worker {holder[:8]}" if node is None else node, []).append(holder)
    return {
        holder: printable(node) + (f" #{number}" if number > 1 else "")
        for node, holders in sorted(incarnations.items(), key=lambda item: _natural(item[0]))
        for number, holder in enumerate(holders, 1)
    }


def _natural(name: str) -> list[tuple[int, str]]:
    """``node2`` comes before ``node10``."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"([0-9]+)", name)]


def _tracks(attempts: Sequence[TimelineAttempt], now: int, lane: int) -> tuple[tuple[Bar, ...], ...]:
    """Each attempt in the first track that is free when it begins."""
    tracks: list[list[Bar]] = []
    for attempt in attempts:
        start = attempt.began_at
        end = max(now if attempt.finished_at is None else attempt.finished_at, start)
        known = end if attempt.known_until is None else attempt.known_until
        at = next((at for at, track in enumerate(tracks) if track[-1].end <= start), len(tracks))
        if at == len(tracks):
            tracks.append([])
        tracks[at].append(Bar(attempt, ended(attempt), start, known, end, lane, at))
    return tuple(tuple(track) for track in tracks)
