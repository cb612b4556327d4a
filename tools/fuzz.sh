#!/usr/bin/env bash
# Runs every fuzz target in a folder on a copy of its corpus:
# fuzz.sh FOLDER SECONDS_PER_TARGET PARALLEL_TARGETS
set -euo pipefail

fuzz() {  # target seconds
  local name
  name=$(basename "$1"); name=${name#fuzz_}
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  cp -r "engine/fuzz/corpus/$name/." "$scratch"
  local log=build/fuzz/$name.log
  if ! "$1" "$scratch" -max_total_time="$2" -rss_limit_mb=2048 -max_len=65536 \
      -artifact_prefix="build/fuzz/crash-$name-" >"$log" 2>&1; then
    tail -40 "$log"
    echo "$name: failed"
    exit 1
  fi
  echo "$name, $2 s: $(tail -1 "$log")"
}

if [ "$1" = one ]; then
  fuzz "$2" "$3"
else
  find "$1" -maxdepth 1 -name 'fuzz_*' -type f -executable | sort | grep . |
    xargs -P "$3" -I{} "$0" one {} "$2"
fi
