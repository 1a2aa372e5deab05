"""Plots as SVG, of the two kinds that the page needs: bars in groups, and curves."""
import math
from xml.sax.saxutils import escape

COLORS = ["#1f6fb4", "#d9672b", "#3a9c50", "#9a60b4", "#c9a227", "#5f6b75", "#b4316b", "#49b4b0", "#7a4b2a",
          "#8fa8c8"]
FONT = 'font-family="sans-serif" font-size="12"'
INK = "#222222"
FAINT = "#dddddd"


class Svg:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def text(self, x, y, text, anchor="start", size=12, color=INK):
        self.parts.append('<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="%s">%s</text>' % (
            x, y, anchor, size, color, escape(text)))

    def rect(self, x, y, width, height, color):
        self.parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>' % (
            x, y, max(width, 0.5), height, color))

    def line(self, points, color, width=1.0, dash=""):
        self.parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/>' % (
            " ".join("%.1f,%.1f" % point for point in points), color, width,
            ' stroke-dasharray="%s"' % dash if dash else ""))

    def dot(self, x, y, color):
        self.parts.append('<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x, y, color))

    def save(self, path):
        with open(path, "w") as file:
            file.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" %s>\n'
                       '<rect width="100%%" height="100%%" fill="#ffffff"/>\n%s\n</svg>\n' % (
                           self.width, self.height, self.width, self.height, FONT,
                           "\n".join(self.parts)))


def short(value):
    """Three digits, with k, M, G for what is large."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return "%.3g%s" % (value / limit, unit)
    return "%.3g" % value


class Scale:
    """Values to places along an axis."""

    def __init__(self, values, begin, end, log):
        values = [value for value in values if value is not None and (value > 0 or not log)] or [1.0]
        self.begin, self.end, self.log = begin, end, log
        if log:
            self.low = 10.0 ** math.floor(math.log10(min(values)) + 1e-9)
            self.high = max(10.0 ** math.ceil(math.log10(max(values)) - 1e-9), 10 * self.low)
        else:
            self.low = min(0.0, *values, 0.0)
            step = self.step_for(max(values) - self.low)
            self.high = self.low + step * math.ceil((max(values) - self.low) / step + 1e-9)

    @staticmethod
    def step_for(width):
        step = 10 ** math.floor(math.log10(width / 5 or 1)) if width > 0 else 1.0
        return next(step * k for k in (1, 2, 5, 10) if step * k * 6 >= width)

    def at(self, value):
        if self.log:
            part = (math.log10(max(value, self.low)) - math.log10(self.low)) / \
                max(math.log10(self.high / self.low), 1e-9)
        else:
            part = (value - self.low) / max(self.high - self.low, 1e-9)
        return self.begin + part * (self.end - self.begin)

    def ticks(self):
        if self.log:
            decades = round(math.log10(self.high / self.low))
            return [self.low * 10 ** i for i in range(decades + 1)]
        step = self.step_for(self.high - self.low)
        return [self.low + step * i for i in range(int((self.high - self.low) / step + 1.5))
                if self.low + step * i <= self.high * (1 + 1e-9)]


def legend(svg, names, x, y):
    for i, name in enumerate(names):
        svg.rect(x, y + 18 * i - 9, 10, 10, COLORS[i % len(COLORS)])
        svg.text(x + 16, y + 18 * i, name)


def bars(path, title, unit, groups, log=False):
    """groups: (label, {series: value}); horizontal, a colour for each series."""
    names = list(dict.fromkeys(name for _, values in groups for name in values))
    left = 24 + 7 * max((len(label) for label, _ in groups), default=0)
    right = 60
    height = 60 + sum(16 * len(values) + 12 for _, values in groups) + 30
    named = len(names) > 1
    width = 860
    plot_right = width - right - (40 + 7 * max(map(len, names)) if named else 0)
    svg = Svg(width, max(height, 90 + 18 * len(names) if named else 0))
    svg.text(10, 22, "%s (%s%s)" % (title, unit, ", log scale" if log else ""), size=15)
    all_values = [value for _, values in groups for value in values.values()]
    # A logarithmic bar begins somewhere: below the smallest, so that it can be seen.
    begin = [min(value for value in all_values if value > 0) / 2] if log else []
    scale = Scale(all_values + begin, left, plot_right, log)
    for tick in scale.ticks():
        svg.line([(scale.at(tick), 40), (scale.at(tick), height - 30)], FAINT)
        svg.text(scale.at(tick), height - 14, short(tick), "middle", 11)
    y = 48
    for label, values in groups:
        svg.text(left - 8, y + 8 * len(values) + 4, label, "end")
        for name, value in values.items():
            color = COLORS[names.index(name) % len(COLORS)]
            svg.rect(left, y, scale.at(value) - left, 13, color)
            svg.text(scale.at(value) + 4, y + 11, short(value), size=11)
            y += 16
        y += 12
    if named:
        legend(svg, names, plot_right + 56, 56)
    svg.save(path)


def curves(path, title, x_title, y_title, series, log_x=False, log_y=False, labels=None):
    """series: {name: [(x, y)]}. labels: what stands at x = 0, 1, 2, ... instead of numbers."""
    width, height, top, bottom, left = 860, 420, 44, 370, 80
    right = width - 60 - 7 * max((len(name) for name in series), default=0)
    svg = Svg(width, max(height, 60 + 18 * len(series)))
    svg.text(10, 22, title, size=15)
    points = [point for line in series.values() for point in line]
    xs = Scale([x for x, _ in points], left, right, log_x)
    ys = Scale([y for _, y in points], bottom, top, log_y)
    if labels is not None:
        xs.low, xs.high, xs.log = 0.0, max(len(labels) - 1, 1), False
    for tick in ys.ticks():
        svg.line([(left, ys.at(tick)), (right, ys.at(tick))], FAINT)
        svg.text(left - 6, ys.at(tick) + 4, short(tick), "end", 11)
    for tick, label in enumerate(labels) if labels is not None else ((x, short(x)) for x in xs.ticks()):
        svg.line([(xs.at(tick), top), (xs.at(tick), bottom)], FAINT)
        svg.text(xs.at(tick), bottom + 16, label, "middle", 11)
    svg.text((left + right) / 2, bottom + 36, x_title, "middle")
    svg.text(left, top - 8, y_title + (" (log scale)" if log_y else ""), "start", 11)
    for i, line in enumerate(series.values()):
        color = COLORS[i % len(COLORS)]
        svg.line([(xs.at(x), ys.at(y)) for x, y in line], color, 2.0, "" if i < len(COLORS) else "5,3")
        for x, y in line:
            svg.dot(xs.at(x), ys.at(y), color)
    legend(svg, list(series), right + 20, 56)
    svg.save(path)
