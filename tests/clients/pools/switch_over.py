"""Switch-overs under pgbench, whose 32 sessions any node hands on to the primary.

Two of three nodes hand the role to and fro; pgbench is connected to the third one. The pause of a client is
its longest transaction that was under way between the order and the end of the command. The exit status
is 0 if 99 of 100 pauses are within 300 ms, and no transaction has failed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import PATIENCE, Cluster, Failed, until

CLIENTS = 32
GOAL_MS = 300


def transactions(directory):
    """Client, begin and end of each transaction that pgbench has logged, in s since the epoch; how many have failed."""
    found, failed = [], 0
    for log in Path(directory).glob("bench.[0-9]*"):
        for line in log.read_text().splitlines():
            client, _, took, _, seconds, micros = line.split()[:6]
            if not took.isdigit():
                failed += 1
                continue
            end = int(seconds) + int(micros) / 1e6
            found.append((int(client), end - int(took) / 1e6, end))
    return found, failed


def at(sorted_values, percent):
    """A percentile by the nearest rank."""
    return sorted_values[max(0, -(-len(sorted_values) * percent // 100) - 1)]


def orders(cluster, rounds, chance, bench):
    """Moves the role to and fro. Gives begin and end of each command, and how many left the role where it was."""
    spans, refused = [], 0
    pair = cluster.nodes[:2]
    for _ in range(rounds):
        primary = cluster.whole()
        time.sleep(chance.uniform(0.5, 1.5))
        if bench.poll() is not None:
            raise Failed("pgbench has ended by itself, see bench.out")
        successor = pair[1] if primary is pair[0] else pair[0]
        begun = time.time()
        refused += cluster.switch_over(primary, successor)
        spans.append((begun, time.time()))
    return spans, refused


def judge(spans, refused, logged, failed):
    """Prints what was found. True if the goal is reached."""
    pauses, silences, other = [], [], []
    ends = sorted(end for _, _, end in logged)
    for begun, ended in spans:
        longest = {}
        for client, start, end in logged:
            if start < ended and end > begun:
                longest[client] = max(longest.get(client, 0), (end - start) * 1e3)
        pauses += longest.values()
        around = [begun] + [end for end in ends if begun < end < ended + 1]
        silences.append(max(later - former for former, later in zip(around, around[1:])) * 1e3)
    for _, start, end in logged:
        if not any(start < ended + 0.5 and end > begun for begun, ended in spans):
            other.append((end - start) * 1e3)
    for name, values in [("pause of a client", pauses), ("nothing committed", silences), ("other transactions", other),
                         ("the command", [(ended - begun) * 1e3 for begun, ended in spans])]:
        values.sort()
        print(f"{name:20}" + "".join(f"  {what} {value:7.1f} ms" for what, value in [
            ("p50", at(values, 50)), ("p90", at(values, 90)), ("p99", at(values, 99)), ("max", values[-1])]))
    print(f"{len(spans)} switch-overs, {refused} orders left the role; {len(logged)} transactions, {failed} failed")
    return at(sorted(pauses), 99) <= GOAL_MS and failed == 0


def run(arguments, directory):
    cluster = Cluster(os.environ["FRESHET"], directory)
    bench = None
    try:
        cluster.start()
        cluster.whole()
        third = cluster.nodes[2]
        environment = dict(os.environ, PGHOST="127.0.0.1", PGPORT=str(third.sql), PGUSER="freshet", PGDATABASE="freshet",
                           PGOPTIONS="-c freshet.route=primary")
        filled = subprocess.run(["pgbench", "-i", "-q", "-s", str(arguments.scale)], env=environment, capture_output=True, text=True, check=False)
        if filled.returncode != 0:
            raise Failed(f"pgbench fills no tables: {filled.stderr}")
        with open(f"{directory}/bench.out", "wb") as said:
            bench = subprocess.Popen(
                ["pgbench", "-n", "-M", arguments.mode, "-c", str(CLIENTS), "-j", "2", "-T", "86400", "-l", f"--log-prefix={directory}/bench"],
                env=environment, stdout=said, stderr=said)
        until("pgbench writes", lambda: any(log.stat().st_size for log in Path(directory).glob("bench.[0-9]*")))
        spans, refused = orders(cluster, arguments.rounds, random.Random(arguments.seed), bench)
        # As at the end of its time: what is under way comes to its end, and the log is written out.
        bench.send_signal(signal.SIGALRM)
        if bench.wait(PATIENCE) != 0:
            raise Failed("a client of pgbench has failed, see bench.out")
        return judge(spans, refused, *transactions(directory))
    finally:
        if bench:
            bench.kill()
        cluster.end()


def main():
    options = argparse.ArgumentParser(description="Switch-overs under pgbench with 32 clients that are routed.")
    options.add_argument("--rounds", type=int, default=20, help="how many switch-overs; default: 20")
    options.add_argument("--seed", type=int, default=42, help="of their moments; default: 42")
    options.add_argument("--scale", type=int, default=CLIENTS, help="pgbench's scale; default: one branch for each client")
    options.add_argument("--mode", default="simple", choices=["simple", "extended", "prepared"], help="pgbench's protocol")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshet-switch-over-") as directory:
        try:
            good = run(arguments, directory)
        except Failed as failed:
            print(f"FAILED: {failed}")
            for said in ["bench.out", "n1.err", "n2.err", "n3.err"]:
                messages = Path(directory, said)
                print(f"== {said}\n{messages.read_text()[-3000:] if messages.exists() else ''}")
            good = False
    sys.exit(0 if good else 1)


main()
