"""Medians of what a comparison has printed: lines of a script's name, a server, a rate and a latency."""
import statistics
import sys

runs = {}
for line in open(sys.argv[1]):
    *script, server, rate, latency = line.split()
    runs.setdefault(" ".join(script), {}).setdefault(server, []).append((float(rate), float(latency)))
print("\nmedians: script, rate of PostgreSQL and Freshet, ratio, p99 of both")
for script, by in runs.items():
    (p, pl), (f, fl) = ([statistics.median(c) for c in zip(*by[server])] for server in ("postgresql", "freshet"))
    print(f"{script} {p:.0f} {f:.0f} {f / p:.2f} {pl:g} {fl:g}")
