//! The metric families for the counters of servers, as a table.

use prometheus_client::registry::Unit;

/// A family of metrics, with one metric for each volume, or for each volume and kind.
pub(super) struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub unit: Option<Unit>,
    pub kind: Kind,
    /// The label that distinguishes the members, if there are several.
    pub label: &'static str,
    /// Each member's label value and its counter, named as in `vellum stats --all`.
    pub members: Members,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Only grows while the server runs.
    Counter,
    /// A current value.
    Gauge,
}

const BYTES: Option<Unit> = Some(Unit::Bytes);

pub(super) type Members = &'static [(&'static str, &'static str)];

const fn counter(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    label: &'static str,
    members: Members,
) -> Family {
    let kind = Kind::Counter;
    Family {
        name,
        help,
        unit,
        kind,
        label,
        members,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    counter: Members,
) -> Family {
    let kind = Kind::Gauge;
    Family {
        name,
        help,
        unit,
        kind,
        label: "",
        members: counter,
    }
}

pub(super) const FAMILIES: &[Family] = &[
    counter(
        "vellum_client",
        "Bytes that clients have asked for",
        BYTES,
        "operation",
        &[
            ("read", "clients.read.bytes"),
            ("write", "clients.write.bytes"),
            ("write_zeroes", "clients.write_zeroes.bytes"),
            ("discard", "clients.discard.bytes"),
        ],
    ),
    counter(
        "vellum_client_requests",
        "Requests of clients",
        None,
        "operation",
        &[
            ("read", "clients.read.requests"),
            ("write", "clients.write.requests"),
            ("write_zeroes", "clients.write_zeroes.requests"),
            ("discard", "clients.discard.requests"),
            ("flush", "clients.flush.requests"),
        ],
    ),
    counter(
        "vellum_client_errors",
        "Requests that were answered with an error",
        None,
        "",
        &[("", "clients.refused")],
    ),
    counter(
        "vellum_medium_written",
        "Bytes written to the medium, by what they are: what wears it",
        BYTES,
        "cause",
        &[
            ("data", "medium.data_bytes"),
            ("headers", "medium.header_bytes"),
            ("collector", "medium.moved_bytes"),
            ("summaries", "medium.summary_bytes"),
            ("map", "medium.map_bytes"),
            ("links", "medium.link_bytes"),
            ("directory", "medium.directory_bytes"),
            ("counts", "medium.count_bytes"),
            ("fingerprints", "medium.fingerprint_bytes"),
            ("editions", "medium.edition_bytes"),
        ],
    ),
    counter(
        "vellum_medium_read",
        "Bytes read from the medium, by what for",
        BYTES,
        "cause",
        &[
            ("client", "medium.read_client_bytes"),
            ("collector", "medium.read_collector_bytes"),
            ("compare", "medium.read_compare_bytes"),
            ("fold", "medium.read_fold_bytes"),
            ("metadata", "medium.read_metadata_bytes"),
        ],
    ),
    counter(
        "vellum_medium_syncs",
        "Syncs of the medium, and writes that are durable by themselves",
        None,
        "how",
        &[
            ("sync", "medium.syncs"),
            ("durable_write", "medium.durable_writes"),
        ],
    ),
    counter(
        "vellum_medium_errors",
        "Operations of the medium that failed",
        None,
        "",
        &[("", "medium.errors")],
    ),
    counter(
        "vellum_flushes",
        "Flushes of clients, by how they were answered",
        None,
        "how",
        &[
            ("free", "flushes.free"),
            ("merged", "flushes.merged"),
            ("passed_on", "flushes.passed_on"),
        ],
    ),
    counter(
        "vellum_spared_blocks",
        "Blocks of 4 KiB that were not written, by why",
        None,
        "why",
        &[
            ("journal", "core.remapped_blocks"),
            ("duplicate", "core.dedup_blocks"),
            ("overwritten", "core.absorbed_blocks"),
        ],
    ),
    counter(
        "vellum_journal_commits",
        "Commits seen in journals",
        None,
        "",
        &[("", "write_once.commits")],
    ),
    counter(
        "vellum_collections",
        "Segments that the collector has emptied",
        None,
        "",
        &[("", "core.collections")],
    ),
    counter(
        "vellum_damaged_blocks",
        "Blocks that failed their checksum or could not be read",
        None,
        "how",
        &[
            ("checksum", "core.corrupt_blocks"),
            ("unreadable", "core.unreadable_blocks"),
        ],
    ),
    counter(
        "vellum_snapshots_taken",
        "Snapshots that the schedule has taken",
        None,
        "",
        &[("", "history.taken")],
    ),
    counter(
        "vellum_snapshots_deleted",
        "Snapshots that the schedule has deleted: no rule kept them, or there was no room",
        None,
        "why",
        &[
            ("rule", "history.deleted"),
            ("room", "history.deleted_for_room"),
        ],
    ),
    counter(
        "vellum_snapshots_failed",
        "How often the schedule could not take a snapshot, or not delete one",
        None,
        "",
        &[("", "history.failed")],
    ),
    gauge(
        "vellum_capacity",
        "Room for data",
        BYTES,
        &[("", "room.capacity_bytes")],
    ),
    gauge(
        "vellum_used",
        "Room for data that is in use",
        BYTES,
        &[("", "room.used_bytes")],
    ),
    gauge(
        "vellum_mapped",
        "What clients see of it, zeros not counted",
        BYTES,
        &[("", "space.mapped_bytes")],
    ),
    gauge(
        "vellum_saved",
        "What compression, deltas and deduplication save of that",
        BYTES,
        &[("", "space.saved_bytes")],
    ),
    gauge(
        "vellum_segments_free",
        "Segments that nothing is in",
        None,
        &[("", "core.free_segments")],
    ),
    gauge(
        "vellum_requests_waiting",
        "Requests that wait for room, or for the medium",
        None,
        &[("", "core.waiting_requests")],
    ),
];
