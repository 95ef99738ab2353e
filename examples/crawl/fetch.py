"""One page, fetched and read: a step of the crawl."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from argus_celery import step


@step(name="fetch", retries=5, backoff=0.05, retry_for=OSError)
def fetch(url: str) -> dict[str, Any]:
    """The page's title, its words counted, and the pages of the same site that it leads to."""
    try:
        with urlopen(url, timeout=10) as answer:
            return _read(url, answer.read().decode())
    except HTTPError as error:
        if error.code != 404:
            raise  # it may be well another time
        return {"url": url, "title": None, "words": 0, "links": []}


def _read(url: str, text: str) -> dict[str, Any]:
    reader = _Reader()
    reader.feed(text)
    host = urlsplit(url).netloc
    links = {urljoin(url, link) for link in reader.links}
    mine = sorted(link for link in links if urlsplit(link).netloc == host)
    return {"url": url, "title": reader.title, "words": reader.words, "links": mine}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.title, self.words, self.links = "", 0, []
        self._in_title = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title"
        if tag == "a" and (link := dict(attributes).get("href")):
            self.links.append(link)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        else:
            self.words += len(data.split())

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
