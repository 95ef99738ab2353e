"""``python -m examples.crawl [--pages 1000] [--kills 3]``."""

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

from examples.crawl.site import Site
from examples.workers import drain

console = Console()


def main() -> int:
    options = _options()
    # Asked to end, this process still stops its worker and removes its folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        tempfile.TemporaryDirectory(prefix="argus-crawl-", ignore_cleanup_errors=True) as folder,
        Site(options.pages) as site,
    ):
        os.environ["CRAWL_DB"] = f"sqlite:///{folder}/crawl.db"
        return crawl(site, options.kills, Path(folder))


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m examples.crawl", description="Kill a crawler at its work.")
    parser.add_argument("--pages", type=int, default=1000, help="of the site (default: 1000)")
    parser.add_argument("--kills", type=int, default=3, help="how often its worker is killed, up to 4 (default: 3)")
    return parser.parse_args()


def crawl(site: Site, kills: int, folder: Path) -> int:
    """Let a task crawl the site; 0 if every page was saved, and none twice."""
    from examples.crawl.audit import Audit

    began = time.monotonic()
    audit = Audit(site)
    audit.start()
    drain("examples.crawl.app", folder, _kills(site, kills), audit.is_done, console.print)
    console.print(audit.table())
    wrong = audit.complaints()
    for sentence in wrong:
        console.print(f"off: {sentence}", style="red")
    console.print(f"{'failed' if wrong else 'as promised'}, in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def _kills(site: Site, kills: int) -> Iterator[tuple[Callable[[], bool], str]]:
    """Each time that so many pages more were given."""
    for kill in range(1, kills + 1):
        pages = kill * site.size // (kills + 1)
        yield partial(lambda number: site.given.total() >= number, pages), f"{pages} pages are fetched"


if __name__ == "__main__":
    sys.exit(main())
