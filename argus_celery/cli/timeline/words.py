"""Times, durations and attempts as a person reads them."""

from __future__ import annotations

import time

from argus_celery.cli.tables import printable
from argus_celery.timeline import TimelineAttempt


def clock(milliseconds: int, step: int = 1000) -> str:
    """Local time of the day, as fine as ``step`` needs, with the day where steps are days."""
    form = "%m-%d %H:%M" if step >= 24 * 3600 * 1000 else "%H:%M" if step >= 60_000 else "%H:%M:%S"
    text = time.strftime(form, time.localtime(milliseconds / 1000))
    return text if step >= 1000 else f"{text}.{milliseconds % 1000:03d}"


def moment(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000)) + f".{milliseconds % 1000:03d}"


def duration(milliseconds: int) -> str:
    """Two units at most: ``870 ms``, ``9.2 s``, ``4 min 10 s``, ``3 d 2 h``."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3g} s"
    seconds = round(milliseconds / 1000)
    for name, size, lower, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {name}" + (f" {rest} {lower}" if rest else "")
    raise AssertionError("unreachable")


def span(start: int, end: int) -> str:
    first, last = moment(start)[:19], moment(end)[:19]
    return f"{first} – {last[11:] if first[:10] == last[:10] else last} ({duration(end - start)})"


def ended(attempt: TimelineAttempt) -> str:
    """How it is drawn: its outcome, ``running``, or ``killed`` of a lost one whose process is known to have died."""
    if attempt.outcome is None:
        return "running"
    return "killed" if attempt.died else str(attempt.outcome)


def told(attempt: TimelineAttempt, now: int) -> str:
    """One attempt in a few lines."""
    began = attempt.began_at
    lines = [
        f"{printable(attempt.name)} · {ended(attempt)}",
        f"task {printable(attempt.task_id)}, token {attempt.token}",
    ]
    if attempt.key is not None:
        lines.append(f"key {printable(attempt.key)}")
    known = attempt.known_until or now
    lines.append(f"began {moment(began)}, ran for {duration(known - began)}")
    if attempt.finished_at is not None and attempt.finished_at > known:
        lines.append(f"last sign of life {moment(known)}, noticed {duration(attempt.finished_at - known)} later")
    if attempt.detail:
        lines.append(last_line(attempt.detail))
    return "\n".join(lines)


def last_line(detail: str) -> str:
    lines = detail.strip().splitlines()
    return shortened(printable(lines[-1].strip()), 200) if lines else ""


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
