"""``python -m tests.chaos.producer SEED BACKLOG FOLDER``: sends piece after piece, and notes what was accepted.

It may be killed at any moment: the next one goes on with the first piece that is not noted as accepted, under the same
ids. It ends when the file ``stop`` is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

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
    sent, progress = Ledger(folder / SENT), Progress(setup.ledger)
    number = len(sent.lines("accepted"))
    under_way = {one.tag for before in range(number) for one in piece(seed, before).expected()}
    while not (folder / STOP).exists():
        if len(under_way) >= backlog:
            progress.read_on()
            under_way -= progress.done
            time.sleep(0.02)
            continue
        one = piece(seed, number)
        sent.note("sending", str(number))
        if send(app, one, folder):
            sent.note("accepted", str(number))
            under_way.update(expected.tag for expected in one.expected() if expected.outcome != "dead")
            number += 1


def send(app: Celery, one: Piece, folder: Path) -> bool:
    """False if it was not accepted until the end."""
    while True:
        try:
            one.send(app)
            return True
        except StoreUnavailable:
            if (folder / STOP).exists():
                return False
            time.sleep(0.2)


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
