"""A stand-in for an HTTP model server: health, a stream of words, sleep and wake as vLLM has them, and faults to order."""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

state = {"asleep": False, "healthy": True, "silent": False, "cancelled": 0, "sent": 0}


class Handler(BaseHTTPRequestHandler):
    # With a length or chunks, unless `/plain` is asked.
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urlparse(self.path).path
        if path == "/health":
            while state["silent"]:
                time.sleep(0.05)
            self.answer(200 if state["healthy"] else 503, "")
        elif path == "/state":
            self.answer(200, json.dumps(state))
        elif path == "/endless":
            self.stream(iter(lambda: "x" * 65_536, None))
        elif path == "/plain":
            # HTTP/1.0: the end of the connection is the end of the body.
            self.close_connection = True
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nbegun")
            self.wfile.flush()
            time.sleep(600)
        elif path == "/slow":
            time.sleep(600)
        else:
            self.answer(404, "unknown path")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlparse(self.path).path
        if path == "/sleep" or path == "/wake_up":
            print(f"POST {self.path}", flush=True)
            state["asleep"] = path == "/sleep"
            self.answer(500 if os.environ.get("BROKEN") == path else 200, "")
        elif path == "/set":
            state.update(json.loads(body))
            self.answer(200, "")
        elif path == "/poison":
            print("RuntimeError: CUDA error: device-side assert triggered", file=sys.stderr, flush=True)
            time.sleep(0.05)
            self.answer(500, "internal error")
        elif path == "/die":
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(7)
        elif path == "/v1/completions":
            prompt = json.loads(body)["prompt"]
            print(f"prompt {prompt}", flush=True)
            if not prompt:
                self.answer(400, "prompt is empty")
                return
            self.stream(f'data: {json.dumps({"text": word})}\n\n' for word in [*prompt.split(), None])
        else:
            self.answer(404, "unknown path")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self, pieces):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for piece in pieces:
                data = piece.encode()
                if b"null" in data:
                    data = b"data: [DONE]\n\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
                state["sent"] += len(data)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            state["cancelled"] += 1

    def log_message(self, *_):
        pass


if "--fail" in sys.argv:
    print("the model is missing")
    sys.exit("no such model")
if "--hang" in sys.argv:
    print("loading for ever", flush=True)
    time.sleep(600)
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
port = int(sys.argv[1])
assert os.environ["PORT"] == str(port)
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever).start()
