#!/usr/bin/env bash
# Installs the given Debian or Ubuntu packages, unless they are installed.
set -euo pipefail
command -v dpkg-query >/dev/null || { echo "not a Debian system: install $* by hand"; exit 0; }
missing=()
for package in "$@"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
export DEBIAN_FRONTEND=noninteractive
"${root[@]}" apt-get update -qq
for package in "${missing[@]}"; do
  echo "installing $package"
  "${root[@]}" apt-get install -y -qq "$package" >/dev/null ||
    echo "could not install $package; continuing without it" >&2
done
