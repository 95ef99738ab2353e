"""``python -m examples.agent [--letters 6] [--kills 3]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.agent.world import World
from examples.workers import drain

BUDGET = 30_000
REQUESTS = 7
"""That a letter takes if nobody is killed."""
console = Console()


def main() -> int:
    options = _options()
    # Asked to end, this process still stops its worker and removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="argus-agent-", ignore_cleanup_errors=True) as folder, World(0.1) as world:
        os.environ["AGENT_DB"] = f"sqlite:///{folder}/agent.db"
        os.environ["AGENT_WORLD"] = world.url
        return answer(options.letters, options.kills, world, Path(folder))


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m examples.agent", description="Kill an agent at its work.")
    parser.add_argument("--letters", type=int, default=6, help="how many customers write (default: 6)")
    parser.add_argument("--kills", type=int, default=3, help="how often its worker is killed, up to 4 (default: 3)")
    return parser.parse_args()


def answer(letters: int, kills: int, world: World, folder: Path) -> int:
    """Let the agent answer them; 0 if all was done, and nothing twice."""
    from examples.agent.desk import Desk

    began = time.monotonic()
    desk = Desk(world, BUDGET)
    desk.receive(f"Order {number} came broken. What now?" for number in range(1, letters + 1))
    drain("examples.agent.app", folder, _kills(world, letters, kills), desk.look, console.print)
    for sentence in desk.answers():
        console.print(f"  {sentence}")
    console.print(desk.table())
    wrong = desk.complaints()
    for sentence in wrong:
        console.print(f"off: {sentence}", style="red")
    console.print(f"{'failed' if wrong else 'as promised'}, in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _kills(world: World, letters: int, kills: int) -> Iterator[tuple[Callable[[], bool], str]]:
    """Each time that so much more of the work is done, in the middle of a request."""
    for kill in range(1, kills + 1):
        requests = kill * letters * REQUESTS // (kills + 1)
        yield partial(lambda number: world.requests >= number, requests), f"{requests} requests by the agent"


if __name__ == "__main__":
    sys.exit(main())
