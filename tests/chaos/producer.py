"""``python -m tests.chaos.producer SEED BACKLOG FOLDER``: sends piece after piece, and notes what was accepted.

It may be killed at any moment: the next one goes on with the first piece that is not noted as accepted, under the same
ids. It ends when the file ``stop`` is there and what it had begun to send is accepted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import sqlalchemy as sa
from celery import Celery

from argus_celery.errors import StoreUnavailable
from tests.chaos.bodies import register
from tests.chaos.progress import Progress
from tests.chaos.work import Expected, Piece, piece
from tests.faults.app import make_app
from tests.faults.ledger import Ledger, Line
from tests.faults.setup import Setup

SENT, STOP = "sent", "stop"
"""Names of its list and of the file that ends it."""


def main(seed: int, backlog: int, folder: Path) -> None:
    setup = Setup.from_environment()
    app = make_app(setup, producer=True, register=register)
    sent, progress = Ledger(folder / SENT), Progress(setup.ledger, keep=False)
    number = len(sent.lines("accepted"))
    under_way = {tag for before in range(number) for tag in runs_of(piece(seed, before))}
    begun = {line.tag for line in sent.lines("sending")}
    while not (folder / STOP).exists() or str(number) in begun:
        if len(under_way) >= backlog and str(number) not in begun:
            progress.read_on()
            under_way -= progress.done
            time.sleep(0.02)
            continue
        one = piece(seed, number)
        sent.note("sending", str(number))
        send(app, one)
        sent.note("accepted", str(number))
        under_way |= runs_of(one)
        number += 1


def send(app: Celery, one: Piece) -> None:
    """Until it is accepted: with the store away, calling again is safe."""
    while True:
        try:
            return one.send(app)
        except (StoreUnavailable, sa.exc.DBAPIError):
            time.sleep(0.2)


def runs_of(one: Piece) -> set[str]:
    """What it adds to the backlog: what will be noted as done, some day."""
    return {expected.tag for expected in one.expected() if expected.outcome in ("succeeded", "failed")}


def accepted(seed: int, sent: list[Line]) -> list[tuple[Expected, float]]:
    """What has to come of the pieces that were accepted, each with the moment at which it was first sent."""
    first: dict[str, float] = {}
    for line in sent:
        if line.event == "sending":
            first.setdefault(line.tag, line.clock)
    taken = {line.tag for line in sent if line.event == "accepted"}
    return [(one, first[tag]) for tag in sorted(taken, key=int) for one in piece(seed, int(tag)).expected()]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
