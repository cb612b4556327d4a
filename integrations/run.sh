#!/usr/bin/env bash
# Runs the tests of each folder here in an environment of its own, with the package that
# `make build` has installed. Pass names of folders to run only some of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../.venv/bin/python
# Checkouts share the environments, which contain only packages of others. A change of
# the requirements gives an environment another name.
environments=${MILLSTREAM_ENVIRONMENTS:-$HOME/.cache/millstream/environments}

package=$("$python" -c 'import millstream; print(millstream.__path__[0])')
linked=$here/../build/integrations
mkdir -p "$linked"
ln -sfn "$package" "$linked/millstream"

[ $# -gt 0 ] || set -- "$here"/*/
for folder in "$@"; do
  name=$(basename "$folder")
  requirements=$here/$name/requirements.txt
  if [ ! -f "$requirements" ]; then
    echo "unknown integration $name: $requirements does not exist" >&2
    exit 1
  fi
  sum=$("$python" -V | cat - "$requirements" "$here/constraints.txt" | sha256sum)
  venv=$environments/$name-${sum:0:12}
  # The tests import few of the modules, and Python compiles these when they do.
  PYTHON=$python "$here/../tools/environment.sh" "$venv" "$requirements" \
    "$here/constraints.txt" --no-compile
  PYTHONPATH=$linked JAX_PLATFORMS=cpu "$venv/bin/python" -m pytest -q \
    --rootdir "$here" --config-file "$here/pytest.ini" "$here/$name"
done
