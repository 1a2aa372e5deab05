"""A strict reader of OpenMetrics 1.0 text, for tests: whatever is not exactly in the format is an error."""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'(%s)="((?:[^"\\\n]|\\[\\"n])*)"' % NAME.replace(":", ""))
SAMPLE = re.compile(r"(%s)(?:\{(.*)\})? (\S+)" % NAME)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]Inf|NaN")
SUFFIXES = {"counter": ["_total"], "gauge": [""], "stateset": [""], "info": ["_info"],
            "histogram": ["_bucket", "_count", "_sum"]}


class Metrics:
    """types[family], units[family], help[family]; samples[(name, labels as a sorted tuple)] = number."""

    def __init__(self, text):
        self.types, self.units, self.help, self.samples = {}, {}, {}, {}
        self.family = None
        assert text.endswith("# EOF\n"), "no end: ..." + repr(text[-80:])
        lines = text.split("\n")[:-2]
        for line in lines:
            self.meta(line) if line.startswith("#") else self.sample(line)
        for family, kind in self.types.items():
            if kind == "histogram":
                self.check_histogram(family)

    def meta(self, line):
        keyword, family, rest = re.fullmatch(r"# (TYPE|UNIT|HELP) (%s) (.+)" % NAME, line).groups()
        if keyword == "TYPE":
            assert family not in self.types, "twice: " + line
            assert rest in SUFFIXES, line
            self.types[family] = rest
            self.family = family
            return
        assert family == self.family, "not of the family before: " + line
        kept = self.units if keyword == "UNIT" else self.help
        assert family not in kept, "twice: " + line
        kept[family] = rest
        if keyword == "UNIT":
            assert family.endswith("_" + rest), line
        assert not re.search(r'(?<!\\)\\(?![\\n"])', rest), line

    def sample(self, line):
        name, labels, number = SAMPLE.fullmatch(line).groups()
        kind = self.types[self.family]
        suffixes = [s for s in SUFFIXES[kind] if name == self.family + s]
        assert suffixes, "%s is no sample of %s %s" % (name, kind, self.family)
        found = []
        at = 0
        while labels is not None and at < len(labels):
            pair = LABEL.match(labels, at)
            assert pair, line
            found.append((pair[1], re.sub(r'\\(.)', lambda m: "\n" if m[1] == "n" else m[1], pair[2])))
            at = pair.end()
            assert at == len(labels) or labels[at] == ",", line
            at += 1
        assert len({key for key, _ in found}) == len(found), "label twice: " + line
        assert NUMBER.fullmatch(number), line
        value = float(number)
        if kind in ("counter", "histogram"):
            assert value >= 0, line
        if kind in ("stateset", "info"):
            assert value in (0, 1), line
        if suffixes == ["_bucket"]:
            edge = dict(found)["le"]
            assert edge == "+Inf" or repr(float(edge)) == edge, "no canonical float: " + line
        key = (name, tuple(sorted(found)))
        assert key not in self.samples, "twice: " + line
        self.samples[key] = value

    def check_histogram(self, family):
        buckets = [(float(dict(labels)["le"]), value) for (name, labels), value in self.samples.items()
                   if name == family + "_bucket"]
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), family
        counts = [value for _, value in buckets]
        assert counts == sorted(counts) and counts[-1] == self[family + "_count"], family

    def __getitem__(self, name):
        return self.samples[(name, ())]

    def get(self, name, **labels):
        """Of the samples with these labels, and perhaps others: their sum."""
        found = [value for (other, has), value in self.samples.items()
                 if other == name and set(labels.items()) <= set(has)]
        assert found, "no %s %s" % (name, labels)
        return sum(found)
