#!/usr/bin/env bash
# Turns results (workload, configuration, key, value; tab-separated) into the document: medians, ratios, and targets.
set -euo pipefail
results=$1 rounds=$2 volume=$3 scale=$4

cat <<TEXT
# A journal that costs nothing${LIMIT:+, on a slow disk}

\`${LIMIT:+LIMIT=$LIMIT }make bench-journal\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD). Medians of $rounds round(s) in which the configurations
take turns; a volume of $volume with a journal of 64 MiB, workloads of tests/workloads at $scale% of their usual size. All
configurations have the same chain: NBD server, nbdfuse, loop device, ext4.${LIMIT:+ The servers are held to $LIMIT bytes a second of writes and as many of reads on
their disk: an SD card or an eMMC. What is not measured here is the same as in [journal.md](journal.md).}

- **plain journal**, **plain ordered**: nbdkit's file plugin, \`data=journal\` and \`data=ordered\`
- **off**: a volume without write-once, \`data=journal,journal_async_commit\`
- **on**: the same with write-once, as \`vellum attach --mount\` has it: the whole block's hash proposes, a comparison decides, and after a
  crash the volume replays what was committed (\`replay=on\`), so that the flush after home writes is free
- **full**: a file that has all of its space, written once, as a partition or a drive has: \`vellum create --preallocate\`, and the same for
  plain storage. All other files are sparse, and the file system below allocates what is written for the first time: a log is that
  until it has gone round once ([0010](../decisions/0010-sparse-by-default.md))
- **paper**: the same with the paper's hash of 64 bytes, its rule that what collides is written, and without \`replay\`; one round, for its counts
- **SHA-1**: no write-once, but deduplication of everything by SHA-1, without a comparison, as the paper's Dmdedup has it, with an index in memory
  that holds all; one round
- **memory**: nbdkit's memory plugin under the file system of **on**: storage that costs no writing and no sync. What it does not reach, nothing
  behind this chain does
- No other policy of the volume reduces writes: zeros and duplicates are stored
- Machine: $(nproc) CPUs ($(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), kernel $(uname -r | cut -d- -f1), $(nbdkit --version | head -1)

The unmount is inside every window. Ratios are of **on**. *Asked* is what this part of the project was meant to reach.
TEXT

awk -F'\t' "$(cat "$(dirname "$0")/median.awk")"'
function of(work, who, key) { return (work, who, key) in all ? median(all[work, who, key]) : "" }
function shown(value, format) { return value == "" ? "-" : sprintf(format, value) }
function verdict(ratio, asked, most) {
    return sprintf(" (asked %s%s: %s)", most ? "at most " : "", asked, (most ? ratio <= asked : ratio >= asked) ? "yes" : "**no**")
}
# The ratio of one configuration to another, and whether it meets the target.
function against(work, who, whom, key, asked, most,    ours, theirs) {
    ours = of(work, who, key); theirs = of(work, whom, key)
    if (ours == "" || theirs == "" || theirs == 0) return "-"
    return sprintf("%.2f", ours / theirs) (asked == "" ? "" : verdict(ours / theirs, asked, most))
}
function ratio(work, who, key, asked, most) { return against(work, "on", who, key, asked, most) }
function part(work, who, key, whole,    a, b) {
    a = of(work, who, key); b = of(work, who, whole)
    return a == "" || b == "" || b == 0 ? "" : 100 * a / b
}
function busy(work, who,    all_of_it) {
    all_of_it = of(work, who, "ticks")
    return all_of_it == "" || all_of_it == 0 ? "" : all_of_it - of(work, who, "idle_ticks")
}
function mib(work, who,    bytes) {
    bytes = of(work, who, "medium_bytes")
    return bytes == "" ? "-" : sprintf("%.1f", bytes / 1048576)
}
function per(work, who, key, whole, asked,    a, b) {
    a = of(work, who, key); b = of(work, who, whole)
    return a == "" || b == "" || b == 0 ? "-" : sprintf("%.2f", a / b) (asked == "" ? "" : verdict(sprintf("%.2f", a / b) + 0, asked, 1))
}
function measured(who,    i) { for (i = 1; i <= works; i++) if ((order[i], who, "rate") in all) return 1; return 0 }
function each_fsync(work) { return work ~ /each 10?$|SQLite|PostgreSQL|varmail/ }
function halved(work) { return work ~ /each 1000?$|copy|clone/ && work !~ /each 10?$/ }
{
    if (!($1 in seen)) { seen[$1] = 1; order[++works] = $1 }
    all[$1, $2, $3] = all[$1, $2, $3] " " $4
}
END {
    print "\n## Operations a second\n"
    print "| | plain journal | plain ordered | off | on | paper | memory | to plain journal | to plain ordered | memory to plain ordered | to memory | to off |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        free = of(w, "free", "rate"); ordered = of(w, "ordered", "rate")
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", w, shown(of(w, "journal", "rate"), "%.0f"),
            shown(ordered, "%.0f"), shown(of(w, "off", "rate"), "%.0f"), shown(of(w, "on", "rate"), "%.0f"),
            shown(of(w, "paper", "rate"), "%.0f"), shown(free, "%.0f"), ratio(w, "journal", "rate", each_fsync(w) ? 1.5 : 1.0, 0),
            ratio(w, "ordered", "rate", 0.95, 0), free == "" || ordered == "" || ordered == 0 ? "-" : sprintf("%.2f", free / ordered),
            ratio(w, "free", "rate", "", 0), ratio(w, "off", "rate", "", 0)
    }
    if (measured("on-full")) {
        print "\n### With all of the space there before\n"
        print "| | plain ordered, full | on, full | to plain ordered, full | on: full to sparse | plain ordered: full to sparse |"
        print "| --- | ---: | ---: | ---: | ---: | ---: |"
        for (i = 1; i <= works; i++) {
            w = order[i]
            printf "| %s | %s | %s | %s | %s | %s |\n", w, shown(of(w, "ordered-full", "rate"), "%.0f"), shown(of(w, "on-full", "rate"), "%.0f"),
                against(w, "on-full", "ordered-full", "rate", 0.95, 0), against(w, "on-full", "on", "rate", "", 0),
                against(w, "ordered-full", "ordered", "rate", "", 0)
        }
    }
    print "\n## Where the processors\047 time goes\n"
    print "From the mount to the end of the unmount: how much of their time the processors were busy, with whatever; and how much of that the server took.\n"
    print "| | busy: plain journal | plain ordered | on | memory | the server: plain journal | plain ordered | on | memory |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s", w
        n = split("journal ordered on free", who, " ")
        for (j = 1; j <= n; j++) printf " | %s", shown(busy(w, who[j]) == "" ? "" : 100 * busy(w, who[j]) / of(w, who[j], "ticks"), "%.0f%%")
        for (j = 1; j <= n; j++) printf " | %s", shown(busy(w, who[j]) == "" ? "" : 100 * of(w, who[j], "server_ticks") / busy(w, who[j]), "%.0f%%")
        print " |"
    }
    print "\n## MiB written to the medium\n"
    print "Chunk headers, summaries, map checkpoints and what the collector moved included.\n"
    print "| | plain journal | plain ordered | off | on | paper | to plain journal | to plain ordered | to off |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s", w
        n = split("journal ordered off on paper", who, " ")
        for (j = 1; j <= n; j++) printf " | %s", mib(w, who[j])
        printf " | %s | %s | %s |\n", ratio(w, "journal", "medium_bytes", halved(w) ? 0.55 : "", 1),
            ratio(w, "ordered", "medium_bytes", 1.05, 1), ratio(w, "off", "medium_bytes", "", 1)
    }
    print "\n## What write-once saw\n"
    print "Home writes are those that the file system sent to its home locations. *Removed* is the part of all host"
    print "blocks that was remapped instead of written. Without a copy: in no journal block that is watched.\n"
    print "| | host blocks | in the journal | home writes | remapped | collided | without a copy | compared after it was written: in memory | by reading | compared unequal | removed | paper: remapped | paper: collided | paper: removed |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        remapped = part(w, "on", "remapped_blocks", "home_writes")
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", w, shown(of(w, "on", "host_blocks"), "%d"),
            shown(of(w, "on", "journal_blocks"), "%d"), shown(of(w, "on", "home_writes"), "%d"),
            remapped == "" ? "-" : sprintf("%.1f%%", remapped) verdict(remapped, 99, 0),
            shown(of(w, "on", "collided_blocks"), "%d"), shown(of(w, "on", "missing_blocks"), "%d"),
            shown(of(w, "on", "compared_in_memory"), "%d"), shown(of(w, "on", "compared_by_reading"), "%d"), shown(of(w, "on", "compared_unequal"), "%d"),
            shown(part(w, "on", "remapped_blocks", "host_blocks"), "%.1f%%"),
            shown(part(w, "paper", "remapped_blocks", "home_writes"), "%.1f%%"), shown(of(w, "paper", "collided_blocks"), "%d"),
            shown(part(w, "paper", "remapped_blocks", "host_blocks"), "%.1f%%")
    }
    if (measured("sha1")) {
        print "\n## Against deduplication of everything\n"
        print "What write-once removes are duplicates; deduplication by SHA-1 finds them too, and hashes every block for it. The paper has 1.38 to"
        print "2.7 times its throughput, on processors without instructions for SHA-1, and with a table of fingerprints on the drive.\n"
        print "| | operations a second: on | SHA-1 | ratio | MiB to the medium: on | SHA-1 | blocks removed: on | SHA-1 | SHA-1: part of the time in hashing |"
        print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        for (i = 1; i <= works; i++) {
            w = order[i]
            printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", w, shown(of(w, "on", "rate"), "%.0f"), shown(of(w, "sha1", "rate"), "%.0f"),
                ratio(w, "sha1", "rate", "", 0), mib(w, "on"), mib(w, "sha1"),
                shown(part(w, "on", "remapped_blocks", "host_blocks"), "%.1f%%"), shown(part(w, "sha1", "dedup_blocks", "host_blocks"), "%.1f%%"),
                shown(part(w, "sha1", "fingerprint_seconds", "seconds"), "%.1f%%")
        }
    }
    print "\n## Syncs\n"
    print "Flushes are what the file system sent; syncs what the medium was asked. Commits are those of jbd2, the last one included.\n"
    print "| | commits | flushes: plain journal | plain ordered | on | of these free | merged | syncs: off | on | flushes a commit: plain journal | plain ordered | syncs a commit: on | syncs an operation: on |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", w, shown(of(w, "on", "commits"), "%d"),
            shown(of(w, "journal", "flushes"), "%d"), shown(of(w, "ordered", "flushes"), "%d"), shown(of(w, "on", "flushes"), "%d"),
            shown(of(w, "on", "flushes_free"), "%d"), shown(of(w, "on", "flushes_merged"), "%d"),
            shown(of(w, "off", "syncs"), "%d"), shown(of(w, "on", "syncs"), "%d"),
            per(w, "journal", "flushes", "commits"), per(w, "ordered", "flushes", "commits"),
            per(w, "on", "syncs", "commits", 1), per(w, "on", "syncs", "operations", w == "SQLite" ? 3.33 : "")
    }
    print "\nWhat the syncs of **on** were for: a flush each, and three for a map checkpoint of our own (its leaves, its root, the superblock). *Commits* are those whose commit"
    print "block was seen. *Journal besides*: flushes behind other writes into the journal, that is its superblock, which says where the log begins: at the mount and the unmount, and when room"
    print "is made in the log. *Home*: behind home writes alone that the log had not told of at their commit: of transactions of more than 256 blocks"
    print "([0014](../decisions/0014-replay-by-the-volume.md)), and the file system\047s superblock at the mount and the unmount.\n"
    print "| | syncs | commits | journal besides | home | map checkpoints, three times |"
    print "| --- | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        homes = of(w, "on", "flushes_of_homes")
        if (homes == "") continue
        commits = of(w, "on", "commit_blocks")
        waited = of(w, "on", "flushes") - of(w, "on", "flushes_free") - of(w, "on", "flushes_merged")
        printf "| %s | %d | %d | %d | %d | %d |\n", w, of(w, "on", "syncs"), commits, waited - homes - commits, homes, 3 * of(w, "on", "map_checkpoints")
    }
    if (measured("traced")) {
        print "\nWhy the file system flushes, with `data=journal,journal_async_commit` on plain storage: what it wrote since the flush before.\n"
        print "| | the journal alone | home locations alone | both | nothing |"
        print "| --- | ---: | ---: | ---: | ---: |"
        for (i = 1; i <= works; i++) {
            w = order[i]
            printf "| %s | %s | %s | %s | %s |\n", w, shown(of(w, "traced", "after_journal"), "%d"), shown(of(w, "traced", "after_home"), "%d"),
                shown(of(w, "traced", "after_both"), "%d"), shown(of(w, "traced", "after_nothing"), "%d")
        }
    }
}' "$results"
