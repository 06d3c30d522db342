"""A small HTTP server in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """One that says nothing on stderr."""

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def served(handler: type[Handler]) -> Iterator[ThreadingHTTPServer]:
    """A server on a free port of loopback, with a thread for each request."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
