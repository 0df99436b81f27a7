#!/usr/bin/env python3
"""What: a TCP proxy for tests that makes a server on loopback slow, or stops at a request.
Why:  an upload must last long enough to be killed in its middle, or at a known place.
How:  slow-proxy.py PORT_FILE TARGET_PORT BYTES_PER_SECOND [TEXT [N]]: writes its port to PORT_FILE.
      The Nth request that begins with TEXT (the first) is not passed on: PORT_FILE.held is made, and
      nothing of its connection moves any more. Of a TEXT that begins with HTTP/ it is the Nth such
      reply, and both sides are cut off from each other: the reply is lost.
"""
import itertools
import os
import socket
import sys
import threading
import time

PORT_FILE, TARGET, RATE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
HOLD = sys.argv[4].encode() if len(sys.argv) > 4 else None
TURN = itertools.count(1)
NTH = int(sys.argv[5]) if len(sys.argv) > 5 else 1
PIECE = 65536


def is_it(data):
    if not HOLD or not data.startswith(HOLD) or next(TURN) != NTH:
        return False
    with open(PORT_FILE + ".held", "w", encoding="ascii"):
        pass
    return True


def up(client, server):
    """Client to server, at the rate."""
    while data := client.recv(PIECE):
        if is_it(data):
            threading.Event().wait()
        server.sendall(data)
        if len(data) > 4096:
            time.sleep(len(data) / RATE)
    server.shutdown(socket.SHUT_WR)


def down(server, client):
    while data := server.recv(PIECE):
        if is_it(data):
            raise OSError("this reply gets lost")
        client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def run(way, one, other):
    try:
        way(one, other)
    except OSError:
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


listener = socket.create_server(("127.0.0.1", 0))
with open(PORT_FILE + ".new", "w", encoding="ascii") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(PORT_FILE + ".new", PORT_FILE)
while True:
    accepted, _ = listener.accept()
    target = socket.create_connection(("127.0.0.1", TARGET))
    threading.Thread(target=run, args=(up, accepted, target), daemon=True).start()
    threading.Thread(target=run, args=(down, target, accepted), daemon=True).start()
