#!/usr/bin/env bash
# Runs every fuzz target below a folder, each for a number of seconds, on a copy of its
# corpus.
set -euo pipefail
folder=$1
seconds=$2
corpora=engine/fuzz/corpus
found=0
for target in "$folder"/fuzz_*; do
  [ -x "$target" ] || continue
  found=1
  name=$(basename "$target"); name=${name#fuzz_}
  scratch=$(mktemp -d)
  [ -d "$corpora/$name" ] && cp -r "$corpora/$name/." "$scratch"
  echo "fuzzing $name for $seconds s"
  "$target" "$scratch" -max_total_time="$seconds" -rss_limit_mb=2048 -max_len=65536 \
      -artifact_prefix=build/fuzz/crash-"$name"- >build/fuzz/"$name".log 2>&1 ||
    { tail -40 build/fuzz/"$name".log; exit 1; }
  tail -1 build/fuzz/"$name".log
  rm -rf "$scratch"
done
[ "$found" -eq 1 ] || { echo "no fuzz targets below $folder" >&2; exit 1; }
