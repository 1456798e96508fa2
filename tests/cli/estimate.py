"""What `twoheads run` says of the errors of drawn keys, computed a second time in plain Python, for test_cli.sh.

    estimate.py Q.npy K.npy SAMPLED.npy FIGURES.json ROWS KEYS [OPTION...]

Of a run with --estimate on a kernel of ROWS rows and KEYS keys, whose value of key j is 1 in column j and else 0: rows of
SAMPLED.npy, the result, then tell which keys were drawn and what each weighs. FIGURES.json is what the run printed with
--json. Replicates are possible with KEYS 1, where each sample is a key. Options as the command has them: --causal, --scale,
--q-offset, --samples, --bound-c and -d. With --target-error E --made MADE.npy --exact EXACT.npy FIGURES.json is that of a run
with the target, its result is MADE.npy, and that of the exact method EXACT.npy. Ends with 1, and a line for each thing that
is wrong.
"""
import json
import math
import statistics
import sys

from definition import Array, read_options, sees

wrong = []


def expect(true, text):
    if not true:
        wrong.append(text)


def near(said, right, tolerance):
    if said is None or math.isinf(right):
        return said is None and math.isinf(right)
    return abs(said - right) <= tolerance * abs(right)


def quantile_f(share, d1, d2):
    """Of the F distribution, by Simpson's rule on its density, d1 > 2."""
    def density(f):
        if f == 0:
            return 0.0
        log = math.lgamma((d1 + d2) / 2) - math.lgamma(d1 / 2) - math.lgamma(d2 / 2) + d1 / 2 * math.log(d1 / d2)
        return math.exp(log + (d1 / 2 - 1) * math.log(f) - (d1 + d2) / 2 * math.log1p(d1 * f / d2))
    step, total, f = 1e-3, 0.0, 0.0
    while total < share:
        part = (density(f) + 4 * density(f + step / 2) + density(f + step)) * step / 6
        if total + part >= share:
            return f + step * (share - total) / part
        total, f = total + part, f + step
    return f


def row_bound(weights, sums, columns, estimate):
    """The bound of one row over |out|: weights of the keys that it sees in out, and their exponentials. And m / n."""
    ratios = [w / s for w, s in zip(weights, sums)]
    top, seen = max(ratios), [r for r in ratios if r > 0]
    if min(ratios) > 0 and min(ratios) > top * 0.999:
        return 0.0, 1.0  # exact: all keys count the same
    drawn = [w for w, r in zip(weights, ratios) if r > top * 0.999]
    others = [r for r in seen if r <= top * 0.999]
    count = len(drawn)
    keys = round(count * top / min(others)) if others else len(weights)
    length = math.fsum(w * w for w in weights)
    total = math.fsum(drawn)
    squares = math.fsum(w * w for w in drawn)
    # |Z_j|^2 = w_j^2 |v_j - out|^2 = w_j^2 (1 - 2 w_j + |out|^2); sum Z_j = (w_j in the drawn columns) - total out
    moments = math.fsum(w * w * (1 - 2 * w + length) for w in drawn)
    middle = squares - 2 * total * squares + total * total * length
    variance = count / (count - 1) * (moments - middle / count) * (1 - count / keys)
    x = (count * squares / total ** 2 - 1) * total ** 2 / (count - 1)
    if x >= 0.9:
        return math.inf, count / keys  # one key outweighs all others
    freedom = columns * (count - 1) if estimate == "replicates" else 1 << 20
    quantile = quantiles.setdefault(freedom, None) or quantile_f(0.95, columns, freedom)
    quantiles[freedom] = quantile
    return math.sqrt(quantile * variance * (1 + x)) / (1 - x) / math.sqrt(length), count / keys


quantiles = {}


def assumption(figures, given, logits, n, block_keys):
    """The figures of the check, for full attention of n keys: of a few pairs they say no more than all pairs would."""
    std = figures["logit_std"]
    rows = [math.sqrt(math.fsum((x - math.fsum(row) / n) ** 2 for x in row) / (n - 1)) for row in logits]
    expect(0.5 * min(rows) < std < max(rows) * 1.3, "logits spread by %g, not by %g to %g" % (std, min(rows), max(rows)))
    most = math.exp(max(max(row) - min(row) for row in logits) / 2)
    expect(most ** 0.4 < figures["measured_c"] <= most * (1 + 1e-5), "C is %g, not %g" % (figures["measured_c"], most))
    weights = [math.expm1(row * row) for row in rows]
    samples, needed = int(given.get("--samples", 1)), figures["samples_needed"]
    low, high = (max(1, math.ceil(1 / (0.09 / weight + 1 / n) / block_keys))
                 for weight in (statistics.median(weights) / 4, math.expm1(std * std)))
    expect(low <= needed <= high, "%d samples are needed, not %d to %d" % (needed, low, high))
    holds, drawn = needed <= samples, samples * block_keys
    if "--bound-c" in given:
        holds &= figures["measured_c"] <= float(given["--bound-c"]) and figures["measured_d"] <= float(given["--bound-d"])
        bound = float(given["--bound-c"]) ** 2 * (1 + float(given["--bound-d"])) * math.sqrt(2 * math.log(40) / drawn)
        expect(near(figures["error_bound"], bound, 1e-9), "the bound is %g, not %g" % (figures["error_bound"], bound))
    expect(figures["assumption_holds"] is holds, "the assumption holds: %s" % holds)
    expect(bool(figures["assumption_words"]) != holds, "words: '%s'" % figures["assumption_words"])


def made_exact(figures, given, ratios, block_rows, sampled):
    """Blocks with a row above the target are those of the exact method, bit by bit, and no others; their errors are 0."""
    made, exact = Array(given["--made"], 4), Array(given["--exact"], 4)
    heads, rows, columns = sampled.shape[1:]
    redone = [any(r > float(given["--target-error"]) for r in ratios[h * rows + i // block_rows * block_rows:][:min(
        block_rows, rows - i // block_rows * block_rows)]) for h in range(heads) for i in range(rows)]
    for at, again in enumerate(redone):
        part = slice(at * columns, (at + 1) * columns)
        right = exact if again else sampled
        expect(made.data[part] == right.data[part], "row %d is %s" % (at, "not exact" if again else "another"))
    expect(figures["exact_rows"] == sum(redone), "%d exact rows, not %d" % (figures["exact_rows"], sum(redone)))
    expect(0 < sum(redone) < len(redone) or "--all" in given, "%d of %d rows exact" % (sum(redone), len(redone)))
    expect(0 < figures["exact_calls"] <= figures["exact_calls_max"], "%d exact calls" % figures["exact_calls"])
    return [0.0 if again else r for again, r in zip(redone, ratios)]


def main(q_path, k_path, sampled_path, figures_path, block_rows, block_keys, *words):
    given, figures = read_options(words), json.load(open(figures_path))
    q, k, sampled = Array(q_path, 4), Array(k_path, 4), Array(sampled_path, 4)
    heads, rows, columns = sampled.shape[1:]
    keys, dim = k.shape[2:]
    scale = float(given.get("--scale", 1 / math.sqrt(dim)))
    ratios, shares, logits = [], [], []
    for h in range(heads):
        for i in range(rows):
            p = i + int(given.get("--q-offset", 0))
            seen = [j for j in range(keys) if sees(given, p, j)]
            row = [sum(q(0, h, i, c) * k(0, h * k.shape[1] // heads, j, c) for c in range(dim)) * scale for j in seen]
            weights = [sampled(0, h, i, j) for j in seen]
            expect(near(math.fsum(weights), 1, 1e-5), "weights of row %d sum up to %g" % (i, math.fsum(weights)))
            ratio, share = row_bound(weights, [math.exp(x - max(row)) for x in row], columns, figures["estimate"])
            ratios.append(ratio)
            shares.append(share)
            logits.append(row)
    expect(min(shares) < 1, "no key was drawn")
    if "--made" in given:
        ratios = made_exact(figures, given, ratios, int(block_rows), sampled)
    else:
        expect(figures["exact_rows"] == figures["exact_calls"] == 0, "exact rows without a target")
    ratios.sort()
    for name, share in (("median", 0.5), ("p95", 0.95)):
        at = share * (len(ratios) - 1)
        low, high = ratios[int(at)], ratios[min(int(at) + 1, len(ratios) - 1)]
        right = low if low == high else low + (high - low) * (at - int(at))
        said = figures["estimated_error"][name]
        expect(near(said, right, 2e-3), "%s is %r, not %g" % (name, said, right))
    if int(block_keys) == 1:
        expect(figures["assumption_holds"] is None and figures["samples_needed"] == 0, "a single key is compared")
    elif "--causal" not in given and figures["method"] == "sampled":
        assumption(figures, given, logits, keys, int(block_keys))
    for text in wrong:
        print(text)
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
