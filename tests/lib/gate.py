#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What: a TCP proxy on loopback that stops what goes to a server at a place that a test names.
Why:  'kill -9 in the middle of a body' must always be in the middle, on a fast machine too.
How:  gate.py UPSTREAM_PORT DIR; DIR/port has its own port. While DIR/rule holds "bytes N", all is
held once N bytes went up; while it holds "line REGEX", a request whose first line matches is held
before it reaches the server. DIR/held says that it happened; removing DIR/rule lets go, or
ends the connection where DIR/drop is: then the server never sees what was held."""
import os
import re
import socket
import sys
import threading
import time

LOCK = threading.Lock()


class Gate:
    def __init__(self, upstream, directory):
        self.upstream = upstream
        self.rule_path = os.path.join(directory, "rule")
        self.held_path = os.path.join(directory, "held")
        self.drop_path = os.path.join(directory, "drop")
        self.sent = 0
        self.last_rule = None

    def rule(self):
        try:
            with open(self.rule_path, encoding="ascii") as file:
                kind, _, value = file.read().strip().partition(" ")
        except OSError:
            kind, value = "", ""
        with LOCK:
            if self.last_rule != (kind, value):
                self.sent = 0
            self.last_rule = (kind, value)
        return kind, value

    def wants_hold(self, data):
        kind, value = self.rule()
        with LOCK:
            self.sent += len(data)
            if kind == "bytes":
                return self.sent >= int(value)
        line = data.split(b"\r\n", 1)[0].decode("latin-1")
        return kind == "line" and re.search(value, line) is not None

    def hold(self):
        """False: the test killed who sent it, and the server shall never see the rest. An end of
        the connection would not show that: it stands behind what is still in the sockets."""
        with open(self.held_path, "w", encoding="ascii"):
            pass
        while os.path.exists(self.rule_path):
            time.sleep(0.02)
        return not os.path.exists(self.drop_path)

    def pump(self, source, target, upwards):
        try:
            while data := source.recv(65536):
                if upwards and self.wants_hold(data) and not self.hold():
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.upstream))
        down = threading.Thread(target=self.pump, args=(server, client, False), daemon=True)
        down.start()
        self.pump(client, server, True)
        down.join()
        client.close()
        server.close()


def main():
    gate = Gate(int(sys.argv[1]), sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0))
    with open(os.path.join(sys.argv[2], "port.new"), "w", encoding="ascii") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(os.path.join(sys.argv[2], "port.new"), os.path.join(sys.argv[2], "port"))
    while True:
        client, _ = listener.accept()
        threading.Thread(target=gate.serve, args=(client,), daemon=True).start()


main()
