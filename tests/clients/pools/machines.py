"""Disks that fill, die and hang, clocks that jump, voters that stand still, under four clients that write all the time.

The disk of a voter is filled as well before the primary is killed, which must not keep another node from leading.

Each node has a file system of its own, on a loop device, so this needs root. A figure is how long no row was
acknowledged. The exit status is 0 if that was never longer than 10 s, no row is lost, only the primary's disk moved
its role, and a clock or a voter stopped no client at all. Of two nodes and a witness (--witness) the other one with
data is waited for while it stands still, until the primary may leave it out.
"""

import argparse
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from cluster import Cluster, Failed, until

LONGEST = 10
# Beyond this a client was stopped; a busy machine may hold one up.
HELD_UP = 1.5
FAULTS = ["full", "dead", "hang", "clock", "voter", "full voter"]
# A deposed primary ends its sessions within so long.
LEAVES = 5
HOUR = 3600
# Of <linux/loop.h>.
LOOP_SET_STATUS64, LOOP_GET_STATUS64, STATUS_BYTES, SIZE_LIMIT_AT = 0x4C04, 0x4C05, 232, 32


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


class Disk:
    """A file system in a file, mounted where a node has its directory."""

    def __init__(self, at):
        self.at, image = Path(at), f"{at}.img"
        call("truncate", "-s", "2G", image)
        call("mkfs.ext4", "-q", "-F", "-m", "0", image)
        self.at.mkdir()
        self.device = call("losetup", "-f", "--show", image)
        self.mount()
        self.directory = self.at / "node"
        self.directory.mkdir(mode=0o700)

    def mount(self):
        call("mount", self.device, str(self.at))

    def fill(self):
        free = os.statvfs(self.at)
        # The node may take room as well: what is left is written.
        size = max(free.f_bavail * free.f_frsize - (64 << 20), 1 << 20)
        subprocess.run(["fallocate", "-l", str(size), str(self.at / "filler")], check=False)
        try:
            with open(self.at / "rest", "wb") as rest:
                while True:
                    rest.write(b"x" * (64 << 10))
                    rest.flush()
        except OSError:
            pass

    def free(self):
        for name in ["filler", "rest"]:
            (self.at / name).unlink(missing_ok=True)

    def limit(self, size):
        """No request beyond this is carried out; 0 for all."""
        with open(self.device, "rb") as device:
            status = bytearray(STATUS_BYTES)
            fcntl.ioctl(device, LOOP_GET_STATUS64, status)
            struct.pack_into("Q", status, SIZE_LIMIT_AT, size)
            fcntl.ioctl(device, LOOP_SET_STATUS64, bytes(status))

    def freeze(self):
        """No write and no sync returns."""
        call("fsfreeze", "-f", str(self.at))

    def thaw(self):
        call("fsfreeze", "-u", str(self.at))

    def revive(self):
        self.limit(0)
        call("umount", str(self.at))
        self.mount()

    def end(self):
        subprocess.run(["fsfreeze", "-u", str(self.at)], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["umount", "-l", str(self.at)], check=False)
        subprocess.run(["losetup", "-d", self.device], check=False)


class Load:
    """Clients that write, each on whichever node lets it."""

    def __init__(self, nodes, seed):
        self.nodes, self.acks, self.over = nodes, [], threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(number, random.Random(seed + number))) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def write(self, number, chance):
        row = number << 40
        while not self.over.is_set():
            node = chance.choice(self.nodes)
            try:
                with node.connect() as session:
                    while not self.over.is_set():
                        row += 1
                        session.execute("INSERT INTO t VALUES (%s, repeat('x', 10000))", (row,))
                        self.acks.append((time.monotonic(), row, node))
            except psycopg.Error:
                time.sleep(0.005)

    def silence(self, since):
        """How long nothing was acknowledged."""
        times = [since] + [at for at, _, _ in self.acks if at > since] + [time.monotonic()]
        return max(later - former for former, later in zip(times, times[1:]))

    def move_from(self, primary, since):
        """Blocks until another node acknowledges. How long nothing was acknowledged."""
        until("another node acknowledges", lambda: any(at > since and node is not primary for at, _, node in self.acks[-1000:]))
        return self.silence(since)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Machines:
    """Three nodes, or two and a witness, with what comes to them."""

    def __init__(self, directory, clock, seed, witness):
        self.cluster = Cluster(os.environ["FRESHET"], directory, witness=witness)
        self.chance, self.disks, self.clocks = random.Random(seed), {}, {}
        for node in self.cluster.nodes:
            disk = self.disks[node] = Disk(node.directory)
            node.arguments[node.arguments.index("--directory") + 1] = str(disk.directory)
            self.clocks[node] = Path(f"{node.directory}.clock")
            self.clocks[node].write_text("0")
        self.clock = clock

    def start(self, node):
        os.environ.update(LD_PRELOAD=self.clock, CLOCK_OFFSET=str(self.clocks[node]))
        try:
            node.start()
        finally:
            del os.environ["LD_PRELOAD"]
        # It is founded, or has joined, once.
        node.arguments = [word for word in node.arguments if word != "--new-cluster"]

    def strike(self, fault, primary, load):
        """A fault comes to the primary, or to a voter, and goes.

        How long nothing was acknowledged, and how long that may last.
        """
        since = time.monotonic()
        if fault == "full":
            self.disks[primary].fill()
            silence = load.move_from(primary, since)
            self.disks[primary].free()
        elif fault == "dead":
            self.disks[primary].limit(512)
            silence = load.move_from(primary, since)
            primary.kill()
            self.disks[primary].revive()
            self.start(primary)
        elif fault == "hang":
            with primary.connect() as idle:
                self.disks[primary].freeze()
                try:
                    silence = load.move_from(primary, since)
                    leaves(primary, idle)
                finally:
                    self.disks[primary].thaw()
        elif fault == "full voter":
            # Who is left has to promise a term, and to lead or to be led.
            full = self.another(primary)
            self.disks[full].fill()
            since = time.monotonic()
            primary.kill()
            silence = load.move_from(primary, since)
            self.disks[full].free()
            self.start(primary)
        elif fault == "clock":
            node = self.chance.choice(self.cluster.nodes)
            self.clocks[node].write_text(str(self.chance.choice([-HOUR, 0, HOUR])))
            time.sleep(3)
            return load.silence(since), HELD_UP
        else:
            voter = self.another(primary)
            voter.signal(signal.SIGSTOP)
            time.sleep(2)
            voter.signal(signal.SIGCONT)
            time.sleep(0.5)
            is_needed = len(self.cluster.voters) == 2 and voter in self.cluster.voters
            return load.silence(since), LONGEST if is_needed else HELD_UP
        return silence, LONGEST

    def another(self, primary):
        """Any other voter."""
        return self.chance.choice([node for node in self.cluster.nodes if node is not primary])

    def end(self):
        self.cluster.end()
        for disk in self.disks.values():
            disk.end()


def leaves(primary, idle):
    """The deposed primary ends its sessions, and takes no new ones as a primary, though its disk still hangs."""
    if not select.select([idle.fileno()], [], [], LEAVES)[0]:
        raise Failed(f"a session of the deposed primary has heard nothing for {LEAVES} s")
    try:
        with primary.connect() as session:
            if session.execute("SHOW in_hot_standby").fetchone() == ("off",):
                raise Failed("the deposed primary takes sessions as if it were one")
    except psycopg.Error:
        pass


def run(arguments, directory, clock):
    machines, load = Machines(directory, clock, arguments.seed, arguments.witness), None
    good, figures = True, {}
    try:
        for node in machines.cluster.nodes:
            machines.start(node)
        with machines.cluster.whole().connect() as session:
            session.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
        load = Load(machines.cluster.voters, arguments.seed)
        for number in range(arguments.rounds):
            fault = FAULTS[number % len(FAULTS)]
            primary = machines.cluster.whole()
            time.sleep(machines.chance.uniform(0.5, 1.5))
            silence, longest = machines.strike(fault, primary, load)
            stays = machines.cluster.whole() is primary
            wrong = silence > longest or stays != (fault in ("clock", "voter"))
            good &= not wrong
            figures.setdefault(fault, []).append(silence)
            print(f"round {number + 1}, {fault}: {silence * 1e3:.0f} ms{' WRONG' if wrong else ''}", flush=True)
        load.end()
        with machines.cluster.whole().connect() as session:
            there = {row for row, in session.execute("SELECT id FROM t")}
        lost = [row for _, row, _ in load.acks if row not in there]
        for fault, silences in figures.items():
            silences.sort()
            print(f"{fault:10}  {len(silences):3} rounds  p50 {silences[len(silences) // 2] * 1e3:6.0f} ms  max {silences[-1] * 1e3:6.0f} ms")
        print(f"{len(load.acks)} rows acknowledged, {len(lost)} lost")
        return good and not lost
    finally:
        if load:
            load.end()
        machines.end()


def main():
    options = argparse.ArgumentParser(description="Disks that fill, die and hang, clocks that jump, voters that stand still.")
    options.add_argument("--rounds", type=int, default=20, help="how many faults; default: 20")
    options.add_argument("--seed", type=int, default=42, help="of their moments; default: 42")
    options.add_argument("--witness", action="store_true", help="two nodes and a witness instead of three nodes")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshet-machines-") as directory:
        clock = f"{directory}/clock.so"
        call("cc", "-shared", "-fPIC", "-O1", "-o", clock, str(Path(__file__).with_name("clock.c")))
        try:
            good = run(arguments, directory, clock)
        except Failed as failed:
            print(f"FAILED: {failed}")
            for messages in Path(directory).glob("*.err"):
                print(f"== {messages.name}\n{messages.read_text()[-3000:]}")
            good = False
    sys.exit(0 if good else 1)


main()
