#!/bin/sh
# Creates a virtual environment for each environments/*.txt, unless it is up to date.
# Pass names to create only some of them. PYTHON is the interpreter to use.
# Configure pip if it should download the CPU wheel of torch from another index.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}

if [ $# -eq 0 ]; then
  set -- "$here"/environments/*.txt
fi
for each in "$@"; do
  name=$(basename "$each" .txt)
  wanted=$here/environments/$name.txt
  venv=$here/.venvs/$name
  if [ ! -f "$wanted" ]; then
    echo "unknown environment $name: $wanted does not exist" >&2
    exit 1
  fi
  PYTHON=$python "$here/../tools/environment.sh" "$venv" "$wanted" \
    "$here/constraints.txt"
done

# Some contenders of torch_dataset import both torch and Millstream. So the environment
# `torch` has a link to the Millstream package that `make build` installs.
for packages in "$here"/.venvs/torch/lib/python3*/site-packages; do
  if [ -d "$packages" ]; then
    version=$(basename "$(dirname "$packages")")
    ln -sfn "$here/../.venv/lib/$version/site-packages/millstream" "$packages/millstream"
  fi
done
