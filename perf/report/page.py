#!/usr/bin/env python3
"""Makes the page, README.md and plots/*.svg, from what the benchmarks wrote: perf/report/page.py [DIR]"""
import glob
import json
import os
import re
import shutil
import statistics
import sys

import plot

# figure -> (heading, scale)
FIGURES = {
    "ns": ("ns", 1), "cpu_ns": ("CPU ns", 1), "given_ns": ("ns a row given", 1), "rows_per_s": ("M rows/s", 1e-6),
    "cpu": ("CPU s / M rows", 1), "producer_cpu": ("producer", 1), "sidecar_cpu": ("sidecar", 1),
    "sink_cpu": ("sink", 1), "wire_bytes": ("B/row on the wire", 1), "rows_a_message": ("rows a message", 1),
    "p50": ("p50 µs", 1e-3), "p90": ("p90 µs", 1e-3), "p99": ("p99 µs", 1e-3), "p999": ("p99.9 µs", 1e-3),
    "max": ("most µs", 1e-3), "busy": ("% of a core", 100), "core": ("% of a core", 100),
    "switches": ("switches/s", 1), "rate": ("rows/s given", 1), "producer_ns": ("producer ns/row", 1),
    "sidecar_ns": ("sidecar ns/row", 1), "sink_ns": ("sink ns/row", 1), "feed_ns": ("feed ns/row", 1),
    "file_bytes": ("B/row in the file", 1), "gb_per_s": ("GB/s", 1), "ns_per_byte": ("CPU ns/byte", 1),
    "publish_p50": ("publish p50 µs", 1e-3), "publish_p99": ("publish p99 µs", 1e-3),
    "fill_per_s": ("filling, M rows/s", 1e-6), "first_quarter": ("first quarter, M rows/s", 1e-6),
    "last_quarter": ("last quarter, M rows/s", 1e-6), "first_s": ("s to the first message", 1),
    "gib": ("GiB", 1), "bursts": ("bursts counted", 1), "ring": ("ring µs", 1e-3), "wake": ("wake µs", 1e-3),
    "own": ("own µs", 1e-3), "send": ("send µs", 1e-3), "receive": ("receive µs", 1e-3),
}
HIDDEN = {"count", "bytes", "rows", "way", "slow"}
QUANTILES = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"), ("max", "most")]


# ---- what was measured ----

class Part:
    """Cases of one program that were measured in turn."""

    def __init__(self, title, cases, failed):
        self.title, self.cases, self.failed = title, cases, failed

    def median(self, case, figure):
        values = [run[figure] for run in self.runs(case) if isinstance(run.get(figure), (int, float))]
        return statistics.median(values) if values else None

    def runs(self, case):
        """Those that ended with the cores at full speed, if there are any."""
        runs = self.cases.get(case, {}).get("runs", [])
        return [run for run in runs if not run.get("slow")] or runs

    def span(self, case, figure):
        values = [run[figure] for run in self.runs(case) if isinstance(run.get(figure), (int, float))]
        return (min(values), max(values)) if values else None

    def figures(self):
        found = dict.fromkeys(key for case in self.cases.values() for run in case["runs"] for key in run)
        return [key for key in found if key not in HIDDEN]

    def dims(self, case):
        return self.cases[case].get("dims", {})


def from_flat(data):
    """The form that programs in C write: a list of figures."""
    parts = {}
    for each in data["figures"]:
        part = parts.setdefault(each["part"], Part(each["part"], {}, {}))
        case = part.cases.setdefault(each["case"], {"base": each.get("base"), "runs": [], "dims": {}})
        for i, value in enumerate(each["values"]):
            if len(case["runs"]) <= i:
                case["runs"].append({})
            case["runs"][i][each["figure"]] = value
    return parts


def load(directory):
    """program -> part -> Part, and the text of what cannot be read."""
    programs, broken = {}, {}
    for path in sorted(glob.glob(os.path.join(directory, "results", "*.json"))):
        name = os.path.basename(path).removesuffix(".json")
        if name == "run":
            continue
        try:
            with open(path) as file:
                data = json.load(file)
            programs[name] = from_flat(data) if "figures" in data else {
                key: Part(part["title"], part["cases"], part["failed"])
                for key, part in data["parts"].items()}
        except (ValueError, KeyError) as error:
            broken[name] = "its results cannot be read: %s" % error
    return programs, broken


# ---- tables ----

def number(value):
    if value is None:
        return ""
    if value == 0:
        return "0"
    return "%.3g" % value if abs(value) < 1000 else "{:,.0f}".format(value)


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---"] + ["---:"] * (len(heads) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def part_table(part):
    """Medians of every figure; for the first one the span, and the ratio to the case's base."""
    figures = part.figures()
    if not figures:
        return ""
    first = figures[0]
    heads = ["case", FIGURES.get(first, (first, 1))[0], "least - most", "x base"] + \
        [FIGURES.get(figure, (figure, 1))[0] for figure in figures[1:]]
    rows = []
    for name, case in part.cases.items():
        middle = part.median(name, first)
        if middle is None:
            continue
        scale = FIGURES.get(first, ("", 1))[1]
        low, high = part.span(name, first)
        base = part.median(case.get("base"), first) if case.get("base") != name else None
        rows.append([name, number(middle * scale), "%s - %s" % (number(low * scale), number(high * scale)),
                     "%.2f" % (middle / base) if base else ""] +
                    [number(None if part.median(name, figure) is None else
                            part.median(name, figure) * FIGURES.get(figure, ("", 1))[1])
                     for figure in figures[1:]])
    return table(heads, rows)


def details(part):
    failed = "".join("\n**Failed: %s.** %s\n" % (name, " ".join(why.split())[:300])
                     for name, why in part.failed.items())
    runs = [run for case in part.cases.values() for run in case["runs"]]
    slow = sum(bool(run.get("slow")) for run in runs)
    shared = "" if slow == 0 else "\nCores shared with a neighbour at the end of %d of %d runs, which count " \
        "where a case has no others.\n" % (slow, len(runs))
    return "\n%s<details><summary>%s</summary>\n\n%s%s\n</details>\n" % (
        failed, part.title, part_table(part), shared)


# ---- the page ----

class Page:
    def __init__(self, directory, programs):
        self.directory, self.programs, self.text = directory, programs, []

    def part(self, program, part):
        return self.programs.get(program, {}).get(part) or Part("", {}, {})

    def median(self, program, part, case, figure):
        return self.part(program, part).median(case, figure)

    def add(self, text):
        self.text.append(text)

    def image(self, name, caption):
        self.add("![%s](plots/%s.svg)\n" % (caption, name))

    def path(self, name):
        return os.path.join(self.directory, "plots", name + ".svg")

    def bars(self, name, title, unit, groups, log=False):
        groups = [(label, {key: value for key, value in values.items() if value is not None})
                  for label, values in groups]
        groups = [group for group in groups if group[1]]
        if groups:
            plot.bars(self.path(name), title, unit, groups, log)
            self.image(name, title)

    def curves(self, name, title, x_title, y_title, series, **how):
        series = {key: [point for point in line if point[1] is not None] for key, line in series.items()}
        series = {key: line for key, line in series.items() if line}
        if series:
            plot.curves(self.path(name), title, x_title, y_title, series, **how)
            self.image(name, title)


def goals(page):
    """(what, goal, found, met) of each goal."""
    e2e = lambda part, case, figure: page.median("bench_e2e", part, case, figure)
    latency = lambda case, figure: page.median("bench_latency", "arrival", case, figure)
    peers = lambda case, figure: page.median("compare", "rows", case, figure)

    def beyond(case, base, figure):
        ours, bare = latency(case, figure), latency(base, figure)
        return None if ours is None or bare is None else (ours - bare) / 1e3

    def ratio(a, b):
        return a / b if a is not None and b else None

    tsbs = lambda figure: page.median("bench_tsbs", "tsbs", "load tsbs-cpu-only.qwpb, 1 process", figure)
    one, chunks = "ws memory 1 x trade hot", "ws memory 1 x trade chunks of 10000"
    idle = [page.median("bench_latency", "idle", "ws, 1 producers", figure) for figure in ("core", "switches")]
    scaled = lambda value, factor: None if value is None else value * factor
    return [
        ("publish each row, 6 columns, ns", "<=", 20, e2e("producer", "trade, hot, by 1, 1 tables", "ns")),
        ("  times cheaper than the Rust client", ">=", 30,
         ratio(peers("each row, 1 table: rust", "given_ns"), peers("each row, 1 table: ours", "given_ns"))),
        ("  100 tables in turn, ns", "<=", 25, e2e("producer", "trade, hot, by 1, 100 tables", "ns")),
        ("  21-column TSBS row, ns", "<=", 60, e2e("producer", "tsbs, hot, by 1, 1 tables", "ns")),
        ("publish by 1,000, ns a row", "<=", 15, e2e("producer", "trade, hot, by 1000, 1 tables", "ns")),
        ("end to end, row API, M rows/s", ">=", 15, scaled(e2e("throughput", one, "rows_per_s"), 1e-6)),
        ("  CPU s per million rows, producer and sidecar", "<=", 0.06, e2e("throughput", one, "cpu")),
        ("columnar chunks, M rows/s", ">=", 40, scaled(e2e("throughput", chunks, "rows_per_s"), 1e-6)),
        ("  CPU s per million rows", "<=", 0.03, e2e("throughput", chunks, "cpu")),
        ("sidecar CPU per TSBS row, ns", "<=", 75, tsbs("sidecar_ns")),
        ("arrival at 1,000/s, park: p50 beyond the bare chain, µs", "<=", 5,
         beyond("1000/s ws park", "1000/s bare chain", "p50")),
        ("  p99 beyond it, µs", "<=", 20, beyond("1000/s ws park", "1000/s bare chain", "p99")),
        ("  % of a core", "<=", 6, scaled(latency("1000/s ws park", "busy"), 100)),
        ("  spin: p50 beyond the bare spinning chain, µs", "<=", 5,
         beyond("1000/s ws spin", "1000/s bare spin", "p50")),
        ("arrival at 10,000/s, park: p50 beyond the bare chain, µs", "<=", 5,
         beyond("10000/s ws park", "10000/s bare chain", "p50")),
        ("  % of a core", "<=", 20, scaled(latency("10000/s ws park", "busy"), 100)),
        ("idle, % of a core", "<=", 0, scaled(idle[0], 100)),
        ("  context switches a second", "<=", 0, idle[1]),
        ("bytes on the wire, TSBS cpu-only row", "<=", 25, tsbs("wire_bytes")),
        ("  trade in frames of 1,000", "<=", 24, e2e("wire", "trade, frames of 1000", "wire_bytes")),
        ("  trade in a frame of its own", "<=", 100, e2e("wire", "trade, frames of 1", "wire_bytes")),
        ("TLS over plain, row API", ">=", 0.8,
         ratio(e2e("throughput", "wss memory 1 x trade hot", "rows_per_s"), e2e("throughput", one, "rows_per_s"))),
    ]


def goal_table(page):
    rows = []
    for what, sense, goal, found in goals(page):
        met = "" if found is None else "yes" if (found <= goal if sense == "<=" else found >= goal) else "no"
        rows.append(["&nbsp;&nbsp;" + what.strip() if what.startswith(" ") else what,
                     "%s %s" % ("≤" if sense == "<=" else "≥", number(goal)),
                     "not measured" if found is None else number(found), met])
    return table(["", "goal", "found", "reached"], rows)


def head(page, about, broken):
    host = about.get("host", {})
    page.add("# Benchmarks\n\nMade by `%s`: %s, %s cpus, %s GiB, %s; %s.\n" % (
        about.get("command", "perf/report/run"), host.get("cpu"), host.get("cpus"), host.get("memory_gib"),
        host.get("kernel"), host.get("compiler")))
    page.add("Everything runs on this one machine: producers, sidecar and a server that decodes and counts "
             "(`qwp-sink`). Figures are medians of runs that took turns with their baselines; the tables "
             "below each plot have the span and the ratio. Bars and curves are to be compared with each "
             "other, not with another machine's.\n")
    failed = {name: step["why"] for name, step in about.get("steps", {}).items() if step["why"]}
    failed.update(broken)
    for name, why in failed.items():
        page.add("**%s is not whole: %s.**\n" % (name, why))
    page.add("## Goals\n\n" + goal_table(page))
    page.add("## What was run\n\n" + table(["command", "commit", "begun", "seconds"], [
        ["`%s`" % step["command"], step["commit"], step["date"], str(step["seconds"])]
        for step in about.get("steps", {}).values()]))


# ---- sections, each of one program's results ----

def section_compare(page):
    rows = page.part("compare", "rows")
    by_case = {}
    for name in rows.cases:
        by_case.setdefault(rows.dims(name)["case"], {})[rows.dims(name)["client"]] = name
    page.add("## Beside the released clients\n\nThe same trade rows into the same server.\n")
    for figure, title, unit, log in (("given_ns", "Cost of a row for the thread that writes", "ns", True),
                                     ("rows_per_s", "End to end, to the last acknowledgement", "M rows/s", False),
                                     ("cpu", "CPU, all of the client", "s per million rows", True),
                                     ("wire_bytes", "On the wire", "bytes a row", True)):
        scale = FIGURES[figure][1]
        page.bars("compare-" + figure, title, unit, [
            (case, {client: None if rows.median(name, figure) is None else rows.median(name, figure) * scale
                    for client, name in clients.items()}) for case, clients in by_case.items()], log)
    page.add(details(rows))
    arrival = page.part("compare", "arrival")
    latency_plots(page, arrival, "compare-arrival", "Single rows, publish or flush to arrival",
                  lambda name: arrival.dims(name).get("client", "bare chain"))
    page.add(details(arrival))
    idle = page.part("compare", "idle")
    page.bars("compare-idle", "Connected, nothing to do", "% of a core", [
        (name, {"": (idle.median(name, "core") or 0) * 100}) for name in idle.cases])
    page.add(details(idle))


def latency_plots(page, part, name, title, label):
    for rate in dict.fromkeys(part.dims(case).get("rate") for case in part.cases):
        series = {}
        for case in part.cases:
            if part.dims(case).get("rate") == rate:
                series[label(case)] = [(i, None if part.median(case, figure) is None else
                                        part.median(case, figure) / 1e3)
                                       for i, (figure, _) in enumerate(QUANTILES)]
        what = "one at a time" if rate == 0 else "%s rows/s" % "{:,}".format(rate)
        page.curves("%s-%s" % (name, rate), "%s, %s" % (title, what), "quantile", "µs", series, log_y=True,
                    labels=[text for _, text in QUANTILES])


def section_producer(page):
    part = page.part("bench_e2e", "producer")
    page.add("## What a row costs its producer\n\nWith a sidecar running, bursts that fit the ring.\n")
    groups = {}
    for name in part.cases:
        dims = part.dims(name)
        if "row" in dims:
            label = "%s, %s, by %d" % (dims["row"], dims["way"], dims["unit"])
            groups.setdefault(label, {})["%d table%s" % (dims["tables"], "s"[:dims["tables"] > 1])] = \
                part.median(name, "ns")
        else:
            groups[name] = {"1 table": part.median(name, "ns")}
    page.bars("producer", "A row's cost for its producer", "ns", list(groups.items()))
    page.add(details(part))
    for name, part in page.programs.get("bench_producer", {}).items():
        page.add(details(Part("the library alone, warm ring of 1 MiB, " + name, part.cases, part.failed)))


def section_throughput(page):
    part = page.part("bench_e2e", "throughput")
    page.add("## From end to end\n")
    series = {}
    for name in part.cases:
        dims = part.dims(name)
        if dims.get("row") == "trade" and dims.get("way") == "hot":
            rate = part.median(name, "rows_per_s")
            series.setdefault("%s, store %s" % (dims["scheme"], dims["store"]), []).append(
                (dims["producers"], rate and rate / 1e6))
    page.curves("saturation", "Trade rows, row API, any number of producers", "producers", "M rows/s", series,
                log_x=True)
    others = {}
    for name in part.cases:
        dims = part.dims(name)
        if "row" not in dims or (dims["producers"] == 1 and dims["store"] == "memory"):
            label = "ceiling: encoded beforehand" if "row" not in dims else "%s %s" % (dims["row"], dims["way"])
            others.setdefault(label, {})[dims["scheme"]] = (part.median(name, "rows_per_s") or 0) / 1e6
    page.bars("throughput", "One producer, store in memory", "M rows/s", list(others.items()))
    page.bars("cpu", "CPU, one producer over ws", "s per million rows", [
        ("%(row)s %(way)s" % part.dims(name), {"producer": part.median(name, "producer_cpu"),
                                               "sidecar": part.median(name, "sidecar_cpu"),
                                               "server": part.median(name, "sink_cpu")})
        for name in part.cases if part.dims(name).get("producers") == 1 and
        part.dims(name)["store"] == "memory" and part.dims(name)["scheme"] == "ws"])
    page.add(details(part))
    wire = page.part("bench_e2e", "wire")
    page.bars("wire", "On the wire, symbols and tables known", "bytes a row", [
        ("%s, %s" % (wire.dims(name)["row"], "frames of %d" % wire.dims(name)["unit"]
                     if wire.dims(name)["unit"] else "as they come"),
         {"compact": wire.median(name, "wire_bytes"),
          "as declared": wire.median(wire.cases[name]["base"], "wire_bytes")})
        for name in wire.cases if wire.dims(name)["compact"] == "on"])
    page.add(details(wire))


def section_latency(page):
    page.add("## How long a row is on its way\n")
    for key, title in (("arrival", "Publish to arrival"), ("ack", "Publish to acknowledgement")):
        part = page.part("bench_latency", key)
        latency_plots(page, part, key, title, lambda name, part=part: (
            "bare " if part.dims(name).get("bare") else "") + str(part.dims(name).get("way")))
        page.add(details(part))
    page.add(details(page.part("bench_latency", "idle")))
    page.add(details(page.part("bench_bell", "bell")))
    page.add(details(page.part("bench_stages", "stages")))


def section_tsbs(page):
    part = page.part("bench_tsbs", "tsbs")
    page.add("## TSBS\n\nload: client and transport together; preencode: sending alone; parse: reading alone.\n")
    groups = {}
    for name in part.cases:
        dims = part.dims(name)
        if dims.get("store") == "memory":
            rate = part.median(name, "rows_per_s")
            groups.setdefault("%s, %d" % (dims["file"], dims["processes"]), {})[dims["what"]] = rate and rate / 1e6
    page.bars("tsbs", "TSBS data by format and processes", "M rows/s", list(groups.items()))
    page.add(details(part))
    page.add(details(page.part("bench_feed", "reading a row")))


def section_growth(page):
    page.add("## As things grow\n\nRates over that of the smallest of the same run; 1 is: no slower.\n")
    for key in ("tables", "symbols", "producers", "backlog"):
        part = page.part("bench_growth", key)
        series = {}
        for name, case in part.cases.items():
            base = part.median(case["base"], "rows_per_s")
            rate = part.median(name, "rows_per_s")
            label = "in generations" if part.dims(name).get("generations") else \
                "1 of them writes" if part.dims(name).get("idle") else key
            if base and rate:
                series.setdefault(label, []).append((part.dims(name)["size"], rate / base))
        x_title = "GiB" if key == "backlog" else key
        page.curves("growth-" + key, {"backlog": "Draining a backlog"}.get(key, "Growing " + key), x_title,
                    "rate over the smallest's", series, log_x=True)
        page.add(details(part))


def section_limits(page):
    """How far what the sidecar spends on a row is from what the machine needs for its bytes."""
    part = page.part("bench_limits", "limits")
    page.add("## How far from what the machine allows\n\nCPU of the sidecar for a row, beside what the same "
             "bytes cost in one copy from and to memory, in AES-GCM and in a loopback send.\n")
    per_byte = {name: part.median(name, "ns_per_byte") for name in part.cases}
    throughput = page.part("bench_e2e", "throughput")
    rows = []
    for name in throughput.cases:
        dims = throughput.dims(name)
        if dims.get("producers") != 1 or dims["store"] != "memory" or not all(per_byte.values()) or not per_byte:
            continue
        wire, cpu = throughput.median(name, "wire_bytes"), throughput.median(name, "sidecar_cpu")
        if wire is None or cpu is None:
            continue
        tls = dims["scheme"] == "wss"
        parts = [wire * per_byte["copy from and to memory"],
                 wire * per_byte["AES-128-GCM"] if tls else 0.0, wire * per_byte["loopback send"]]
        rows.append([name, number(1e3 * cpu), *map(number, parts), "%.1f" % (1e3 * cpu / sum(parts))])
    if rows:
        page.add(table(["", "sidecar ns/row", "copy", "AES-GCM", "send", "times their sum"], rows))
    page.add(details(part))


def section_parts(page):
    page.add("## The parts\n")
    warm, cold = page.part("bench_encode", "encode, warm"), page.part("bench_encode", "encode, cold")
    page.bars("encode", "Encoding a row, by type and width", "ns", [
        (name, {"warm": warm.median(name, "ns"), "cold": cold.median(name, "ns")})
        for name, case in warm.cases.items() if case["base"] is not None])
    for program in ("bench_encode", "bench_chunk", "bench_store", "bench_session"):
        for part in page.programs.get(program, {}).values():
            page.add(details(Part("%s: %s" % (program, part.title), part.cases, part.failed)))


SECTIONS = (section_compare, section_producer, section_throughput, section_latency, section_tsbs,
            section_growth, section_limits, section_parts)


def make(directory):
    """Writes the page; a section that cannot be made is named in it."""
    programs, broken = load(directory)
    about = {}
    if os.path.exists(os.path.join(directory, "results", "run.json")):
        with open(os.path.join(directory, "results", "run.json")) as file:
            about = json.load(file)
    shutil.rmtree(os.path.join(directory, "plots"), ignore_errors=True)
    os.makedirs(os.path.join(directory, "plots"))
    page = Page(directory, programs)
    head(page, about, broken)
    for section in SECTIONS:
        try:
            section(page)
        except Exception as error:  # results of a part that was cut off
            page.add("\n**%s cannot be shown: %s: %s.**\n" % (section.__name__, type(error).__name__, error))
    # An empty table of a part that was not run tells nothing.
    text = re.sub(r"\n<details><summary>[^<]*</summary>\n\n\n</details>\n", "", "\n".join(page.text))
    with open(os.path.join(directory, "README.md"), "w") as file:
        file.write(text)


if __name__ == "__main__":
    make(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__)))
