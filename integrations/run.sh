#!/usr/bin/env bash
# Runs the tests of each folder here in an environment of its own, with the package that
# `make build` has installed. Pass names of folders to run only some of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here"/*/
for folder in "$@"; do
  name=$(basename "$folder")
  python=$("$here/environment.sh" "$name")
  PYTHONPATH=$here/../build/integrations JAX_PLATFORMS=cpu "$python" -m pytest -q \
    --rootdir "$here" --config-file "$here/pytest.ini" "$here/$name"
done
