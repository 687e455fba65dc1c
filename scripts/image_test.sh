#!/usr/bin/env bash
# Build the image for real, on a plain Debian base instead of the CUDA one, run scale tiny in it as
# its own user, and compare its tables with those made outside. Needs root on a Debian machine.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
image=localhost/inverse-depth
tiny=(--config params=tests/tiny.yaml)
work=$(mktemp -d)
say() { printf '\n== %s\n' "$*"; }
in_store() { buildah --root "$work/store" --runroot "$work/run" "$@"; }
clean_up() {
  in_store rm --all > /dev/null || true
  rm -rf "$work"
}

if ! command -v buildah > /dev/null || ! command -v debootstrap > /dev/null; then
  say "Installing buildah and debootstrap"
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends buildah debootstrap < /dev/null
fi
trap clean_up EXIT

say "Making the base: Debian 12"
debootstrap --variant=minbase bookworm "$work/debian" > "$work/debootstrap.log"
base=$(in_store from scratch)
in_store add --quiet "$base" "$work/debian" / > /dev/null
in_store commit --quiet --rm "$base" localhost/debian:bookworm > /dev/null
rm -rf "$work/debian"

# The packages come from wherever this machine's pip takes them, as wheels in a folder that is
# mounted for the build alone; the Dockerfile knows of no such folder.
say "Fetching the lock's packages"
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir "$work/wheels" \
  --requirement requirements.lock --constraint requirements-cuda.lock
printf '[install]\nno-index = true\nfind-links = /mnt/wheels\n' > "$work/pip.conf"

say "Building the image"
in_store build --quiet --tag "$image" \
  --build-arg BASE_IMAGE=localhost/debian:bookworm \
  --build-arg REVISION="$(git rev-parse HEAD)" \
  --volume "$work/wheels:/mnt/wheels:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" .
container=$(in_store from "$image")
inside() { in_store run "$container" -- "$@"; }

say "The image's user, programs and packages"
inside sh -ec '
  test "$(id -u)" = 1000
  for tool in gcc cc make; do if command -v $tool; then exit 1; fi; done
  python --version
  python -m pip check
  python scripts/lock.py --check'

say "Scale tiny in the image, by its own command, then one target by its short name"
mkdir "$work/results"
chown 1000:1000 "$work/results"
in_image() { in_store run --volume "$work/results:/app/results" "$container" -- "$@"; }
read -ra command <<< "$(in_store inspect --type image \
  --format '{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' "$image")"
echo "${command[@]}"
in_image "${command[@]}" "${tiny[@]}"
rm "$work/results/tiny/tables/table1.csv"
in_image snakemake table1 "${tiny[@]}"

say "The same outside"
mkdir "$work/outside"
git ls-files -z | tar --null --files-from - --create | tar --extract --directory "$work/outside"
(cd "$work/outside" && PYTHONPATH=src "$root/.venv/bin/snakemake" --cores all "${tiny[@]}")
.venv/bin/python scripts/compare_results.py "$work/outside/results/tiny" "$work/results/tiny"
say "The image's tables are those made outside"
