"""A server that speaks S3 on loopback (moto's), and a proxy before it that fails as it is told."""

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
input()
"""
HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@contextmanager
def moto() -> Iterator[int]:
    """The port of a server with no bucket."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


class Proxy(ThreadingHTTPServer):
    """Passes requests on. GETs of objects fail as `faults` says, one each, from the front: busy, drop or short."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind, self.faults, self.failed, self.lock = port, list[str](), list[str](), threading.Lock()

    def fault(self, handler: BaseHTTPRequestHandler) -> str | None:
        with self.lock:
            if handler.command != "GET" or "/files/md5/" not in handler.path or not self.faults:
                return None
            self.failed.append(handler.path)
            return self.faults.pop(0)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def handle_any(self) -> None:
        fault = self.server.fault(self)
        if fault == "busy":
            self.send_response(503, "Slow Down")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        behind.request(self.command, self.path, body, dict(self.headers))
        answer = behind.getresponse()
        data = answer.read()
        if fault == "short":
            data = data[: len(data) // 2]
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if fault == "drop" else data)
        if fault == "drop":
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    with Proxy(port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
