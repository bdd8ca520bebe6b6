"""Pools of psycopg that write rows until standard input ends; see pools/main.py for what they print.

A pool of several hosts, one that a node hands on to the primary, and one without the time-out that
a session on a stopped node needs.
"""

import contextlib
import itertools
import os
import socket
import sys
import threading
import time

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

HOSTS, ROUTED, SILENCE = os.environ["HOSTS"].split(","), os.environ["ROUTED"], float(os.environ["SILENCE"])
BASE = int(os.environ["BASE"])
several = (
    f"host={','.join(['127.0.0.1'] * len(HOSTS))} port={','.join(HOSTS)} user=freshet dbname=freshet "
    "target_session_attrs=read-write connect_timeout=2 sslmode=disable"
)
routed = f"host=127.0.0.1 port={ROUTED} user=freshet dbname=freshet options=-cfreshet.route=primary sslmode=disable"

stop = threading.Event()
numbers = itertools.count(BASE)
printing = threading.Lock()


class Watch(threading.Thread):
    """Cuts connections that have heard nothing for as long as the time-out says, since libpq has none for that."""

    def __init__(self):
        super().__init__(daemon=True)
        self.busy, self.cut, self.guard = {}, set(), threading.Lock()

    def begins(self, connection):
        with self.guard:
            self.busy[connection] = time.monotonic() + SILENCE

    def ends(self, connection):
        """Whether it was cut."""
        with self.guard:
            self.busy.pop(connection, None)
            return connection in self.cut and not self.cut.discard(connection)

    def run(self):
        while not stop.wait(0.02):
            with self.guard:
                late = [connection for connection, until in self.busy.items() if until < time.monotonic()]
                for connection in late:
                    del self.busy[connection]
                    self.cut.add(connection)
                    # It may just have been lost, and closed.
                    with contextlib.suppress(psycopg.Error, OSError):
                        with socket.socket(fileno=os.dup(connection.fileno())) as other:
                            other.shutdown(socket.SHUT_RDWR)


def line(*fields):
    with printing:
        sys.stdout.write("\t".join(map(str, fields)) + "\n")
        sys.stdout.flush()


def work(name, pool, watch):
    while not stop.is_set():
        number, token, stage, said, why = next(numbers), "-", "get", "ok", ""
        begun, connection, session, port = time.monotonic_ns(), None, "-", "-"
        try:
            connection = pool.getconn(timeout=1)
            session, port = f"{id(connection):x}-{connection.info.backend_pid}", connection.info.port
            watch and watch.begins(connection)
            begun, stage = time.monotonic_ns(), "begin"
            token = connection.execute("SELECT freshet_transaction_token()").fetchone()[0]
            stage = "insert"
            connection.execute("INSERT INTO pooled VALUES (%s)", (number,))
            stage = "commit"
            connection.commit()
        except (psycopg.Error, PoolTimeout) as error:
            said, why = error.sqlstate or ("none" if stage == "get" else "lost"), str(error)
        ended = time.monotonic_ns()
        if connection is not None:
            if watch and watch.ends(connection) and said == "lost":
                said = "silent"
            # It rolls back what is open, and replaces connections that are lost.
            pool.putconn(connection)
        line(name, session, port, number, token, stage, said, begun, ended, " ".join(why.split()))


def main():
    watch = Watch()
    watch.start()
    kinds = [("psycopg", several, 8, watch), ("psycopg, routed", routed, 2, None), ("psycopg, no time-out", several, 2, None)]
    pools, threads = [], []
    for name, url, size, watched in kinds:
        pool = ConnectionPool(url, min_size=size, max_size=size, open=True)
        pools.append(pool)
        threads += [threading.Thread(target=work, args=(name, pool, watched)) for _ in range(size)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    for pool in pools:
        pool.close()


main()
