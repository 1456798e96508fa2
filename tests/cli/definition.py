"""Attention by its definition, in plain Python, for test_cli.sh: computes what `twoheads run` did and compares.

    definition.py Q.npy K.npy V.npy OUT.npy LSE.npy TOLERANCE [OPTION...]

Options as the command has them: --causal, --left, --right, --sink-tokens, --q-offset, --scale, --lens, --alibi,
--key-bias FILE, --sink-logits FILE; others mean nothing here. Ends with 1, and a line, where out or lse are farther off than the
tolerance, or NaN. With --rel-errors MEDIAN,LARGEST they may be, but these must be the relative errors of the rows of out.
"""
import math
import statistics
import struct
import sys


def load(path):
    """The numbers of a file, and its shape."""
    data = open(path, "rb").read()
    size = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + size].decode())
    kind, width = {"<f4": ("f", 4), "<f8": ("d", 8), "<f2": ("e", 2)}[header["descr"]]
    body = data[10 + size:]
    return struct.unpack("<%d%s" % (len(body) // width, kind), body), header["shape"]


class Array:
    """An array with as many dimensions as asked for: those that it lacks are 1, and those of 1 are broadcast."""

    def __init__(self, path, rank):
        self.data, shape = load(path)
        self.shape = (1,) * (rank - len(shape)) + shape

    def __call__(self, *index):
        at = 0
        for i, n in zip(index, self.shape):
            at = at * n + (i if n > 1 else 0)
        return self.data[at]


def alibi(heads):
    """The slopes as the paper's own code makes them."""
    def of_power(n):
        start = 2.0 ** (-(2.0 ** -(math.log2(n) - 3)))
        return [start * start ** i for i in range(n)]
    if math.log2(heads).is_integer():
        return of_power(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return of_power(closest) + alibi(2 * closest)[0::2][:heads - closest]


def read_options(words):
    given = {}
    words = list(words)
    while words:
        name = words.pop(0)
        given[name] = words.pop(0) if words and not words[0].startswith("--") else ""
    return given


def sees(given, p, j):
    left, right = int(given.get("--left", -1)), int(given.get("--right", -1))
    if "--causal" in given and j > p:
        return False
    if j < int(given.get("--sink-tokens", 0)):
        return True
    return not (left >= 0 and j < p - left) and not (right >= 0 and j > p + right)


def main(q_path, k_path, v_path, out_path, lse_path, tolerance, *words):
    given = read_options(words)
    q, k, v, out, lse = Array(q_path, 4), Array(k_path, 4), Array(v_path, 4), Array(out_path, 4), Array(lse_path, 3)
    batch, heads, rows, dim = q.shape
    group = heads // k.shape[1]
    scale = float(given.get("--scale", 1 / math.sqrt(dim)))
    slopes = alibi(heads) if "--alibi" in given else [0.0] * heads
    bias = Array(given["--key-bias"], 3) if "--key-bias" in given else lambda b, h, j: 0.0
    sinks = Array(given["--sink-logits"], 1) if "--sink-logits" in given else lambda h: -math.inf
    sequences = [(0, rows, 0, k.shape[2])]
    if "--lens" in given:
        lens = [int(n) for n in given["--lens"].split(",")]
        sequences = [(sum(lens[:i]), n, sum(lens[:i]), n) for i, n in enumerate(lens)]
    worst, compared, relative = 0.0, 0, []
    for b in range(batch):
        for h in range(heads):
            for q_begin, q_len, k_begin, k_len in sequences:
                for i in range(q_len):
                    p = i + int(given.get("--q-offset", 0))
                    keys = [j for j in range(k_len) if sees(given, p, j)]
                    logits = [sum(q(b, h, q_begin + i, c) * k(b, h // group, k_begin + j, c) for c in range(dim)) * scale
                              + bias(b, h, k_begin + j) + slopes[h] * (j - p) for j in keys]
                    top = max(logits + [sinks(h)])
                    total = sum(math.exp(x - top) for x in logits + [sinks(h)]) if top > -math.inf else 0.0
                    right = top + math.log(total) if total else -math.inf
                    differences = [0.0 if right == lse(b, h, q_begin + i) else abs(right - lse(b, h, q_begin + i))]
                    squares, norm = 0.0, 0.0
                    for c in range(v.shape[3]):
                        value = sum(math.exp(x - top) * v(b, h // group, k_begin + j, c) for x, j in zip(logits, keys))
                        value = value / total if total else 0.0
                        differences.append(abs(value - out(b, h, q_begin + i, c)))
                        squares, norm = squares + differences[-1] ** 2, norm + value ** 2
                    relative.append(math.sqrt(squares / norm if norm else squares))
                    for difference in differences:
                        if not difference <= worst:
                            worst = difference
                    compared += len(differences)
    if "--rel-errors" in given:
        said, right = [float(x) for x in given["--rel-errors"].split(",")], (statistics.median(relative), max(relative))
        if all(abs(a - b) <= float(tolerance) * b for a, b in zip(said, right)):
            return 0
        print("relative errors are %g, %g, not %g, %g" % (*right, *said))
        return 1
    if compared and worst <= float(tolerance):
        return 0
    print("compared %d numbers, the largest difference is %g" % (compared, worst))
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
