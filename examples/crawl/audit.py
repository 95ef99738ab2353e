"""What the crawl has come to, beside what the site knows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import sqlalchemy as sa
from rich import box
from rich.table import Table

from examples.crawl import pages
from examples.crawl.app import DB, argus, crawl
from examples.crawl.site import Site


class Audit:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.engine = sa.create_engine(DB, poolclass=sa.NullPool)
        self.project = argus.project("crawl")
        pages.metadata.create_all(self.engine)

    def start(self) -> None:
        self.result = self.project.enqueue(crawl.s(f"{self.site.url}/"))
        self.project.close()

    def is_done(self) -> bool:
        return not self.project.status.live

    @cached_property
    def sum(self) -> dict[str, Any]:
        """What the task says."""
        return dict(self.result.get(timeout=1))

    @cached_property
    def saved(self) -> Any:
        with self.engine.connect() as connection:
            return pages.saved(connection)

    @property
    def given_again(self) -> int:
        return self.site.given.total() - len(self.site.given)

    def table(self) -> Table:
        made = Table(box=box.SIMPLE_HEAD, show_header=False)
        made.add_column()
        made.add_column(justify="right")
        rows = {
            "pages of the site": self.site.size,
            "found": self.sum["pages"],
            "saved twice": self.saved.total() - len(self.saved),
            "fetched again, since a kill came before they were kept": self.given_again,
            "words": self.sum["words"],
            "links": self.sum["links"],
            "broken links lead to": len(self.sum["broken"]),
        }
        for label, number in rows.items():
            made.add_row(label, f"{number:,}")
        return made

    def complaints(self) -> list[str]:
        """What is off, one sentence each."""
        checks = [
            (self.sum["pages"] == self.site.size, f"{self.sum['pages']} pages were found, of {self.site.size}"),
            (self.sum["broken"] == [f"{self.site.url}/gone"], f"broken: {self.sum['broken']}"),
            (self.saved.total() == len(self.saved), "a page was saved twice"),
        ]
        return [sentence for holds, sentence in checks if not holds]
