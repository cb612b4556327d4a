#!/usr/bin/env bash
# Creates the virtual environment VENV with the packages in REQUIREMENTS, in the versions
# of CONSTRAINTS, unless it is up to date. PYTHON is the interpreter to use.
# usage: tools/environment.sh VENV REQUIREMENTS CONSTRAINTS [options of pip install]
set -euo pipefail
venv=$1 requirements=$2 constraints=$3
shift 3
name=$(basename "$venv")
if cat "$requirements" "$constraints" | cmp -s - "$venv/installed.txt"; then
  echo "$name: up to date"
  exit 0
fi
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9  # another checkout may be installing the same environment
if cat "$requirements" "$constraints" | cmp -s - "$venv/installed.txt"; then
  exit 0
fi
echo "$name: installing"
"${PYTHON:-python3}" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  --constraint "$constraints" --requirement "$requirements" "$@"
cat "$requirements" "$constraints" >"$venv/installed.txt"
