#!/usr/bin/env bash
# Turns results (workload, peer, value; tab-separated) into the document: medians, ratios, and targets.
set -euo pipefail
results=$1 rounds=$2 volume=$3 writes=$4

cat <<TEXT
# The device against its peers

\`make bench\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD). Medians of $rounds rounds in which the peers take turns; a
volume of $volume, $writes written, random data, default options (64 MiB of buffer, 10% over-provisioning). Ratios below 1 are
losses. *Asked* is what this part of the project was meant to reach.

- Machine: $(nproc) CPUs ($(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), kernel $(uname -r | cut -d- -f1)
- Peers: $(nbdkit --version | head -1), $(fio --version), a plain file under a loop device

TEXT

# The targets: a workload, a peer, the least ratio.
awk -F'\t' "$(cat "$(dirname "$0")/median.awk")"'
function ratio(work, peer,    ours, theirs, of, r, text) {
    of = (work in base) ? base[work] : work
    ours = median(all[work, "vellum"]); theirs = median(all[of, peer])
    if (ours == "" || theirs == "" || theirs == 0) return "-"
    r = ours / theirs
    text = sprintf("%.2f", r)
    if ((work, peer) in asked) text = text sprintf(" (asked %.1f: %s)", asked[work, peer], r >= asked[work, peer] ? "yes" : "**no**")
    return text
}
function cell(work, peer) { return (work, peer) in all ? median(all[work, peer]) : "-" }
BEGIN {
    asked["random write, depth 32", "memory"] = 0.8
    asked["random write, depth 32", "file"] = 1.2
    asked["random write, depth 1", "file"] = 0.9
    asked["sequential write 128K", "memory"] = 0.8
    asked["cold random read, depth 32", "file"] = 1.0
    asked["append + fsync, data=journal", "file"] = 1.2
    base["append + fsync, data=journal,journal_async_commit"] = "append + fsync, data=journal"
    unit["sequential write 128K"] = "MB/s"
}
{
    if (!($1 in seen)) { seen[$1] = 1; order[++works] = $1 }
    all[$1, $2] = all[$1, $2] " " $3
}
END {
    print "| | | vellum | nbdkit memory | nbdkit file | plain loop | to memory | to file | to plain loop |"
    print "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        if (w ~ /^(RSS|idle|first|space)/) continue
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", w, (w in unit) ? unit[w] : "ops/s", cell(w, "vellum"),
            cell(w, "memory"), cell(w, "file"), cell(w, "plain"), ratio(w, "memory"), ratio(w, "file"), ratio(w, "plain")
    }
    print "\nBlocks are of 4 KiB unless said. The plain loop is a file under a loop device, without NBD and FUSE. With"
    print "`journal_async_commit` the ratios are to the peers without it: on them it would not be safe.\n"
    print "| | | asked |"
    print "| --- | ---: | --- |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        if (w !~ /^(RSS|idle|first)/) continue
        v = median(all[w, "vellum"])
        if (w ~ /^RSS/) printf "| %s | %s MiB | 4 B a mapped block, and the buffers |\n", w, v
        else if (w ~ /^idle/) printf "| %s | %s | 0: %s |\n", w, v, v + 0 == 0 ? "yes" : "**no**"
        else printf "| %s | %.2f s | under 1 s: %s |\n", w, v, v + 0 < 1 ? "yes" : "**no**"
    }
    print "\nThe time after `kill -9` is from starting the server to the first answered read of a new client, cold caches; after the cut, which loses what was not synced in a cache of its own, from opening the volume to the first read."
    print "\n## A sparse file, or one with all of its space\n"
    print "`vellum create`, and the same with `--preallocate`, which writes the whole file once: each block of the log is"
    print "written for the first time here. A volume on a sparse file also gives back the space of what it frees.\n"
    print "| | | sparse | preallocated | to preallocated |"
    print "| --- | --- | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        if (w !~ /^space/) continue
        s = median(all[w, "sparse"]); p = median(all[w, "preallocated"])
        printf "| %s | %s | %s | %s | %s |\n", substr(w, 8), (w ~ /create/ ? "s" : w ~ /sequential/ ? "MB/s" : "ops/s"), s, p,
            (p + 0 ? sprintf("%.2f", s / p) : "-")
    }
}' "$results"
