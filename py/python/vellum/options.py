"""The options of a run. Made from the lab's own: UPDATE=1 cargo test -p vellum-cli --test reference."""

from typing import TypedDict

Value = str | int | float


class Options(TypedDict, total=False):
    r"""The options of a run, as `vellum lab run` has them. Sizes are numbers of bytes or like "10G".

    queue: The submission queue of a tenant or of a job of fio, and that queue's class: urgent, high, medium (the default) or low. On a drive whose file has [queues]. Tenants without one take turns
    capacity: Flash to simulate; by default some GiB, and what the trace needs
    op: Over-provisioning in percent of what the host sees; by default the device's
    erase_limit: Erasures that a block endures; by default the device's
    flush_time: The time of a flush in microseconds, without the writes that it waits for. Default: 0 for a drive with a page map, and a block device's own
    fcfs: Serve each die strictly in order, reads too
    wear_out: Let blocks wear out at limits around erase_limit and be replaced by spare ones, until there are none: the drive's end
    limit_spread: The standard deviation of the blocks' limits, in percent of erase_limit: 0 to 30
    spare: Spare blocks of each die beyond its capacity, in percent of its blocks: 0.1 to 20
    factory_bad: Blocks that are bad when the drive is new, in percent: 0 to 10. Each takes a spare one
    until_worn_out: Go on with the load until the drive is worn out
    bit_errors: Let reads find bits wrong: the share in a new block and in one at its limit, like 1e-5:5e-3. From 1e-9 to 0.1
    ecc_bits: Bits that are corrected in 1 KiB
    read_retries: How often a read is tried again, each time with half as many bits wrong, before it is a read error
    suspend: What stops for a read that the host waits for: program, erase or both
    suspend_time: What stopping takes, and again what going on takes, in microseconds
    suspend_most: How often one program or erasure is stopped, at most
    cache_commands: Let data cross the channel while the cells are busy (cache program, cache read)
    single_plane: Let each program be of one plane's page, even where planes could work together
    hash_cycles: Cycles that hashing a block takes (SHA-1: 47548 in CAFTL's measurement): one block after the other, before the engine looks it up
    hash_clock: The hash engine's clock
    prehash_cycles: Cycles of a weak hash that is looked up first (CRC32: 4120): hash_cycles are then spent where it is known alone. For policies with `decide=` a hash; the others compare bytes then
    hash_switch: Hash nothing from the moment the write buffer is 95% full until it is half empty
    read_speed: Reads: for up to 8 sizes up to 1M what one takes by itself and how many MB/s the device does of them, like 4K:90:410,128K:420:540. Between two sizes times are on the line between theirs
    write_speed: Writes, likewise
    theta: With zipf: how much more popular some are than others, from 0 (not at all) to 5; theta, or s, elsewhere. By default 0.99
    zones: With hot-cold: these zones in place of its two, in percent of the volume, of the writes and of the reads (by default as of the writes), like 10:60:20,40:40:20,50:0:60. Together each is 100%; what has no writes is only read
    reads: Reads among the requests, in percent
    drift: Let the pattern move over the volume: by so many percent of it while as many requests come as write it once
    bursts: Let so many requests come at once, and as many again after so many microseconds, whether they are answered or not
    depth: Keep this many requests in flight. Default for a load: 32; for a trace: its own times, or 32 if those are made up
    think: With depth: wait this long between requests; for a trace, `own` waits as long as its times say. After a flush, wait for its answer
    precondition: How to prepare the drive. none: not at all. fill: write each block once. load: fill, then run the load until its write amplification is stable. steady: fill, then overwrite at random until it is stable
    requests: Requests of a load; by default as many as write the volume twice
    request_size: Bytes of a load's requests, a multiple of 4096
    zeros: Blocks of zeros in a load's writes, in percent
    duplicates: Blocks in a load's writes whose content comes again, in percent
    again: Which contents come again: popular ones, of which there are a hundredth as many as blocks (popular), or those that were written a short time before (soon)
    sizes: The model of compressed sizes that the policy `compress` uses (see `vellum lab list`)
    flush_every: A flush after so many of a load's writes
    journal: Put a journaling file system between the load and the disk: what jbd2 makes of it (data, ordered or writeback); a flush of the load is an fsync
    journal_size: The journal's size
    async_commit: Commit with one flush instead of two (`journal_async_commit`)
    drive_orders: Commit without the first flush: the drive keeps the order (base:oftl, base:stream, vellum)
    growing: The file grows: blocks that are written for the first time change their group's bitmap and descriptor (ext4), and an indirect block (ext3)
    write_back: After so many commits, write home what they have, as Linux does some seconds later; by default only when three quarters of the journal are taken
    journal_at: Where the journal of the trace's file system was on its disk, in bytes (OFFSET:LENGTH; `debugfs -R 'stat <8>'` says it in blocks): write-once needs to know
    repeat: Replay the trace so often
    same_contents: With repeat: each replay writes the same bytes again, so that all of it is a duplicate. Otherwise each writes new ones
    format: The trace's format, instead of looking
    columns: What the columns of a CSV are, like time=0:us,op=2,offset=3:sector,length=4
    in_place: Leave the trace's addresses what they are, on a volume as large as its disk, instead of moving together what is touched
    daily: What the host writes a day, to count years by; by default the trace's own rate, and one volume of a load
    seed: Everything that chance decides follows from this number
    verify: Hold every read against what was written (takes memory)
    untimed: Let nothing take time: only count what is written, moved and erased
    """

    queue: Value | None
    capacity: Value | None
    op: Value | None
    erase_limit: Value | None
    flush_time: Value | None
    fcfs: bool | None
    wear_out: bool | None
    limit_spread: Value | None
    spare: Value | None
    factory_bad: Value | None
    until_worn_out: bool | None
    bit_errors: Value | None
    ecc_bits: Value | None
    read_retries: Value | None
    suspend: Value | None
    suspend_time: Value | None
    suspend_most: Value | None
    cache_commands: bool | None
    single_plane: bool | None
    hash_cycles: Value | None
    hash_clock: Value | None
    prehash_cycles: Value | None
    hash_switch: bool | None
    read_speed: Value | None
    write_speed: Value | None
    theta: Value | None
    zones: Value | None
    reads: Value | None
    drift: Value | None
    bursts: Value | None
    depth: Value | None
    think: Value | None
    precondition: Value | None
    requests: Value | None
    request_size: Value | None
    zeros: Value | None
    duplicates: Value | None
    again: Value | None
    sizes: Value | None
    flush_every: Value | None
    journal: Value | None
    journal_size: Value | None
    async_commit: bool | None
    drive_orders: bool | None
    growing: Value | None
    write_back: Value | None
    journal_at: Value | None
    repeat: Value | None
    same_contents: bool | None
    format: Value | None
    columns: Value | None
    in_place: bool | None
    daily: Value | None
    seed: Value | None
    verify: bool | None
    untimed: bool | None
