#!/usr/bin/env bash
# Lays out what a package holds: stage.sh PROGRAM FOLDER. All of it but the licence and the guide comes from the program itself.
set -euo pipefail
program=$(realpath "$1")
to=$2
cd "$(dirname "$0")/.."
umask 022

install -d "$to/etc/vellum/volumes" "$to"/usr/share/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d} \
    "$to/usr/share/doc/vellum"
install -D -m 755 "$program" "$to/usr/bin/vellum"
strip "$to/usr/bin/vellum"
"$program" boot install "$to/usr/lib/systemd" --program /usr/bin/vellum
"$program" man "$to/usr/share/man/man1"
gzip -n9 "$to"/usr/share/man/man1/*.1
"$program" completions bash >"$to/usr/share/bash-completion/completions/vellum"
"$program" completions zsh >"$to/usr/share/zsh/vendor-completions/_vellum"
"$program" completions fish >"$to/usr/share/fish/vendor_completions.d/vellum.fish"
# For a root file system on a volume: what makes an initramfs takes these up where there is an entry for it.
install -D -m 644 packaging/udev/61-vellum.rules "$to/usr/lib/udev/rules.d/61-vellum.rules"
install -D -m 755 packaging/initramfs-tools/hook "$to/usr/share/initramfs-tools/hooks/vellum"
for at in local-top local-block; do
    install -D -m 755 packaging/initramfs-tools/script "$to/usr/share/initramfs-tools/scripts/$at/vellum"
done
install -D -m 755 -t "$to/usr/lib/dracut/modules.d/90vellum" packaging/dracut/module-setup.sh packaging/dracut/vellum-attach.sh
install -m 644 packaging/volumes.README "$to/etc/vellum/volumes/README"
install -m 644 README.md docs/PROMISE.md "$to/usr/share/doc/vellum/"
install -d "$to/usr/share/doc/vellum/guide/reference"
install -m 644 docs/guide/src/*.md docs/guide/src/*.png "$to/usr/share/doc/vellum/guide/"
install -m 644 docs/guide/src/reference/*.md "$to/usr/share/doc/vellum/guide/reference/"
install -m 644 packaging/grafana/vellum.json "$to/usr/share/doc/vellum/grafana.json"
