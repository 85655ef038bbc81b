"""A small server of chat completions, and one of the hub's files, each in a thread of its own."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

TIMINGS = {"predicted_n": 9, "predicted_per_second": 123.0, "draft_n": 12, "draft_n_accepted": 5}
META = {"completion_tokens": 9, "spec_verify_ct": 3, "spec_accept_length": 3.0}


@contextmanager
def serving(handler):
    """The URL of a server that answers with ``handler``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Chat(BaseHTTPRequestHandler):
    """Streams a few words. What it was asked is kept in ``asked``; `chat` says how a subclass behaves."""

    protocol_version = "HTTP/1.1"
    asked: list
    lock: Lock
    behaviour: dict
    running = most_running = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        models = self.behaviour.get("models", {"data": [{"id": "tiny"}]})
        self.whole(self.behaviour.get("models_status", 200), json.dumps(models).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = type(self)
        with self.lock:
            self.asked.append((self.path, body, dict(self.headers)))
            kind.running += 1
            kind.most_running = max(kind.most_running, kind.running)
        if barrier := self.behaviour.get("barrier"):
            barrier.wait(10)
        with self.lock:  # before the client, who may ask again at once, can know of the end
            kind.running -= 1
        self.answer(body)

    def answer(self, body):
        behaviour = self.behaviour
        n = len(self.asked)
        if behaviour.get("strict") and "cache_salt" in body:
            self.whole(400, b'{"error": {"message": "unknown field cache_salt"}}')
        elif n in behaviour.get("fails_at", ()) or behaviour.get("fails"):
            self.whole(behaviour.get("status", 500), behaviour.get("error", b'{"error": {"message": "out of luck"}}'))
        elif not body.get("stream"):
            message = {"message": {"content": "hello"}, "meta_info": META, "finish_reason": "stop"}
            self.whole(200, json.dumps({"choices": [message], "usage": {"completion_tokens": 9}}).encode())
        else:
            self.stream(body)

    def whole(self, status, data, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        said = body["messages"][-1]["content"]
        events = self.behaviour.get("events") or [
            ": a comment",
            *(json.dumps({"choices": [{"delta": {"content": piece}}]}) for piece in ("you ", "said ", said)),
            json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
            json.dumps({"choices": [], "usage": {"completion_tokens": 9}, "timings": TIMINGS}),
            "[DONE]",
        ]
        for i, event in enumerate(events):
            if i == self.behaviour.get("dies_at"):
                self.close_connection = True
                return
            line = event if event.startswith(":") else f"data: {event}"
            self.chunk(f"{line}\n\n".encode())
        self.chunk(b"")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def chat(**behaviour):
    """A handler of its own, so that tests do not share what was asked."""
    return type("OneChat", (Chat,), {"asked": [], "lock": Lock(), "behaviour": behaviour})


def hub(files, status=None, headers=None):
    """A handler that answers as the hub does for ``files``: (repository, revision, name) -> bytes.

    Every other file, or every file when ``status`` is given, is refused with that status and the hub's own headers.
    """

    class Hub(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(with_body=False)

        def do_GET(self):
            self.answer(with_body=True)

        def answer(self, *, with_body):
            found = next((data for key, data in files.items() if self.path == path(*key)), None)
            if status is not None or found is None:
                self.send_response(status or 404)
                for name, value in (headers or {"X-Error-Code": "EntryNotFound"}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("ETag", '"0123456789abcdef0123456789abcdef01234567"')
            self.send_header("X-Repo-Commit", self.path.split("/resolve/")[1].split("/")[0])
            self.send_header("Content-Length", str(len(found)))
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            if with_body:
                self.wfile.write(found)

    def path(repo, revision, name):
        return f"/datasets/{repo}/resolve/{revision}/{name}"

    return Hub
