"""Pools of several drivers stay open while their primary is killed, stopped or handed over.

Starts a cluster and the pools, brings the faults, and judges: how long a session stayed with a
primary after another one had acknowledged, which errors clients heard, and whether the table holds
exactly what they were told. The exit status is 0 if all is as docs/operations.md says.

Clients print a line for each transaction, with tabs between: pool, session, port of the node, number of
the row, token, stage (`get` a connection, `begin`, `insert`, `commit`), what was said (`ok`, an SQLSTATE,
`lost`, `silent`: nothing in time, `none`: no connection), begin and end in ns, and the message.
"""

import argparse
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

from cluster import PATIENCE, Cluster, Failed, until
from judge import Event, Judge, reigns

HERE = Path(__file__).parent
# How long a session on a stopped node waits at most, in whole seconds: pgjdbc has no smaller unit.
SILENCE = 1
POOLS = ["pgjdbc", "pgx", "psycopg", "pgjdbc, routed", "pgx, routed", "psycopg, routed"]


class Clients:
    """The programs with the pools, and what they have said."""

    def __init__(self, cluster, arguments):
        hosts = ",".join(str(node.sql) for node in cluster.voters)
        commands = [
            ["java", "-cp", f"{arguments.java}/lib/*:{arguments.java}/hibernate", "Pools"],
            [arguments.go, "pools"],
            [sys.executable, f"{HERE}/psycopg_pools.py"],
        ]
        self.events, self.threads, self.programs = [], [], []
        for number, command in enumerate(commands):
            environment = dict(os.environ, HOSTS=hosts, ROUTED=str(cluster.nodes[3].sql), SILENCE=str(SILENCE), BASE=str(number * 10**9))
            with open(f"{arguments.directory}/client{number}.err", "wb") as messages:
                program = subprocess.Popen(
                    command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, text=True)
            self.programs.append(program)
            self.threads.append(threading.Thread(target=self.read, args=(program,), daemon=True))
            self.threads[-1].start()

    def read(self, program):
        for line in program.stdout:
            self.events.append(Event.parse(line))

    def wrote_elsewhere(self, port, since):
        """When each pool first wrote on another node than that of this port; None before all have.

        Only what came since then is looked at, which is how many events there were.
        """
        events, found = self.events[since:], {}
        ports, _ = reigns(events)
        for event in events:
            if event.said == "ok" and ports.get(event.reign, port) != port:
                found.setdefault(event.pool, event.ended)
        return found if all(pool in found for pool in POOLS) else None

    def end(self):
        for program in self.programs:
            program.stdin.close()
        ended = all(program.wait(60) == 0 for program in self.programs)
        for thread in self.threads:
            thread.join()
        if not ended:
            raise Failed("a program with pools has ended by itself, see client*.err")


def idles(node, clients):
    """A session that does nothing until it is ended."""
    with node.connect() as connection:
        token = connection.execute("SELECT freshet_transaction_token()::text").fetchone()[0]
        begun = time.monotonic_ns()
        select.select([connection], [], [])
        ended, said, why = time.monotonic_ns(), "ok", ""
        try:
            connection.execute("SELECT 1")
        except psycopg.Error as error:
            said, why = error.sqlstate or "lost", " ".join(str(error).split())
        # No row has this number.
        clients.events.append(Event("idle", token, node.sql, -2, token, "idle", said, begun, ended, why))


def a_round(cluster, clients, judge, kind, chance):
    """One fault, until all pools write elsewhere and the node is back."""
    primary = cluster.whole()
    idle = threading.Thread(target=idles, args=(primary, clients), daemon=True)
    idle.start()
    # The fault comes at some moment of the load.
    time.sleep(chance.uniform(0.5, 1.5))
    begun, since = time.monotonic_ns(), len(clients.events)
    if kind == "kill":
        primary.kill()
    elif kind == "stop":
        primary.signal(signal.SIGSTOP)
    else:
        judge.refused_orders += cluster.switch_over(primary)
    found = until(f"all pools write elsewhere after {kind}", lambda: clients.wrote_elsewhere(primary.sql, since))
    if kind == "kill":
        primary.start()
    elif kind == "stop":
        # Some time after it was deposed, too.
        time.sleep(chance.uniform(0, 2))
        judge.resumed(primary.sql, time.monotonic_ns())
        primary.signal(signal.SIGCONT)
    for pool, at in found.items():
        judge.outages.setdefault((kind, pool), []).append((at - begun) / 1e6)
    idle.join(PATIENCE)
    if idle.is_alive():
        raise Failed(f"an idle session stays with a primary that is none any more: {kind}")
    ask(cluster.whole(), clients, judge)
    print(f"{kind:12}" + "".join(f"  {pool} {(at - begun) / 1e6:.0f} ms" for pool, at in found.items() if pool in POOLS), flush=True)


def ask(primary, clients, judge):
    """Asks what became of the transactions whose clients do not know, as a client does."""
    opens = [event for event in list(clients.events) if event.stage == "commit" and event.open and event.token not in judge.answers]
    with primary.connect() as connection:
        for event in opens:
            def answer():
                said = connection.execute("SELECT freshet_transaction_outcome(%s)", (event.token,)).fetchone()[0]
                return said != "in progress" and (said,)

            judge.answers[event.token] = until(f"an outcome of {event.token}", answer)[0]


def in_the_end(cluster, judge):
    """What all nodes hold."""
    with cluster.whole().connect() as connection:
        connection.execute("INSERT INTO pooled VALUES (-1)")
        lsn = connection.execute("SHOW freshet.last_commit").fetchone()[0]
    for node in cluster.nodes:
        with node.connect() as connection:
            connection.execute(f"SET freshet.read_after = '{lsn}'")
            rows = [number for number, in connection.execute("SELECT n FROM pooled WHERE n >= 0")]
            judge.holds(f"the node at {node.sql}", rows)


def documented():
    """The errors that docs/operations.md names for clients of a cluster that changes its primary."""
    text = (HERE / "../../../docs/operations.md").read_text()
    part = text.split("### What a client hears", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return set(re.findall(r"`([0-9A-Z]{5})`", "".join(row.split("|")[1] for row in re.findall(r"^\|.*\|$", part, re.M))))


def run(arguments, chance):
    cluster = Cluster(os.environ["FRESHET"], arguments.directory, fourth=True)
    judge = Judge(documented(), SILENCE)
    clients = None
    try:
        cluster.start()
        with cluster.whole().connect() as connection:
            # No key: a row that is written twice is there twice.
            connection.execute("CREATE TABLE pooled (n bigint NOT NULL)")
        clients = Clients(cluster, arguments)
        kinds = [["kill", "stop", "switch-over"][number % 3] for number in range(arguments.rounds)]
        chance.shuffle(kinds)
        until("all pools write", lambda: all(any(event.pool == pool and event.said == "ok" for event in list(clients.events)) for pool in POOLS))
        for kind in kinds:
            a_round(cluster, clients, judge, kind, chance)
        clients.end()
        ask(cluster.whole(), clients, judge)
        judge.events = clients.events
        in_the_end(cluster, judge)
        return judge.says()
    finally:
        for program in clients.programs if clients else []:
            program.kill()
        cluster.end()


def main():
    options = argparse.ArgumentParser(description="Pools of pgjdbc, pgx and psycopg through failovers.")
    options.add_argument("--rounds", type=int, default=20, help="how many faults; default: 20")
    options.add_argument("--seed", type=int, default=42, help="of their kinds and moments; default: 42")
    options.add_argument("--java", required=True, help="the directory with Java's libraries and classes")
    options.add_argument("--go", required=True, help="the program of Go's clients")
    arguments = options.parse_args()
    arguments.directory = tempfile.mkdtemp(prefix="freshet-pools-")
    good = False
    try:
        good = run(arguments, random.Random(arguments.seed))
    except Failed as failed:
        print(f"FAILED: {failed}")
    if good:
        shutil.rmtree(arguments.directory)
    else:
        print(f"what nodes and clients said is in {arguments.directory}")
    sys.exit(0 if good else 1)


main()
