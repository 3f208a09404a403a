"""A small server with the part of OpenAI's API that the handlers call: it repeats the prompt's words. It sleeps as vLLM does."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self):
        if self.path in ("/sleep?level=1", "/wake_up"):
            self.send_response(200)
            self.end_headers()
            return
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not body["prompt"].strip():
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"prompt is empty")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in body["prompt"].split():
            event = json.dumps({"choices": [{"text": word}]})
            self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.01)
        self.wfile.write(b"data: [DONE]\n\n")


time.sleep(0.3)  # It loads its model.
port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
