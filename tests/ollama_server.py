"""A server that answers as ollama does (server/routes.go, create.go, v0.33.0-rc2), strict about what it is sent."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import modelfile_reader

CREATE_FIELDS = {
    *("model", "stream", "from", "files", "draft_files", "draft_quantize", "quantize", "template", "system", "license"),
    *("parameters", "renderer", "parser", "requires", "messages", "adapters"),
}
GENERATE_FIELDS = {"model", "prompt", "stream", "options", "system", "template", "raw", "keep_alive", "think"}
PARAMETERS = modelfile_reader.INTEGERS | modelfile_reader.FLOATS | {"stop", "use_mmap"}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Store:
    """What the server holds and how it behaves; a test looks at it and changes it."""

    def __init__(self, version="0.34.0"):
        self.version = version
        self.blobs: dict[str, bytes] = {}
        self.models: dict[str, dict] = {"base:latest": {}}
        self.calls: list[tuple[str, str]] = []
        self.generated: list[dict] = []
        self.refuse = ""
        self.cut = ""
        self.silent = ""
        self.ended = Event()
        self.text = ["Hel", "lo"]
        self.speed = {True: 80.0, False: 40.0}


class RefusalError(Exception):
    """A status and what ollama says."""


@contextmanager
def ollama(store):
    """``OLLAMA_HOST`` of a server that holds ``store``."""
    handler = type("Handler", (_Handler,), {"store": store})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        store.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.wait("version")
        self.answer(self.get)

    def do_HEAD(self):
        self.wait("blob")
        self.answer(lambda: (200 if self.path.rpartition("/")[2] in self.store.blobs else 404, None))

    def do_POST(self):
        self.answer(self.post)

    def wait(self, step):
        """Says nothing, until the test is over."""
        if self.store.silent == step:
            self.store.ended.wait(30)

    def answer(self, act):
        self.store.calls.append((self.command, self.path.partition("sha256:")[0]))
        try:
            status, value = act()
        except RefusalError as refusal:
            status, value = refusal.args[0], {"error": refusal.args[1]}
        if status is None:
            return
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def get(self):
        if self.path != "/api/version":
            raise RefusalError(404, "not found")
        return 200, {"version": self.store.version}

    def post(self):
        size = self.headers["Content-Length"]
        if size is None:
            raise RefusalError(411, "a length is required")
        body = self.rfile.read(int(size))
        if self.path.startswith("/api/blobs/"):
            return self.blob(self.path.rpartition("/")[2], body)
        act = {"/api/create": self.create, "/api/generate": self.generate}.get(self.path)
        if act is None:
            raise RefusalError(404, "not found")
        return act(json.loads(body))

    def blob(self, digest, body):
        if DIGEST.fullmatch(digest) is None:
            raise RefusalError(400, "invalid digest format")
        if hashlib.sha256(body).hexdigest() != digest.removeprefix("sha256:"):
            raise RefusalError(400, "digest mismatch")
        self.store.blobs[digest] = body
        return 201, None

    def create(self, request):
        unknown = request.keys() - CREATE_FIELDS
        if unknown:
            raise RefusalError(400, f"json: unknown field {min(unknown)!r}")
        self.check_name(request.get("model", ""))
        self.check_files(request.get("files", {}))
        self.check_files(request.get("draft_files", {}))
        check_parameters(request.get("parameters", {}))
        if "requires" in request and modelfile_reader.SEMVER.fullmatch("v" + request["requires"]) is None:
            raise RefusalError(400, "requires must be a valid semver")
        if ("from" in request) == ("files" in request):
            raise RefusalError(400, "neither 'from' or 'files' was specified")
        self.stream(self.creating(request))
        return None, None

    def creating(self, request):
        yield {"status": "parsing GGUF"}
        if self.store.refuse:
            yield {"error": self.store.refuse}
            return
        if "from" in request and request["from"] not in self.store.models:
            yield {"error": f"pull model manifest: file does not exist: {request['from']}"}
            return
        if self.store.cut == "create":
            return
        self.store.models[request["model"]] = request
        yield {"status": "writing manifest"}
        yield {"status": "success"}

    def check_name(self, name):
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*(:[\w.-]+)?", name) is None:
            raise RefusalError(400, "invalid model name")

    def check_files(self, files):
        for name, digest in files.items():
            parts = name.split("/")
            if not name or {"", ".", ".."} & set(parts) or re.search(r"[\\:]", name):
                raise RefusalError(400, f"file path must be relative: {name}")
            if digest not in self.store.blobs:
                raise RefusalError(400, f"blob not found for {name} (digest {digest})")
            if not self.store.blobs[digest].startswith(b"GGUF"):
                raise RefusalError(400, "supplied file was not in GGUF format")

    def generate(self, request):
        if request.keys() - GENERATE_FIELDS:
            raise RefusalError(400, "json: unknown field")
        check_parameters(request["options"])
        model = self.store.models.get(request["model"])
        if model is None:
            raise RefusalError(404, f"model '{request['model']}' not found")
        self.store.generated.append(request)
        self.stream(self.generating(request, request["options"]["draft_num_predict"] > 0))
        return None, None

    def generating(self, request, drafts):
        told = {"model": request["model"], "done": False}
        yield told | {"response": "", "thinking": "Hm. "}
        for text in self.store.text if isinstance(self.store.text, list) else self.store.text[drafts]:
            yield told | {"response": text}
        if self.store.cut == "generate":
            return
        seconds = 20 / self.store.speed[drafts] if self.store.speed[drafts] else 0
        timings = {"eval_count": 20, "eval_duration": int(seconds * 1e9), "total_duration": 10**12}
        yield told | {"response": "", "done": True, "done_reason": "stop", **timings}

    def stream(self, objects):
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for value in objects:
            data = json.dumps(value).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


def check_parameters(parameters):
    for name, value in parameters.items():
        integer = name in modelfile_reader.INTEGERS
        if name not in PARAMETERS or (integer and type(value) is not int):
            raise RefusalError(400, f"invalid parameter {name}")
        if name == "stop" and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            raise RefusalError(400, "invalid parameter stop")
