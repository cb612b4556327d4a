#!/usr/bin/env bash
# Runs the sections of the tutorial, each in the environment of integrations/ that has
# its library. Then writes the tables of docs/tutorial.md and the chart. Pass names of
# sections to run only some of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
declare -A environments=(
  [pytorch]=torch_grain [tfds]=tfds [grain]=torch_grain [hugging_face]=hugging_face)

[ $# -gt 0 ] || set -- pytorch tfds grain hugging_face
for section in "$@"; do
  python=$("$root/integrations/environment.sh" "${environments[$section]}")
  PYTHONPATH=$root/build/integrations JAX_PLATFORMS=cpu "$python" "$here/run.py" \
    "$section"
done

"$root/benchmarks/setup.sh" plot
"$root/benchmarks/.venvs/plot/bin/python" "$here/page.py"
