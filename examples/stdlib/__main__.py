"""``python -m examples.stdlib [--tests] [--broker URL]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.stdlib import modules, place

console = Console()


def main() -> int:
    options = _options()
    # Asked to end, this process still stops its workers and removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="argus-demo-", ignore_cleanup_errors=True) as folder:
        os.environ[place.FOLDER] = folder
        if options.broker:
            os.environ[place.BROKER] = options.broker
        place.folder = place.Path(folder)
        return compare(options.tests)


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="./dev demo", description="Kill a worker in the middle of real work.")
    parser.add_argument("--tests", action="store_true", help="parse the library's own tests too (takes longer)")
    parser.add_argument("--broker", help="instead of argus://, for example redis://localhost")
    return parser.parse_args()


def compare(tests: bool) -> int:
    """Run both sides on the same modules; 0 if the durable one lost nothing and recorded nothing twice."""
    from examples.stdlib.report import complaints, table
    from examples.stdlib.sides import Durable, Plain

    began = time.monotonic()
    paths = modules.find(tests=tests)
    expected = modules.sum_of(map(modules.facts_of, paths))
    console.print(f"{len(paths)} modules of Python {sys.version.split()[0]}, {expected.lines:,} lines")
    with _progress() as progress:
        plain, argus = (_watched(progress, side(), paths) for side in (Plain, Durable))
    console.print(table(plain, argus, expected))
    wrong = complaints(argus, expected)
    for sentence in wrong:
        console.print(f"off: {sentence}", style="red")
    console.print(f"{'failed' if wrong else 'as promised'}, in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _progress() -> Progress:
    name = TextColumn("{task.description:<6}")
    return Progress(name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)


def _watched(progress: Progress, side: Any, paths: list[str]) -> Any:
    from examples.stdlib.drain import drain

    bar = progress.add_task(side.name, total=len(paths))

    def watch(done: int, event: str | None) -> None:
        progress.update(bar, completed=done)
        if event:
            progress.console.print(f"{side.name}: {done} done, {event}")

    tally = drain(side, paths, watch)
    progress.update(bar, completed=tally.done)
    progress.stop_task(bar)
    return tally


if __name__ == "__main__":
    sys.exit(main())
