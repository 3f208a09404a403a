#!/bin/sh
# Packs `bench gpu` for a machine with a GPU and Python, but without Node and npm. Run `npm run build` before. There:
#   python3 -m tarfile -e gpu.tar.xz . && sh millrace-gpu/run --json gpu.json
set -eu
cd "$(dirname "$0")/.."
target=bench/results/gpu.tar.xz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/millrace-gpu
mkdir -p "$folder" bench/results
cp -r bin dist bench package.json "$folder"
rm -rf "$folder/bench/results"
npm ls --omit=dev --omit=peer --all --parseable | sed -n "s|^$PWD/node_modules/||p" | while read -r name; do
  case $name in millrace*) continue ;; esac
  mkdir -p "$folder/node_modules/$(dirname "$name")"
  cp -r "node_modules/$name" "$folder/node_modules/$name"
done
cp "$(node -p process.execPath)" "$folder/node"
cat >"$folder/run" <<'END'
#!/bin/sh
cd "$(dirname "$0")" && chmod +x node && PATH="$PWD:$PATH" exec ./node bench/gpu.ts "$@"
END
tar -C "$work" -cf - millrace-gpu | xz -T0 -3 >"$target"
ls -l "$target"
