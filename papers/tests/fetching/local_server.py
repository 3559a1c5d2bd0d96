"""A local server in the place of the internet, for the tests of downloads."""

import contextlib
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Internet:
    """Files by ``HOST/PATH``, what was asked for, and how the server behaves.

    Attributes:
        files: The content of each address without its scheme.
        asked: The address and the range of each request.
        cut: Number of bytes after which the next answers end, one per answer.
        ranges: Whether the server can continue.
        tag: The ETag of all files; empty for a server without one.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    ranges: bool = True
    tag: str = '"one"'
    address: str = ""


@contextlib.contextmanager
def serve():
    internet = Internet()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name, asked = self.path.lstrip("/"), self.headers.get("Range")
            internet.asked.append((name, asked))
            content = internet.files.get(name)
            if content is None:
                self.send_error(404)
                return
            same = self.headers.get("If-Range") in (None, internet.tag)
            first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and internet.ranges and same else 0
            if first and first >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            if internet.tag:
                self.send_header("ETag", internet.tag)
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            self.wfile.write(content[first : first + internet.cut.pop(0)] if internet.cut else content[first:])

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    internet.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield internet
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
