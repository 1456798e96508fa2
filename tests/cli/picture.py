"""Looks at what `twoheads plan --svg` has drawn, for test_cli.sh.

    picture.py FILE.svg PLAN.json BYTES ROWS KEYS [EXACT SAMPLED]

Ends with 1, and a line for each thing that is wrong: the file is well-formed and of few kinds of elements, holds no more
than BYTES, and nothing is outside the page; its legend has as many tiles of each kind as the plan says. Where each tile is
drawn (of one sequence and head, or all of both) there are as many as the legend says, and together they cover as many pairs
as are visible, or, where keys are drawn, EXACT pairs and SAMPLED ones; where there are too many, each kind of the legend shows,
and the inset has numbers. Tiles of doubled queries are only in the caption.
"""
import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

SPACE = "{http://www.w3.org/2000/svg}"
KINDS = ("full", "lower", "upper", "band", "host", "sampled", "sinks")
wrong = []


def expect(true, text):
    if not true:
        wrong.append(text)


def polygons(path):
    """The corners of a path's parts, which are M x y, L x y, hdx, vdy and z."""
    for part in re.findall(r"M[^Mz]*z", path.get("d").replace("Z", "z")):
        at, corners = (0.0, 0.0), []
        for command, numbers in re.findall(r"([MLhv])([-0-9. ]+)", part):
            n = [float(x) for x in numbers.split()]
            at = (n[0], n[1]) if command in "ML" else (at[0] + n[0], at[1]) if command == "h" else (at[0], at[1] + n[0])
            corners.append(at)
        yield corners


def area(corners):
    """Of a polygon; positive when it goes down its right side."""
    return sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(corners, corners[1:] + corners[:1])) / 2


def box(element):
    x, y = float(element.get("x")), float(element.get("y"))
    return x, y, x + float(element.get("width")), y + float(element.get("height"))


def inside(root, width, height):
    for element in root.iter():
        name = element.tag.replace(SPACE, "")
        expect(name in ("svg", "title", "g", "rect", "line", "path", "text"), "an element " + name)
        points = []
        if name == "rect":
            points = [box(element)[:2], box(element)[2:]]
        elif name == "path":
            points = [corner for corners in polygons(element) for corner in corners]
            expect(points, "a path without corners")
        elif name == "text":
            points = [(float(element.get("x")), float(element.get("y")))]
        expect(all(-0.01 <= x <= width + 0.01 and -0.01 <= y <= height + 0.01 for x, y in points), "%s outside the page" % name)


def main(svg, plan, size, rows, keys, *drawn_pairs):
    figures = json.load(open(plan))
    root = ElementTree.parse(svg).getroot()
    width, height = float(root.get("width")), float(root.get("height"))
    expect(root.tag == SPACE + "svg" and root.get("version") == "1.1", "no SVG 1.1")
    expect(os.path.getsize(svg) <= int(size), "%d bytes" % os.path.getsize(svg))
    inside(root, width, height)

    legend = dict.fromkeys(KINDS, 0)
    for text in root.iter(SPACE + "text"):
        match = re.match(r"(\d+) (%s):" % "|".join(KINDS), text.text or "")
        if match:
            legend[match.group(2)] = int(match.group(1))
    shapes = ("full", "lower", "upper", "band")
    tiles = sum(legend[kind] for kind in shapes) + legend["host"] + legend["sampled"]
    doubled = figures["drawn_tiles"] if figures["estimate"] == "doubled" else 0  # one for each, which is not drawn
    expect(tiles == figures["tiles"] - doubled, "%d tiles in the legend" % tiles)
    expect(legend["host"] == figures["host_tiles"], "%d tiles of the host" % legend["host"])
    expect(legend["sampled"] == figures["drawn_tiles"], "%d tiles of drawn keys" % legend["sampled"])
    for kind in shapes:
        most = figures[kind + "_tiles"]
        expect(most - legend["host"] - legend["sampled"] - doubled <= legend[kind] <= most, "%d %s" % (legend[kind], kind))
    words = [text.text or "" for text in root.iter(SPACE + "text")]
    method = "; %s: %d keys drawn" % (figures["method"], figures["sampled_keys"])
    expect(any(method in text for text in words) == (figures["method"] != "exact"), "no method in the captions")
    estimate = ", once more in %d calls for an estimate" % figures["estimate_calls"]
    expect(any(estimate in text for text in words) == (figures["estimate_calls"] > 0), "no estimate in the captions")

    groups = {group.get("id"): group for group in root.iter(SPACE + "g")}
    expect(("tiles" in groups) != ("raster" in groups), "neither tiles nor a raster")
    expect("slots" in groups or figures["calls"] == 0, "no slots")
    if "slots" in groups:
        named = [re.search(r": (\d+) tiles?$", text.text or "") for text in groups["slots"].iter(SPACE + "text")]
        shapes_drawn = sum(e.tag == SPACE + "path" for e in groups["slots"])
        expect(sum(int(match.group(1)) for match in named if match) == shapes_drawn > 0, "%d tiles in slots" % shapes_drawn)
    drawn = groups.get("tiles", groups.get("raster"))
    for kind in KINDS:
        expect(any(e.get("class") == kind for e in drawn.iter()) == (legend[kind] > 0), "%s drawn or not" % kind)
    expect("inset" not in groups or any(e.tag == SPACE + "text" for e in groups["inset"]), "no number in the inset")
    if "tiles" in groups:
        frame = next(box(e) for e in root if e.tag == SPACE + "rect" and e.get("fill") == "none")
        pair = (frame[2] - frame[0]) * (frame[3] - frame[1]) / max(1, int(rows) * int(keys))
        covered, sampled = 0.0, 0.0
        for element in drawn:
            if element.tag == SPACE + "path":
                parts = [area(corners) for corners in polygons(element)]
                expect(min(parts) > 0, "a path turned inside out")
                if element.get("class") == "sampled":
                    sampled += sum(parts)
                    behind = [part for part in polygons(element)
                              if part[1][0] - frame[0] > part[0][1] - frame[1] + 0.02 or part[0][0] < frame[0] - 0.01]
                    expect(not behind or not any(text.startswith("Causal") for text in words), "drawn keys that no row sees")
                else:
                    covered += sum(parts)
            elif element.get("class") == "sinks":
                x, y, right, bottom = box(element)
                covered += (right - x) * (bottom - y)
        for kind in shapes + ("host", "sampled"):
            count = sum(e.tag == SPACE + "path" and e.get("class") == kind for e in drawn)
            expect(count == legend[kind], "%d paths for %d %s" % (count, legend[kind], kind))
        expected = drawn_pairs or (figures["visible_pairs"], 0)
        for what, got, right in zip(("exact", "sampled"), (covered, sampled), expected):
            near = right == "any" or abs(got / pair - float(right)) <= 0.01 * float(right)
            expect(near, "%.1f of %s %s pairs covered" % (got / pair, right, what))
    for text in wrong:
        print(text)
    return len(wrong) > 0


sys.exit(main(*sys.argv[1:]))
