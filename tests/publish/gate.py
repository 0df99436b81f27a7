#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What: a TCP proxy on loopback that stops what goes to a server at a place that a test names, loses a
reply, or makes the way slow.
Why:  'kill -9 in the middle of a body' must always be in the middle, on a fast machine too.
How:  gate.py UPSTREAM_PORT DIR [BYTES_PER_SECOND]; DIR/port has its own port. DIR/rule may hold

    bytes N           all is held once N bytes went up
    line REGEX        a request whose first line matches is held before it reaches the server
    line@N REGEX      only the Nth such request
    lost@N REGEX      the Nth reply whose first line matches never comes: its connection ends

DIR/held says that it happened. Removing DIR/rule lets go, or ends the connection where DIR/drop is:
then the server never sees what was held. Another rule begins a new count."""
import os
import re
import socket
import sys
import threading
import time

LOCK = threading.Lock()
SMALL = 4096  # pieces that no rate slows down: requests without a body


class Gate:
    def __init__(self, upstream, directory, rate):
        self.upstream = upstream
        self.rate = rate
        self.rule_path = os.path.join(directory, "rule")
        self.held_path = os.path.join(directory, "held")
        self.drop_path = os.path.join(directory, "drop")
        self.count = 0  # bytes or matches since this rule is there
        self.last_rule = None

    def rule(self):
        """Its kind, which match of it counts (0: each), and its value."""
        try:
            with open(self.rule_path, encoding="ascii") as file:
                kind, _, value = file.read().strip().partition(" ")
        except OSError:
            kind, value = "", ""
        if self.last_rule != (kind, value):
            self.count = 0
        self.last_rule = (kind, value)
        kind, _, nth = kind.partition("@")
        return kind, int(nth or 0), value

    def is_it(self, data, kind):
        """Whether the rule is of this kind, and means what begins with this."""
        with LOCK:
            rule, nth, value = self.rule()
            if rule == "bytes" == kind:
                self.count += len(data)
                return self.count >= int(value)
            line = data.split(b"\r\n", 1)[0].decode("latin-1")
            if rule != kind or re.search(value, line) is None:
                return False
            self.count += 1
            return nth in (0, self.count)

    def tell(self):
        with open(self.held_path, "w", encoding="ascii"):
            pass

    def hold(self):
        """False: the test killed who sent it, and the server shall never see the rest. An end of
        the connection would not show that: it stands behind what is still in the sockets."""
        self.tell()
        while os.path.exists(self.rule_path):
            time.sleep(0.02)
        return not os.path.exists(self.drop_path)

    def passes_up(self, data):
        if (self.is_it(data, "bytes") or self.is_it(data, "line")) and not self.hold():
            return False
        if self.rate and len(data) > SMALL:
            time.sleep(len(data) / self.rate)
        return True

    def passes_down(self, data):
        lost = self.is_it(data, "lost")
        if lost:
            self.tell()
        return not lost

    @staticmethod
    def pump(source, target, passes):
        try:
            while data := source.recv(65536):
                if not passes(data):
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
        down = threading.Thread(target=self.pump, args=(server, client, self.passes_down), daemon=True)
        down.start()
        self.pump(client, server, self.passes_up)
        down.join()
        client.close()
        server.close()


def main():
    gate = Gate(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    listener = socket.create_server(("127.0.0.1", 0))
    with open(os.path.join(sys.argv[2], "port.new"), "w", encoding="ascii") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(os.path.join(sys.argv[2], "port.new"), os.path.join(sys.argv[2], "port"))
    while True:
        client, _ = listener.accept()
        threading.Thread(target=gate.serve, args=(client,), daemon=True).start()


main()
