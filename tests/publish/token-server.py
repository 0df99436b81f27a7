#!/usr/bin/env python3
"""What: a token server for tests of the bearer authentication of an OCI registry.
Why:  docker-registry checks such tokens, and brings no server that makes them.
How:  token-server.py DIR SECONDS: DIR holds key.pem, cert.pem (self-signed) and users (USER:PASSWORD
      lines); writes its port to DIR/port, a line for each request to DIR/log, tokens to DIR/tokens.
"""
import base64
import http.server
import json
import pathlib
import subprocess
import sys
import time
import urllib.parse

STATE = pathlib.Path(sys.argv[1])
SECONDS = int(sys.argv[2])
LEEWAY = 60  # docker-registry takes a token for so long after its end


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(text):
    done = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(STATE / "key.pem")],
        input=text.encode(), capture_output=True, check=True)
    return encode(done.stdout)


def certificate():
    lines = (STATE / "cert.pem").read_text().splitlines()
    return "".join(line for line in lines if "-----" not in line)


def token(user, service, scopes):
    now = int(time.time())
    access = []
    for scope in scopes:
        kind, name, actions = scope.split(":")
        access.append({"type": kind, "name": name, "actions": actions.split(",")})
    header = {"typ": "JWT", "alg": "RS256", "x5c": [certificate()]}
    claims = {
        "iss": "token server for tests", "sub": user, "aud": service, "jti": str(time.time_ns()),
        "iat": now, "nbf": now - 120, "exp": now + SECONDS - LEEWAY, "access": access,
    }
    text = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
    return text + "." + sign(text)


class Handler(http.server.BaseHTTPRequestHandler):
    def user(self):
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            return None
        both = base64.b64decode(value).decode()
        known = (STATE / "users").read_text().splitlines()
        return both.partition(":")[0] if both in known else None

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        user = self.user()
        reply = {"details": "no such user or password"}
        if user:
            made = token(user, query["service"][0], query.get("scope", []))
            reply = {"token": made, "expires_in": SECONDS}
            with open(STATE / "tokens", "a", encoding="ascii") as tokens:
                tokens.write(made + "\n")
        body = json.dumps(reply).encode()
        self.send_response(200 if user else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        with open(STATE / "log", "a", encoding="ascii") as log:
            log.write(format % args + "\n")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
(STATE / "port.new").write_text(str(server.server_port))
(STATE / "port.new").rename(STATE / "port")
server.serve_forever()
