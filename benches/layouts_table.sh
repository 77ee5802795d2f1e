#!/usr/bin/env bash
# Turns results (workload, configuration, key, value; tab-separated) into the document: what each layout writes, and how fast, for loads
# with duplicates, against plain storage.
set -euo pipefail
results=$1 rounds=$2 volume=$3 scale=$4

cat <<TEXT
# Each layout under a real ext4

\`make bench-layouts\` on $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD). Medians of $rounds round(s) in which the configurations
take turns; a volume of $volume, workloads of tests/workloads at $scale% of their usual size. All configurations have the same chain: NBD
server, nbdfuse, loop device, ext4 in \`data=ordered\`; the unmount is inside every window. OrderMergeDedup's figures 2 and 3, on a real device file; in
the lab: [layouts.md](layouts.md).

- **plain**: nbdkit's file plugin
- **log**, **shadow**: a volume of that layout, \`dedup=on\`, all else off
- **order**, **+ merging**, **+ anticipation**: a volume of the layout \`ordered\`, the same, with \`merging=off,anticipation=off\`, with \`anticipation=off\`, and as it is by default
- **strong persistence**: with \`persistence=strong\`, which the log does not have
- **ideal**: what plain storage would write if it stored each content that was there already as nothing: what the log's index found
- Machine: $(nproc) CPUs ($(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), kernel $(uname -r | cut -d- -f1), $(nbdkit --version | head -1)
TEXT

awk -F'\t' "$(cat "$(dirname "$0")/median.awk")"'
function of(work, who, key) { return (work, who, key) in all ? median(all[work, who, key]) : "" }
function ratio(a, b) { return a == "" || b == "" || b == 0 ? "-" : sprintf("%.2f", a / b) }
function part(work, who,    b, p) {
    b = of(work, who, "medium_bytes"); p = of(work, "ordered", "medium_bytes")
    return b == "" || p == 0 ? "-" : sprintf("%.1f", 100 * b / p)
}
function duplicates(work) { return 100 * of(work, "log", "dedup_blocks") / of(work, "log", "host_blocks") }
function asked(saved, met) { return saved < 23 ? "" : met ? "yes" : "**no**" }
function flushed(work,    f) { f = of(work, "ordered", "flushes"); return f > 0 ? sprintf("%.0f", of(work, "ordered", "host_blocks") / f) : "-" }
{
    if (!($1 in seen)) { seen[$1] = 1; order[++works] = $1 }
    all[$1, $2, $3] = all[$1, $2, $3] " " $4
}
END {
    print "\n## Bytes to the medium, in per cent of what plain storage writes\n"
    print "Headers, tables, map checkpoints and what the collector moved included. Asked of loads with 23% duplicates or more: `ordered`"
    print "within 5 points of the ideal, and at least 18% saved (15% under strong persistence).\n"
    n = split("log shadow alone merging tables", who, " ")
    print "Weak persistence (figure 2):\n"
    print "| | MiB, plain | blocks a flush | duplicates | ideal | log | shadow | order | + merging | + anticipation | above the ideal | as asked |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        saved = duplicates(w)
        printf "| %s | %.1f | %s | %.1f%% | %.1f", w, of(w, "ordered", "medium_bytes") / 1048576, flushed(w), saved, 100 - saved
        for (j = 1; j <= n; j++) printf " | %s", part(w, who[j])
        above = part(w, "tables") - (100 - saved)
        printf " | %.1f | %s |\n", above, asked(saved, above <= 5 && part(w, "tables") <= 82)
    }
    n = split("strong-shadow strong-alone strong-merging strong", who, " ")
    print "\nStrong persistence (figure 3):\n"
    print "| | ideal | shadow | order | + merging | + anticipation | above the ideal | as asked |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        saved = duplicates(w)
        printf "| %s | %.1f", w, 100 - saved
        for (j = 1; j <= n; j++) printf " | %s", part(w, who[j])
        printf " | %.1f | %s |\n", part(w, "strong") - (100 - saved), asked(saved, part(w, "strong") <= 85)
    }
    print "\n`shadow` is not Dmdedup. What that would write is counted in the lab, for browsing, the sort, the frames and YCSB from traces of the same programs ([layouts.md](layouts.md)):"
    print "9 to 11 times what plain storage writes under strong persistence, as the paper says (5 to 12), and 0.6 to 2.6 times under weak."
    n = split("log tables strong shadow", who, " ")
    print "\n## Operations a second, and syncs of the medium\n"
    print "Asked of `ordered`: at least 0.9 of the log on random writes with a flush each 32.\n"
    print "| | plain | log | ordered | strong | shadow | ordered to log | ordered to plain | syncs: plain | log | ordered | strong | shadow |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (i = 1; i <= works; i++) {
        w = order[i]
        printf "| %s | %.0f", w, of(w, "ordered", "rate")
        for (j = 1; j <= n; j++) printf " | %.0f", of(w, who[j], "rate")
        r = ratio(of(w, "tables", "rate"), of(w, "log", "rate"))
        if (w ~ /^random/ && r != "-") r = r " (asked 0.9: " (r >= 0.9 ? "yes" : "**no**") ")"
        printf " | %s | %s | %d", r, ratio(of(w, "tables", "rate"), of(w, "ordered", "rate")), of(w, "ordered", "syncs")
        for (j = 1; j <= n; j++) printf " | %d", of(w, who[j], "syncs")
        print " |"
    }
}' "$results"
