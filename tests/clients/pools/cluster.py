"""Nodes of a cluster on this machine, and what comes to them."""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import psycopg

# A node that is not there, or a cluster that is not whole, by then has failed.
PATIENCE = 60


class Failed(Exception):
    """It did not come to its end."""


def until(what, holds):
    """Waits until a condition holds, and gives its value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := holds():
            return value
        time.sleep(0.02)
    raise Failed(f"not within {PATIENCE} s: {what}")


def free_ports(count):
    """Ports below those that the kernel gives to outgoing connections, since nodes start again at theirs."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = []
    while len(found) < count:
        port = random.randrange(10_000, lowest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class Node:
    """A node's process, at the same addresses in all its lives."""

    def __init__(self, program, directory, access, ports, *more):
        self.control, self.listen, self.sql = ports
        self.program, self.directory, self.process = program, directory, None
        self.arguments = [
            "serve", "--directory", directory, "--address", f"127.0.0.1:{self.control}",
            "--listen", f"127.0.0.1:{self.listen}", "--sql-listen", f"127.0.0.1:{self.sql}",
            "--sql-access", access, "--sql-socket-directory", "off", *more,
        ]

    def start(self):
        """Blocks until it says that it is ready, or has ended."""
        with open(f"{self.directory}.err", "ab") as messages:
            self.process = subprocess.Popen(
                [self.program, *self.arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages)
        if not self.process.stdout.readline().startswith(b"ready"):
            raise Failed(f"a node has not started, see {self.directory}.err")

    def ask(self, command, *more):
        """What a command says of this node; None if it fails."""
        said = subprocess.run(
            [self.program, command, "--json", *more, f"127.0.0.1:{self.control}"], capture_output=True, check=False)
        return json.loads(said.stdout) if said.returncode == 0 else None

    def connect(self):
        return psycopg.connect(
            host="127.0.0.1", port=self.sql, user="freshet", dbname="freshet", autocommit=True, connect_timeout=10)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Witness(Node):
    """A voter without data."""

    def __init__(self, program, directory, ports, join):
        super().__init__(program, directory, "", ports)
        self.arguments = ["witness", "--directory", directory, "--listen", f"127.0.0.1:{self.listen}", "--join", join]


class Cluster:
    """Three nodes with default settings, and a fourth that never leads, if that is wanted; or two and a witness."""

    def __init__(self, program, directory, fourth=False, witness=False):
        access = f"{directory}/access"
        Path(access).write_text("host all freshet 127.0.0.1/32 trust\n")
        ports = free_ports(12)
        ports = [ports[of_first:of_first + 3] for of_first in range(0, 12, 3)]
        first = f"127.0.0.1:{ports[0][1]}"
        roles = [["--new-cluster"], ["--join", first], ["--join", first],
                 ["--join", first, "--asynchronous", "--failover", "never"]]
        self.program = program
        self.nodes = [
            Node(program, f"{directory}/n{number + 1}", access, of_node, *role)
            for number, (of_node, role) in enumerate(zip(ports, roles[:2 if witness else 3 + fourth]))
        ]
        # Those of them that may lead.
        self.voters = self.nodes[:3]
        if witness:
            self.nodes.append(Witness(program, f"{directory}/witness", ports[2], first))

    def start(self):
        for node in self.nodes:
            node.start()

    def end(self):
        ends = [threading.Thread(target=node.end) for node in self.nodes]
        for thread in ends:
            thread.start()
        for thread in ends:
            thread.join()

    def whole(self):
        """The primary, when all nodes follow it and the other voters are in sync; blocks until then."""
        return until("all nodes in sync", self._whole)

    def _whole(self):
        for node in self.voters:
            # Another one than the primary waits for it to answer.
            said = node.ask("members", "--patience", "1")
            if not said:
                continue
            nodes = said["nodes"]
            # A mirror or a node that is away is not connected.
            if len(nodes) == len(self.nodes) and all(of["connected"] for of in nodes) and sum(of["in_sync"] for of in nodes) == 3:
                primary = next((of for of in nodes if of["role"] == "primary"), None)
                return primary and next(node for node in self.voters if primary["address"] == f"127.0.0.1:{node.listen}")
        return None

    def switch_over(self, primary, successor=None):
        """Orders it until the role moves: a standby that is too slow leaves it where it is. Gives how often it did not."""
        order = [self.program, "switch-over", "--address", f"127.0.0.1:{primary.control}"]
        order += [f"127.0.0.1:{successor.listen}"] if successor else []
        for refused in range(10):
            said = subprocess.run(order, capture_output=True, text=True, check=False)
            if said.returncode == 0:
                return refused
        raise Failed(f"switch-over: {said.stderr.strip()}")
