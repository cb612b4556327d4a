#!/bin/sh
# Makes one virtual environment a peer group from environments/*.txt, and leaves
# alone those that are up to date. Names given as arguments choose among them;
# PYTHON chooses the interpreter. Where the torch wheel of the CPU comes from is
# pip's own configuration.
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
    echo "no environment $name: $wanted does not exist" >&2
    exit 1
  fi
  if cat "$wanted" "$here/constraints.txt" | cmp -s - "$venv/installed.txt"; then
    echo "$name: up to date"
    continue
  fi
  echo "$name: installing"
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet \
    --constraint "$here/constraints.txt" --requirement "$wanted"
  cat "$wanted" "$here/constraints.txt" >"$venv/installed.txt"
done

# Millstream's contenders of torch_dataset need torch, so the environment `torch` links
# to the package that `make build` installs: the link always leads to the last build.
for packages in "$here"/.venvs/torch/lib/python3*/site-packages; do
  if [ -d "$packages" ]; then
    version=$(basename "$(dirname "$packages")")
    ln -sfn "$here/../.venv/lib/$version/site-packages/millstream" "$packages/millstream"
  fi
done
