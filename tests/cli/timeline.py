"""A file of --trace: valid JSON, tracks with names, events that nest, spans that agree with the statistics, the plan's tiles.

    timeline.py TRACE.json STATS.json KERNELS

STATS.json is what the run has printed with --json, KERNELS how many kernels it was given. Prints what is wrong, and nothing else.
"""
import json
import sys


def spans_union(spans):
    total, end = 0.0, 0.0
    for begin, stop in sorted(spans):
        if stop > end:
            total += stop - max(begin, end)
            end = stop
    return total


def check(trace, stats, kernels):
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    whole = [e for e in events if e["ph"] == "X"]
    yield len(whole) + sum(e["ph"] == "M" for e in events) == len(events), "only X and M events"
    yield sum(e["name"] == "process_name" for e in events) == 1, "one process"
    yield names.get(1) == "host", "a track for the host"
    yield all(e["pid"] == 1 and e["tid"] in names for e in whole), "tracks have names"
    yield all(e["ts"] >= 0 and e["dur"] >= 0 for e in whole), "times from 0 on"

    last = {}
    for event in sorted(whole, key=lambda e: (e["ts"], -e["dur"])):
        end = event["ts"] + event["dur"]
        stack = [stop for stop in last.get(event["tid"], []) if stop > event["ts"] + 0.0015]  # three digits are written
        yield not stack or end <= stack[-1] + 0.0015, "events of a track cross at %s" % event["ts"]
        last[event["tid"]] = stack + [end]

    batches = [e for e in whole if e["cat"] == "kernel"]
    host = [e for e in whole if e["cat"] == "host"]
    yield {e["name"] for e in host} <= {"encode", "decode", "merge"} and all(e["tid"] == 1 for e in host), "stages of the host"
    yield len({e["args"]["wave"] for e in host}) * 3 == len(host), "three stages of each wave"
    yield sorted(e["args"]["batch"] for e in batches) == list(range(stats["batches"])), "batches by number"
    yield len({names[e["tid"]].split(" (")[0] for e in batches}) <= kernels, "a track for each kernel"
    calls = stats["calls"] + stats["repair_calls"]
    yield sum(e["args"]["calls"] for e in batches) == calls, "all calls"

    tiles = [tile for e in batches for tile in e["args"]["tiles"]]
    yield all(len(e["args"]["tiles"]) >= e["args"]["calls"] for e in batches), "each call has a tile"
    yield sorted({tile["call"] for tile in tiles}) == list(range(calls)), "tiles tell their calls"
    seen = {}
    for tile in tiles:
        if tile["call"] < stats["calls"]:
            seen[tile["sequence"], tile["head"], tuple(tile["rows"]), tuple(tile["keys"]), tile["slot"]] = 1
    yield len(seen) == stats["tiles"] - stats["host_tiles"], "%d tiles, %d planned" % (len(seen), stats["tiles"])

    union = spans_union([(e["ts"], e["ts"] + e["dur"]) for e in batches]) * 1e-6
    room = 1e-3 + 0.02 * stats["oracle_s"]
    yield abs(union - stats["oracle_s"]) <= room, "batches take %s s, oracle_s is %s" % (union, stats["oracle_s"])
    yield max(e["ts"] + e["dur"] for e in whole) * 1e-6 <= stats["wall_s"] + 2e-6, "nothing after the end"


def main():
    with open(sys.argv[1]) as file:
        trace = json.load(file)
    with open(sys.argv[2]) as file:
        stats = json.load(file)
    for good, what in check(trace, stats, int(sys.argv[3])):
        if not good:
            print(what)


main()
