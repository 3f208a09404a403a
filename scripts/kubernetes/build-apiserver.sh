#!/bin/sh
# Builds kube-apiserver for `npm run test:kubernetes` from Debian's source package, once: the program
# stays in the user's cache. Prints its path as the last line.
#
#   scripts/kubernetes/build-apiserver.sh [SOURCE]
#
# SOURCE: a folder with unpacked sources of Kubernetes. Default: `apt-get source kubernetes`, which
# needs Debian 12 and a deb-src line in its package sources. Takes about 6 minutes on 2 cores.
# It needs: apt-get install golang-go make rsync etcd-server
set -eu

cache="${XDG_CACHE_HOME:-$HOME/.cache}/millrace/kubernetes"
program="$cache/kube-apiserver"
if [ -x "$program" ]; then
  echo "$program"
  exit 0
fi
for command in go make rsync; do
  command -v "$command" >/dev/null || { echo "$command is missing: apt-get install golang-go make rsync" >&2; exit 1; }
done
mkdir -p "$cache"
source="${1:-}"
if [ -z "$source" ]; then
  cd "$cache"
  # `--download-only` and not unpacked by apt: that would need packages that build other programs.
  apt-get source --only-source --download-only kubernetes >&2
  rm -rf source
  mkdir source
  tar -xzf kubernetes_*.orig.tar.gz -C source --strip-components=1
  source="$cache/source"
fi
cd "$source"
CGO_ENABLED=0 make WHAT=cmd/kube-apiserver >&2
cp _output/local/go/bin/kube-apiserver "$program.new"
mv "$program.new" "$program"
rm -rf "$cache/source"
echo "$program"
