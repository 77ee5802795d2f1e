#!/usr/bin/env bash
# The container image: it is built, prints its version, and runs as a user would run it. A volume is created in a directory of the host,
# served over TCP from the container's own network, written and read by another program on the host, and intact after the container has
# stopped.
# Nothing is left in the user's image storage. `make container` builds the program in it, and runs this.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
skip() {
    echo "SKIP: container: $*"
    exit 0
}
[ -n "${STATIC:-}" ] || skip 'there is no static program (make container builds one and tries it)'
[ "$(id -u)" -eq 0 ] || skip 'it needs root'
for tool in buildah podman qemu-io nbdinfo jq; do
    command -v "$tool" >/dev/null || skip "it needs $tool (scripts/setup.sh container test)"
done

dir=$(mktemp -d -p /var/tmp)
export TMPDIR=$dir
printf '[storage]\ndriver="vfs"\ngraphroot="%s/images"\nrunroot="%s/running"\n' "$dir" "$dir" >"$dir/storage.conf"
export CONTAINERS_STORAGE_CONF=$dir/storage.conf
name=vellum-test-$$
end() {
    podman rm --force --volumes "$name" >/dev/null 2>&1 || true
    ! mountpoint -q "$dir/images/vfs" || umount "$dir/images/vfs"
    ! mountpoint -q "$dir/images" || umount "$dir/images"
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM
fail() {
    echo "container: FAILED: $*"
    exit 1
}
mkdir "$dir/volumes"
archive=$(packaging/container.sh "$STATIC" "$dir/out" 2>"$dir/log") || fail "$(cat "$dir/log")"
image=$(buildah images --json | jq -r '.[0].names[0]')
buildah inspect --type image "$image" | jq .OCIv1 >"$dir/says"
jq -e --arg revision "$(git rev-parse HEAD)" '.config | .Entrypoint == ["/usr/bin/vellum"] and .Volumes == {"/volumes": {}} and
    .Labels["org.opencontainers.image.revision"] == $revision and .Labels["org.opencontainers.image.licenses"] == "Apache-2.0"' \
    "$dir/says" >/dev/null || fail "it says: $(cat "$dir/says")"

# The limits of this process, no more: raising one needs a right that a machine may deny.
options=(--ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --volume "$dir/volumes:/volumes")
runtime=''
for each in crun runc; do
    ! timeout 60 podman --runtime "$each" run --rm "${options[@]}" "$image" --version >"$dir/version" 2>"$dir/log" || runtime=$each
    [ -z "$runtime" ] || break
done
[ -n "$runtime" ] || skip "it was built, and no container runs here: $(tail -1 "$dir/log")"
grep -q '^vellum ' "$dir/version" || fail "it says: $(cat "$dir/version")"
run() { timeout 60 podman --runtime "$runtime" run "${options[@]}" "$@"; }

run --rm "$image" create disk.vellum --size 64M >/dev/null || fail 'create'
run --detach --name "$name" --publish 127.0.0.1::10809 "$image" serve disk.vellum --tcp 0.0.0.0:10809 --insecure-tcp >/dev/null || fail 'serve'
for ((tries = 0; tries < 600; tries++)); do
    podman logs "$name" >"$dir/log" 2>&1
    ! grep -q '^ready: ' "$dir/log" || break
    sleep 0.1
done
address=$(podman inspect "$name" --format '{{.NetworkSettings.IPAddress}}')
uri=nbd://$address:10809/disk.vellum
[ "$(timeout 60 nbdinfo --size "$uri")" = $((64 << 20)) ] || fail "nbdinfo $uri: $(cat "$dir/log")"
said=$(timeout 60 qemu-io -f raw -c 'write -P 7 1M 3M' -c flush -c 'read -P 7 1M 3M' -c 'read -P 0 4M 1M' "$uri") || fail "$said"
! grep -q 'verification failed' <<<"$said" || fail "$said"
# Next to the server, in its container.
timeout 60 podman exec "$name" /usr/bin/vellum health >"$dir/health" || fail "$(cat "$dir/health")"
podman stop --time 30 "$name" >/dev/null
code=$(podman inspect "$name" --format '{{.State.ExitCode}}')
[ "$code" = 0 ] || fail "it ended with $code: $(podman logs "$name" 2>&1)"
run --rm "$image" check disk.vellum >"$dir/log" 2>&1 || fail "$(cat "$dir/log")"
echo "container: passed, by $runtime ($(stat -c %s "$archive") bytes)"
