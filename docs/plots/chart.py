"""Line charts in panels, as SVG text: what the plots of the documentation need and no more.

Colours are classes of a style sheet that has a dark half; a picture brings its own background: it can be read anywhere."""

import math

STYLE = """
svg{font-family:Helvetica,Arial,sans-serif;font-size:12px}
.card{fill:#fff}.frame{fill:none;stroke:#8a8a8a}.grid{stroke:#e4e4e4}.band{fill:#e8f3ec}
text{fill:#2b2b2b}.soft{fill:#5a5a5a}.rule{stroke:#5a5a5a}
.c0{color:#0067b1}.c1{color:#cc5200}.c2{color:#12805c}.c3{color:#7a3fa8}
.line{fill:none;stroke:currentColor;stroke-width:2}.dash{stroke-dasharray:5 4;stroke-width:1.5}.dot{fill:currentColor}
@media(prefers-color-scheme:dark){
.card{fill:#16191d}.frame{stroke:#7d838a}.grid{stroke:#2c3137}.band{fill:#1c2f26}
text{fill:#e4e6e8}.soft{fill:#a9afb6}.rule{stroke:#a9afb6}
.c0{color:#5eb1f0}.c1{color:#ff9a52}.c2{color:#4cc79a}.c3{color:#c396ec}}
"""


def number(value):
    """A tick's text."""
    return f"{value:g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.0e}".replace("e-0", "e-")


class Axis:
    def __init__(self, low, high, ticks, log=False, text=number):
        self.low, self.high, self.ticks, self.text = low, high, ticks, text
        self.map = math.log if log else float

    def inside(self, value):
        return self.low <= value <= self.high

    def at(self, value, begin, end):
        low, high = self.map(self.low), self.map(self.high)
        return begin + (end - begin) * (self.map(value) - low) / (high - low)


class Figure:
    def __init__(self, width, height, title, words):
        self.width, self.height = width, height
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
                      f"<title>{title}</title><desc>{words}</desc>", f"<style>{STYLE}</style>",
                      f'<rect class="card" width="{width}" height="{height}"/>']
        self.text(16, 26, title, size=15, weight="bold")

    def text(self, x, y, words, anchor="start", size=12, weight="normal", soft=False, turn=False):
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
        css = ' class="soft"' if soft else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
                          f"{css}{turned}>{words}</text>")

    def line(self, css, x1, y1, x2, y2):
        self.parts.append(f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def mark(self, colour, x, y):
        """A dot; each colour has a shape of its own."""
        shapes = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6"', f'<path d="M{x:.1f} {y - 4.8:.1f}l4.8 4.8l-4.8 4.8l-4.8 -4.8z"',
                  f'<rect x="{x - 3.4:.1f}" y="{y - 3.4:.1f}" width="6.8" height="6.8"',
                  f'<path d="M{x:.1f} {y - 4.6:.1f}l4.6 8.4h-9.2z"']
        self.parts.append(f'{shapes[colour]} class="dot c{colour}"/>')

    def legend(self, x, y, entries):
        """entries: (colour, dashed, words); a colour of None is a line of no series."""
        for colour, dashed, words in entries:
            css = f'line c{colour}{" dash" if dashed else ""}' if colour is not None else f'rule{" dash" if dashed else ""}'
            self.line(css, x, y - 4, x + 26, y - 4)
            if colour is not None and not dashed:
                self.mark(colour, x + 13, y - 4)
            self.text(x + 32, y, words)
            x += 32 + 5.9 * len(words) + 21

    def panel(self, x, y, width, height, x_axis, y_axis, title, series, x_words="", y_words="", x_ticks=True, band=None,
              rule=None):
        """series: (colour, dashed, points). Points outside of the axes are left out."""
        if band:
            top, bottom = (y_axis.at(value, y + height, y) for value in (band[1], band[0]))
            self.parts.append(f'<rect class="band" x="{x}" y="{top:.1f}" width="{width}" height="{bottom - top:.1f}"/>')
        for tick in y_axis.ticks:
            at = y_axis.at(tick, y + height, y)
            self.line("grid", x, at, x + width, at)
            self.text(x - 6, at + 4, y_axis.text(tick), "end", 11, soft=True)
        for tick in x_axis.ticks:
            at = x_axis.at(tick, x, x + width)
            self.line("grid", at, y, at, y + height)
            if x_ticks:
                self.text(at, y + height + 15, x_axis.text(tick), "middle", 11, soft=True)
        if rule is not None:
            at = y_axis.at(rule, y + height, y)
            self.line("rule", x, at, x + width, at)
        self.parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}"/>')
        self.text(x + width / 2, y - 7, title, "middle", 12, "bold")
        if x_words:
            self.text(x + width / 2, y + height + 33, x_words, "middle", 12, soft=True)
        if y_words:
            self.text(x - 44, y + height / 2, y_words, "middle", 12, soft=True, turn=True)
        for colour, dashed, points in series:
            seen = [(x_axis.at(px, x, x + width), y_axis.at(py, y + height, y))
                    for px, py in points if x_axis.inside(px) and y_axis.inside(py)]
            path = "".join(f'{"L" if index else "M"}{px:.1f} {py:.1f}' for index, (px, py) in enumerate(seen))
            if path:
                self.parts.append(f'<path class="line c{colour}{" dash" if dashed else ""}" d="{path}"/>')
            if not dashed:
                for px, py in seen:
                    self.mark(colour, px, py)

    def write(self, path):
        path.write_text("\n".join(self.parts) + "\n</svg>\n", "utf-8")
