"""The site: pages by number, each of which leads to a few others. It counts how often each was given."""

from __future__ import annotations

from collections import Counter
from http.server import BaseHTTPRequestHandler

from examples.loopback import LoopbackServer


class Site(LoopbackServer):
    """Pages 0 to ``size`` - 1, all to be found from the first. Each leads to a page that there is not, too.

    Of ten pages one is too busy when it is asked for the first time.
    """

    request_queue_size = 50

    def __init__(self, size: int) -> None:
        super().__init__(_Handler)
        self.size = size
        self.given: Counter[str] = Counter()
        self._busy: set[str] = set()

    def page(self, number: int) -> str:
        three = [3 * number + step for step in (1, 2, 3)]
        across = (7 * number + 5) % self.size
        links = [f"/{one}" for one in (*three, across) if 0 < one < self.size]
        anchors = " ".join(f'<a href="{link}">see {link}</a>' for link in [*links, "/", "/gone"])
        return f"<html><title>Page {number}</title><body>{'word ' * (number % 90)}{anchors}</body></html>"

    def is_busy(self, path: str) -> bool:
        with self._lock:
            if path.endswith("7") and path not in self._busy:
                self._busy.add(path)
                return True
            self.given[path] += 1
            return False


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        if self.server.is_busy(self.path):
            return self._answer(503)
        number = self.path.strip("/") or "0"
        if number.isdigit() and int(number) < self.server.size:
            return self._answer(200, self.server.page(int(number)))
        return self._answer(404)

    def _answer(self, status: int, text: str = "") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass
