# What: the HTTP side of the mocks for the tests of 'gpuimg publish': requests, replies, an access
#       log, and faults that a rule file asks for.
# Why:  real servers do not fail on demand. What a server means is in fault-server.py, vco-mock.py.
# How:  serve(APP, DIR): APP.handle(request) gives a Reply. DIR/port says where it listens, DIR/log
#       has a line "METHOD TARGET STATUS BODY_BYTES auth|anonymous" for each request, DIR/fired one
#       for each rule that came true, DIR/dates what S3's clients say. DIR/cert.pem and key.pem make it speak TLS.
#       DIR/faults is JSON, a list of rules: {"on": REGEX of "METHOD TARGET", "do": KIND, "times": 1,
#       "skip": 0, ...}; a new file begins a new count. Kinds, "done" meaning that APP has done it:
#         status   not done; "status", "headers", "body" are the reply
#         early    the same, when "read" bytes of the body were read
#         reply    done; but that is the reply
#         headers  done; "headers" over those of the reply
#         lost     done; no reply         drop     not done; no reply
#         slow     done; reply after "seconds"
#         later    reply "status" at once; done after "seconds"
#         hold     waits until DIR/faults changes, then done
#         stall    reads "read" bytes of the body, then nothing for "seconds"
#         flip     done; one byte of the reply's body is another
#         longer   done; "bytes" more in the reply's body
#         call     APP."name"() before it is done
#         endless-headers, endless-body (with "status"): until the client goes away
import base64
import json
import os
import re
import select
import socket
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENDLESS_BYTES = 256 * 1024 * 1024
KINDS = {"status", "early", "reply", "headers", "lost", "drop", "slow", "later", "hold", "stall",
         "flip", "longer", "call", "endless-headers", "endless-body"}


class Request:
    def __init__(self, method, target, headers):
        self.method, self.target, self.headers = method, target, headers
        path, _, query = target.partition("?")
        self.path = urllib.parse.unquote(path)
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.body = b""


class Reply:
    def __init__(self, status, body=b"", headers=None, length=None):
        self.status = status
        self.body = body.encode() if isinstance(body, str) else body
        self.headers = dict(headers or {})
        self.length = length  # of what a HEAD tells


def reply_json(status, value):
    return Reply(status, json.dumps(value), {"Content-Type": "application/json"})


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Faults:
    def __init__(self, directory):
        self.path = os.path.join(directory, "faults")
        self.fired = os.path.join(directory, "fired")
        self.lock = threading.Lock()
        self.version, self.rules = None, []

    def stamp(self):
        try:
            st = os.stat(self.path)
            return st.st_ino, st.st_mtime_ns
        except FileNotFoundError:
            return None

    def load(self):
        version = self.stamp()
        if version == self.version:
            return
        self.version = version
        self.rules = json.load(open(self.path)) if version else []
        for rule in self.rules:
            if rule["do"] not in KINDS:
                raise ValueError("no such kind of fault: " + rule["do"])
            rule.setdefault("times", 1)
            rule.setdefault("skip", 0)

    def find(self, request):
        line = f"{request.method} {request.target}"
        with self.lock:
            self.load()
            for rule in self.rules:
                if rule["times"] <= 0 or not re.search(rule["on"], line):
                    continue
                if rule["skip"] > 0:
                    rule["skip"] -= 1
                    continue
                rule["times"] -= 1
                with open(self.fired, "a") as out:
                    print(rule["do"], line, file=out)
                return rule
        return None

    def hold(self):
        version = self.stamp()
        while self.stamp() == version:
            time.sleep(0.05)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.serve
        raise AttributeError(name)

    def log_message(self, *_):
        pass

    def handle_expect_100(self):
        return True  # when the body is wanted

    def read_body(self, limit=None):
        left = int(self.headers.get("Content-Length") or 0)
        left = left if limit is None else min(left, limit)
        if left and self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces = []
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                raise ConnectionResetError
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def log_line(self, request, status):
        who = "auth" if self.headers.get("Authorization") else "anonymous"
        line = f"{request.method} {request.target} {status} {len(request.body)} {who}\n"
        with open(os.path.join(self.server.directory, "log"), "a") as out:
            out.write(line)
        if date := self.headers.get("x-amz-date"):
            with open(os.path.join(self.server.directory, "dates"), "a") as out:
                out.write(f"date {request.method} {request.target} {date}\n")

    def answer(self, request, reply):
        head = request.method == "HEAD"
        self.log_line(request, reply.status)
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            length = reply.length if head and reply.length is not None else len(reply.body)
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if not head:
            self.wfile.write(reply.body)

    def linger(self):
        """What is still on its way is taken, so that no reset overtakes the reply."""
        self.wfile.flush()
        self.connection.settimeout(3)
        try:
            if not isinstance(self.connection, ssl.SSLSocket):
                self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(1 << 16):
                pass
        except OSError:
            pass

    def endless(self, rule, request):
        self.log_line(request, rule.get("status", 200))
        self.close_connection = True
        piece = b"X-Fill: " + b"x" * 1000 + b"\r\n"
        self.wfile.write(b"HTTP/1.1 %d Endless\r\n" % rule.get("status", 200))
        if rule["do"] == "endless-body":
            self.wfile.write(b"Connection: close\r\n\r\n")
        for _ in range(ENDLESS_BYTES // len(piece)):
            self.wfile.write(piece)

    def before(self, rule, request):
        """Whether the request has been answered, or never will be."""
        kind = rule["do"]
        if kind in ("early", "stall"):
            request.body = self.read_body(rule.get("read", 0))
            self.close_connection = True
            if kind == "stall":
                time.sleep(rule["seconds"])
                return True
            self.answer(request, self.ruled(rule))
            self.linger()
            return True
        request.body = self.read_body()
        if kind == "status":
            self.answer(request, self.ruled(rule))
        elif kind == "drop":
            self.log_line(request, "dropped")
            self.close_connection = True
        elif kind == "later":
            threading.Timer(rule["seconds"], self.server.app.handle, [request]).start()
            self.answer(request, self.ruled(rule))
        elif kind.startswith("endless-"):
            self.endless(rule, request)
        else:
            return False
        return True

    @staticmethod
    def ruled(rule):
        return Reply(rule.get("status", 200), rule.get("body", ""), rule.get("headers"))

    def sleep(self, seconds):
        """No longer than the client waits: a request of a killed one gets no line in the log."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self.connection], [], [], 0.1)[0]:
                raise ConnectionResetError

    def after(self, rule, request, reply):
        kind = rule["do"]
        if kind == "lost":
            self.log_line(request, "lost")
            self.close_connection = True
            return None
        if kind == "slow":
            self.sleep(rule["seconds"])
        elif kind == "reply":
            return self.ruled(rule)
        elif kind == "headers":
            reply.headers.update(rule["headers"])
        elif kind == "flip":
            body = bytearray(reply.body)
            body[len(body) // 2] ^= 0xFF
            reply.body = bytes(body)
        elif kind == "longer":
            reply.body += b"\0" * rule["bytes"]
        return reply

    def serve(self):
        try:
            self.serve_one()
        except (ConnectionError, ssl.SSLError, TimeoutError):
            self.close_connection = True

    def serve_one(self):
        request = Request(self.command, self.path, self.headers)
        rule = self.server.faults.find(request)
        if not rule:
            request.body = self.read_body()
            self.answer(request, self.server.app.handle(request))
            return
        if self.before(rule, request):
            return
        if rule["do"] == "hold":
            self.server.faults.hold()
        if rule["do"] == "call":
            getattr(self.server.app, rule["name"])()
        reply = self.after(rule, request, self.server.app.handle(request))
        if reply:
            self.answer(request, reply)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        import traceback
        traceback.print_exc()


def serve(app, directory):
    server = Server(("127.0.0.1", 0), Handler)
    server.app, server.directory, server.faults = app, directory, Faults(directory)
    # Without a bound the kernel takes 32 MB of a body that nobody reads: no upload would stall.
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    certificate = os.path.join(directory, "cert.pem")
    if os.path.exists(certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, os.path.join(directory, "key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    port = os.path.join(directory, "port")
    with open(port + ".new", "w") as out:
        print(server.server_address[1], file=out)
    os.rename(port + ".new", port)
    server.serve_forever()
