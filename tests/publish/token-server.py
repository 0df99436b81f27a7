#!/usr/bin/env python3
"""What: a token server for tests of the bearer authentication of an OCI registry.
Why:  docker-registry checks such tokens, and brings no server that makes them.
How:  token-server.py DIR SECONDS: DIR holds sign.key, sign.crt (self-signed) and users (USER:PASSWORD
      lines); writes tokens to DIR/tokens; see mock_http.py for DIR/port and log.
"""
import base64
import json
import pathlib
import subprocess
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
from mock_http import reply_json, serve  # noqa: E402

STATE = pathlib.Path(sys.argv[1])
SECONDS = int(sys.argv[2])
LEEWAY = 60  # docker-registry takes a token for so long after its end


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(text):
    done = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(STATE / "sign.key")],
        input=text.encode(), capture_output=True, check=True)
    return encode(done.stdout)


def certificate():
    lines = (STATE / "sign.crt").read_text().splitlines()
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


class Tokens:
    @staticmethod
    def user(request):
        kind, _, value = request.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            return None
        both = base64.b64decode(value).decode()
        known = (STATE / "users").read_text().splitlines()
        return both.partition(":")[0] if both in known else None

    def handle(self, request):
        user = self.user(request)
        if not user:
            return reply_json(401, {"details": "no such user or password"})
        query = urllib.parse.parse_qs(request.target.partition("?")[2])  # a scope may come twice
        made = token(user, query["service"][0], query.get("scope", []))
        with open(STATE / "tokens", "a", encoding="ascii") as tokens:
            tokens.write(made + "\n")
        return reply_json(200, {"token": made, "expires_in": SECONDS})


serve(Tokens(), str(STATE))
