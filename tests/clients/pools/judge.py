"""Judges what clients were told in a cluster whose primary changed."""

from collections import Counter, defaultdict
from dataclasses import dataclass

# No session may stay with a deposed primary for longer, in ns.
LONGEST = 10**9
# Answers after which the transaction may have been committed.
OPEN = {"40003", "lost", "silent"}


@dataclass(frozen=True, slots=True)
class Event:
    """What became of one transaction; see main.py. A port of 0, and a reign of 0, are not known."""

    pool: str
    session: str
    port: int
    number: int
    token: str
    stage: str
    said: str
    begun: int
    ended: int
    why: str

    @classmethod
    def parse(cls, line):
        pool, session, port, number, token, stage, said, begun, ended, why = line.rstrip("\n").split("\t")
        return cls(pool, session, 0 if port == "-" else int(port), int(number), token, stage, said, int(begun), int(ended), why)

    @property
    def routed(self):
        return "routed" in self.pool

    @property
    def reign(self):
        """The number with which a token begins: of about ten minutes of one primary's rule."""
        return 0 if self.token == "-" else int(self.token[:8], 16)

    @property
    def open(self):
        """Whether the client does not know what became of it."""
        return self.stage == "commit" and self.said in OPEN


def reigns(events):
    """For each reign the port of its node, and its first acknowledgement."""
    ports, first = {}, {}
    for event in events:
        if event.reign and not event.routed:
            ports[event.reign] = event.port
        if event.said == "ok":
            first[event.reign] = min(first.get(event.reign, event.ended), event.ended)
    return ports, first


def deposed(events):
    """When, for each reign, another node first acknowledged in a later one."""
    ports, first = reigns(events)
    later = lambda reign: [first[other] for other in first if other > reign and ports.get(other) != ports.get(reign)]
    return {reign: min(later(reign)) for reign in ports if later(reign)}


def stays(events, resumes):
    """For each pool, how long its sessions stayed with a deposed primary, and waited for a stopped one, at most.

    A session stays until the last answer that it has from the node. While the node was stopped it has none.
    """
    ends, ports = deposed(events), reigns(events)[0]
    stayed, silent, last = defaultdict(int), defaultdict(int), {}
    for event in sorted(events, key=lambda event: event.ended):
        # A session that is routed goes from node to node, so only what names its own reign counts.
        reign = event.reign or (0 if event.routed else last.get((event.pool, event.session), 0))
        last[event.pool, event.session] = reign
        end = ends.get(reign)
        if event.session == "-" or end is None or event.ended <= end:
            continue
        resumed = [at for port, at in resumes if port == ports[reign] and end < at <= event.ended]
        if event.said == "silent":
            silent[event.pool] = max(silent[event.pool], event.ended - end)
        else:
            silent[event.pool] = max([silent[event.pool], *(at - end for at in resumed)])
            stayed[event.pool] = max(stayed[event.pool], event.ended - max([end, *resumed]))
    return stayed, silent


class Judge:
    def __init__(self, documented, silence):
        self.documented, self.silence = documented, silence
        self.events, self.answers, self.outages, self.resumes, self.nodes = [], {}, {}, [], {}
        self.refused_orders = 0

    def resumed(self, port, at):
        """A node that was stopped goes on."""
        self.resumes.append((port, at))

    def holds(self, node, rows):
        """The rows that a node has in the end."""
        self.nodes[node] = Counter(rows)

    def wrong(self):
        """All that is not as it should be."""
        yield from self.wrong_rows()
        yield from self.wrong_answers()
        for pool, stayed in stays(self.events, self.resumes)[0].items():
            if stayed > LONGEST:
                yield f"a session of {pool} stayed with a deposed primary for {stayed / 1e6:.0f} ms"
        allowed = self.documented | {"ok", "lost", "silent", "none"}
        for said in sorted({event.said for event in self.events} - allowed):
            event = next(event for event in self.events if event.said == said)
            yield f"{said} is not among the errors that docs/operations.md names: {event.pool}, {event.stage}: {event.why}"

    def wrong_rows(self):
        """What was acknowledged is there, what was not committed is not, on all nodes, and nothing is there twice."""
        for node, rows in self.nodes.items():
            for event in self.events:
                wanted = {1} if event.said == "ok" else {0, 1} if event.open else {0}
                if rows[event.number] not in wanted:
                    yield f"{node} has row {event.number} {rows[event.number]} times: {event}"
            if rows != next(iter(self.nodes.values())):
                yield f"{node} has other rows than the first one"

    def wrong_answers(self):
        """What nodes said of open transactions is what the table says."""
        for event in self.events:
            if event.open:
                said = self.answers.get(event.token)
                there = all(rows[event.number] == 1 for rows in self.nodes.values())
                if said != ("committed" if there else "aborted"):
                    yield f"asked for {event.token}, the answer was {said}, and its row is {'' if there else 'not '}there"

    def says(self):
        """Prints what was found. True if nothing is wrong."""
        stayed, silent = stays(self.events, self.resumes)
        print(f"\n{'pool':22}{'committed':>10}{'stayed at most':>16}{'silence at most':>17}   outage p50 / max by fault, ms")
        for pool in sorted({event.pool for event in self.events}):
            committed = sum(event.pool == pool and event.said == "ok" for event in self.events)
            outages = []
            for (kind, of), times in sorted(self.outages.items()):
                if of == pool:
                    outages.append(f"{kind} {sorted(times)[(len(times) - 1) // 2]:.0f} / {max(times):.0f}")
            print(f"{pool:22}{committed:10}{stayed[pool] / 1e6:13.0f} ms{silent[pool] / 1e6:14.0f} ms   {', '.join(outages)}")
        print(f"\n{'pool':22}{'stage':8}{'error':8}{'count':>7}   for example")
        errors = Counter((event.pool, event.stage, event.said) for event in self.events if event.said != "ok")
        for (pool, stage, said), count in sorted(errors.items()):
            why = next(event.why for event in self.events if (event.pool, event.stage, event.said) == (pool, stage, said))
            print(f"{pool:22}{stage:8}{said:8}{count:7}   {why[:110]}")
        told = Counter(self.answers.values())
        print(f"\nopen outcomes that were asked for: {dict(told)}; switch-overs that left the role: {self.refused_orders}")
        wrong = list(self.wrong())
        for what in wrong[:40]:
            print(f"WRONG: {what}")
        return not wrong
