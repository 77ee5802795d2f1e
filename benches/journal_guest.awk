# Tables of journal_guest.sh: NAME CONFIGURATION WRITTEN FLUSHES HOST HOMES REMAPPED COLLIDED UNEQUAL a line.
{
    if (!($1 in seen)) { seen[$1] = 1; names[++count] = $1 }
    there[$2] = 1
    for (field = 3; field <= NF; field++) value[$1, $2, field] = $field
}
function mib(name, configuration) { return (name, configuration, 3) in value ? sprintf("%.1f", value[name, configuration, 3] / 1048576) : "-" }
function ratio(name, one, other) {
    return (name, one, 3) in value && (name, other, 3) in value ? sprintf("%.2f", value[name, one, 3] / value[name, other, 3]) : "-"
}
function share(name, configuration) {
    return value[name, configuration, 6] > 0 ? sprintf("%.1f%%", 100 * value[name, configuration, 7] / value[name, configuration, 6]) : "-"
}
function removed(name, configuration) {
    return value[name, configuration, 5] > 0 ? sprintf("%.1f%%", 100 * value[name, configuration, 7] / value[name, configuration, 5]) : "-"
}
END {
    print "## MiB written to the disk\n"
    print "| | plain journal | plain ordered | off | ublk | nbd | ublk to plain journal | ublk to plain ordered | ublk to off |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (n = 1; n <= count; n++) {
        name = names[n]
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, mib(name, "journal"), mib(name, "ordered"), mib(name, "off-ublk"), mib(name, "on-ublk"), mib(name, "on-nbd"), \
            ratio(name, "on-ublk", "journal"), ratio(name, "on-ublk", "ordered"), ratio(name, "on-ublk", "off-ublk")
    }
    print "\n## What write-once saw, and flushes of the disk\n"
    print "*Removed*: of all blocks that the host wrote. Flushes of the disk: what its driver counted; a durable write is one.\n"
    print "| | host blocks | home writes | remapped: ublk | nbd | collided | compared unequal | removed | flushes: plain journal | plain ordered | off | ublk | nbd |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (n = 1; n <= count; n++) {
        name = names[n]
        printf "| %s | %d | %d | %s | %s | %d | %d | %s | %d | %d | %d | %d | %d |\n", name, value[name, "on-ublk", 5], value[name, "on-ublk", 6], share(name, "on-ublk"), share(name, "on-nbd"), \
            value[name, "on-ublk", 8], value[name, "on-ublk", 9], removed(name, "on-ublk"), value[name, "journal", 4], value[name, "ordered", 4], value[name, "off-ublk", 4], \
            value[name, "on-ublk", 4], value[name, "on-nbd", 4]
    }
}
