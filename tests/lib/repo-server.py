#!/usr/bin/env python3
# What: serves a directory on a free port of 127.0.0.1, which it prints; requests are told on stderr.
# Why:  a mirror that breaks down in the middle of a download is a case of its own.
# How:  repo-server.py DIRECTORY [PART]: half of the first file whose path has PART in it is sent, then
#       the server is gone.
import functools
import http.server
import os
import sys

DIRECTORY = sys.argv[1]
PART = sys.argv[2] if len(sys.argv) > 2 else None


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if PART and PART in self.path:
            self.break_down()
        super().do_GET()

    def break_down(self):
        with open(self.translate_path(self.path), "rb") as file:
            content = file.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        os._exit(0)


handler = functools.partial(Handler, directory=DIRECTORY)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_address[1], flush=True)
server.serve_forever()
