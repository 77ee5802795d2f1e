#!/usr/bin/env bash
# Turns results (workload, configuration, key, value; tab-separated) into the document: bytes and operations with blocks stored in parts of
# pages, against plain storage in data=ordered and against the same volume without packing.
set -euo pipefail
results=$1 rounds=$2 volume=$3 scale=$4

cat <<TEXT
# What is written when small things share a page${LIMIT:+, on a slow disk}

\`${LIMIT:+LIMIT=$LIMIT }make bench-packing\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD). Medians of $rounds round(s) in which the configurations
take turns; a volume of $volume with a journal of 64 MiB, workloads of tests/workloads at $scale% of their usual size. All
configurations have the same chain: NBD server, nbdfuse, loop device, ext4; the unmount is inside every window.${LIMIT:+ The servers are held to $LIMIT bytes a
second of writes and as many of reads on their disk: an SD card or an eMMC.}

- **ordered**: nbdkit's file plugin, \`data=ordered\`; **ext3**: the same with an ext3, on CSA-FS's kinds of load
- **on**: a volume with write-once journaling (\`replay=on\`) and nothing else, \`data=journal,journal_async_commit\`
- **lz4**, **zstd**: the same with \`compress=lz4\`, \`compress=zstd\`; **lz4+delta**, **zstd+delta**: and with \`delta=on\`
- **all**: with \`compress=zstd,delta=on,zero=on,dedup=on\`; **least**: with \`compress=zstd:6\` instead
- What is *asked* is asked of everything on, which is the last of these
- Machine: $(nproc) CPUs ($(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), kernel $(uname -r | cut -d- -f1), $(nbdkit --version | head -1)
TEXT

awk -F'\t' "$(cat "$(dirname "$0")/median.awk")"'
function of(work, who, key) { return (work, who, key) in all ? median(all[work, who, key]) : "" }
function ratio(a, b) { return a == "" || b == "" || b == 0 ? "-" : sprintf("%.2f", a / b) }
function mean(a, b) { return a == "" || b == "" || b == 0 ? "-" : sprintf("%.0f", a / b) }
# The most bytes, relative to data=ordered, that the issue allows for each kind of workload. Its limits for 4 KiB writes apply to a file
# whose blocks are reserved: on ext4 in data=ordered 2.13 blocks for each random write and 1.03 in sequence, as here, where a written file
# has 1.16 and 1.05.
function asked(work) {
    if (work ~ /SQLite/) return 0.15
    if (work ~ /varmail/) return 0.30
    if (work ~ /source tree/) return 0.35
    if (work ~ /git/) return 0.45
    if (work ~ /random, fsync each 10, reserved$/) return 0.65
    if (work ~ /sequential, fsync each 100, reserved$/) return 0.95
    return ""
}
# How much less CSA-FS writes than ext3 (its section 5), and the required speed of everything on, relative to nothing on.
function less(work) { return work ~ /compile/ ? 55 : 77 }
function speed(work) { return work ~ /compile/ ? 0.93 : 1.1 }
function has(who,    i) { for (i = 1; i <= works; i++) if ((order[i], who, "rate") in all) return 1; return 0 }
function verdict(is_so) { return is_so ? "yes" : "**no**" }
function bytes(work, who,    b) { b = of(work, who, "medium_bytes"); return b == "" ? "-" : sprintf("%.1f", b / 1048576) }
{
    if (!($1 in seen)) { seen[$1] = 1; order[++works] = $1 }
    all[$1, $2, $3] = all[$1, $2, $3] " " $4
}
END {
    known = split("on lz4 lz4+delta zstd zstd+delta zstd+log all least", every, " ")
    for (j = 1; j <= known; j++) if (has(every[j])) who[++n] = every[j]
    print "\n## MiB written to the medium, and how many of what data=ordered writes\n"
    print "Chunk headers, summaries, map checkpoints and what the collector moved included.\n"
    for (j = 1; j <= n; j++) names = names " | " who[j]
    print "| | ordered" names names " | asked |"
    printf "| ---"
    for (j = 1; j <= 2 * n + 2; j++) printf " | ---:"
    print " |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s | %s", w, bytes(w, "ordered")
        for (j = 1; j <= n; j++) printf " | %s", bytes(w, who[j])
        for (j = 1; j <= n; j++) {
            r = ratio(of(w, who[j], "medium_bytes"), of(w, "ordered", "medium_bytes"))
            printf " | %s", r
            if (asked(w) != "" && r != "-" && r > 0) { logs[j] += log(r); counted[j]++ }
        }
        limit = asked(w)
        printf " | %s |\n", limit == "" || r == "-" ? "" : limit ": " (r <= limit ? "yes" : "**no**")
    }
    if (counted[n] > 0) {
        printf "| *geometric mean of those with a figure asked* |"
        for (j = 1; j <= n; j++) printf " |"
        for (j = 1; j <= n; j++) printf " | %.2f", exp(logs[j] / counted[j])
        printf " | 0.35: %s |\n", exp(logs[n] / counted[n]) <= 0.35 ? "yes" : "**no**"
    }
    for (i = 1; i <= works; i++) {
        w = order[i]
        ext3 = of(w, "ext3", "medium_bytes")
        if (ext3 == "") continue
        if (!headed++) {
            print "\n## Against ext3, as CSA-FS compares itself\n"
            print "MiB to the medium; what is *asked* is the paper\047s.\n"
            print "| | ext3 | ordered | on | zstd+delta | all | least | less than ext3: all, least | asked | operations to on: zstd+delta, all | asked |"
            print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | --- |"
        }
        saved = 100 * (1 - of(w, "all", "medium_bytes") / ext3)
        least = of(w, "least", "medium_bytes")
        most = least == "" ? "-" : sprintf("%.0f%%", 100 * (1 - least / ext3))
        faster = ratio(of(w, "zstd+delta", "rate"), of(w, "on", "rate"))
        printf "| %s | %s | %s | %s | %s | %s | %s | %.0f%%, %s | %d%%: %s | %s, %s | %s: %s |\n", w, bytes(w, "ext3"), bytes(w, "ordered"), bytes(w, "on"),
            bytes(w, "zstd+delta"), bytes(w, "all"), bytes(w, "least"), saved, most, less(w), verdict(saved >= less(w)), faster,
            ratio(of(w, "all", "rate"), of(w, "on", "rate")), speed(w), verdict(faster >= speed(w))
    }
    print "\n## Operations a second\n"
    print "| | ordered" names " | lz4 to on | zstd to on | zstd+delta to zstd | all to ordered (asked 0.95) |"
    printf "| ---"
    for (j = 1; j <= n + 5; j++) printf " | ---:"
    print " |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s | %.0f", w, of(w, "ordered", "rate")
        for (j = 1; j <= n; j++) printf " | %.0f", of(w, who[j], "rate")
        printf " | %s | %s | %s | %s |\n", ratio(of(w, "lz4", "rate"), of(w, "on", "rate")), ratio(of(w, "zstd", "rate"), of(w, "on", "rate")),
            ratio(of(w, "zstd+delta", "rate"), of(w, "zstd", "rate")), ratio(of(w, "all", "rate"), of(w, "ordered", "rate"))
    }
    print "\n## Blocks in parts, with zstd; and deltas, with everything on\n"
    print "| | host blocks | in the journal | remapped | in parts | bytes a part | parts read | deltas | bytes a delta | bases read |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s | %d | %d | %d | %d | %s | %d | %d | %s | %d |\n", w, of(w, "zstd", "host_blocks"), of(w, "zstd", "journal_blocks"), of(w, "zstd", "remapped_blocks"),
            of(w, "zstd", "packed_blocks"), mean(of(w, "zstd", "packed_bytes"), of(w, "zstd", "packed_blocks")),
            of(w, "zstd", "packed_reads"), of(w, "all", "delta_blocks"), mean(of(w, "all", "delta_bytes"), of(w, "all", "delta_blocks")),
            of(w, "all", "base_reads")
    }
}' "$results"
