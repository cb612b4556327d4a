#!/usr/bin/env bash
# Creates the environment of a folder here, unless it is up to date, and links the
# package that `make build` has installed into build/integrations. Prints the path of the
# environment's interpreter.
# usage: integrations/environment.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../.venv/bin/python
name=$1
requirements=$here/$name/requirements.txt
if [ ! -f "$requirements" ]; then
  echo "unknown integration $name: $requirements does not exist" >&2
  exit 1
fi
package=$("$python" -c 'import millstream; print(millstream.__path__[0])')
linked=$here/../build/integrations
mkdir -p "$linked"
ln -sfn "$package" "$linked/millstream"
# Checkouts share the environments, which contain only packages of others. A change of
# the requirements gives an environment another name.
environments=${MILLSTREAM_ENVIRONMENTS:-$HOME/.cache/millstream/environments}
sum=$("$python" -V | cat - "$requirements" "$here/constraints.txt" | sha256sum)
venv=$environments/$name-${sum:0:12}
# The tests import few of the modules, and Python compiles these when they do.
PYTHON=$python "$here/../tools/environment.sh" "$venv" "$requirements" \
  "$here/constraints.txt" --no-compile >&2
echo "$venv/bin/python"
