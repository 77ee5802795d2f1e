//! `replay`: a volume that knows what a journal commits needs no sync for home writes.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/run.rs"]
mod run;

use run::run;
use std::sync::Arc;
use vellum_lab::drives;
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::replay::{Reading, RepeatedContents, TraceFile};
use vellum_lab::scenario::{Device, Load, Scenario, Synthetic};
use vellum_lab::tenants::{Tenant, Tenants};
use vellum_lab::workload;
use vellum_trace::{Block, Committed, Content, Entry, Header, Op, Request, Sizes, Writer};

/// Far apart, and the homes first: everything has been moved when it is read.
const HOMES: u64 = 10_000;
const JOURNAL: u64 = 200_000;
const JOURNAL_BLOCKS: u64 = 4096;
const COMMITS: u64 = 400;

fn scenario(load: Load<'_>) -> Scenario<'_> {
    Scenario {
        seed: 11,
        daily_bytes: Some(10 << 30),
        ..Scenario::new(
            Device {
                capacity: Some(256 << 20),
                over_provisioning: Some(200),
                ..Device::new(drives::own("oftl"))
            },
            load,
        )
    }
}

/// An empty trace of a disk of 4 GiB.
fn writer() -> Writer<Vec<u8>> {
    let header = Header {
        id: [3; 16],
        blocks: 1 << 20,
        began: 1,
        sizes: Sizes::None,
    };
    Writer::new(Vec::new(), &header).unwrap()
}

/// The requests to a disk whose every fsync is a commit, a flush, the home writes, and another flush. `tells`: the recorder
/// followed the journal.
fn trace(tells: bool) -> Vec<u8> {
    let mut writer = writer();
    let journal = vellum_trace::Journal {
        lba: JOURNAL,
        blocks: JOURNAL_BLOCKS,
    };
    writer.push(&Entry::Journals(vec![journal])).unwrap();
    let mut at = 0;
    let mut ask = |op, lba, contents: &[u64], committed: Vec<Committed>| {
        at += 100_000;
        let block = |&digest| Block {
            content: Content::Digest(digest),
            packed: Some(1000),
            ..Block::default()
        };
        let request = Request {
            at,
            op,
            lba,
            blocks: contents.len() as u64,
            contents: contents.iter().map(block).collect(),
            committed,
        };
        writer.push(&Entry::Request(request)).unwrap();
    };
    let write = Op::Write { fua: false };
    for n in 0..COMMITS {
        let begin = JOURNAL + n * 8 % JOURNAL_BLOCKS;
        let (descriptor, commit) = (n << 8 | 1, n << 8 | 2);
        let copies = [n << 8 | 3, n << 8 | 4];
        // On both sides of the border of two extents.
        let home = HOMES + n % 100 * 2;
        let pair = |block| Committed {
            home: home + block,
            copy: begin + 1 + block,
        };
        ask(write, begin, &[descriptor, copies[0], copies[1]], vec![]);
        let committed = if tells {
            vec![pair(0), pair(1)]
        } else {
            vec![]
        };
        ask(write, begin + 3, &[commit], committed);
        ask(Op::Flush, 0, &[], vec![]);
        ask(write, home, &copies, vec![]);
        ask(Op::Flush, 0, &[], vec![]);
    }
    writer.finish().unwrap()
}

#[test]
fn a_trace_that_names_commits_halves_durable_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let counted = |tells: bool, in_place: bool, policy: &str| {
        let path = dir.path().join(format!("{tells}"));
        std::fs::write(&path, trace(tells)).unwrap();
        let reading = Reading {
            in_place,
            ..Reading::default()
        };
        let trace = &TraceFile::read(&path, &reading).unwrap();
        let mut scenario = scenario(Load::Trace {
            trace,
            times: 2,
            repeated: RepeatedContents::Same,
        });
        scenario.device.capacity = in_place.then_some(6 << 30).or(Some(256 << 20));
        let outcome = run(&scenario, policy);
        ["remapped_blocks", "pledged_blocks", "durable_chunks"].map(|name| outcome.counted(name))
    };
    let all = 2 * 2 * COMMITS;
    for options in ["write-once", "compress,write-once"] {
        let (without, with) = (
            format!("vellum:{options}"),
            format!("vellum:{options},replay"),
        );
        for in_place in [false, true] {
            let [remapped, pledged, durable] = counted(true, in_place, &without);
            assert_eq!([remapped, pledged], [all, 0]);
            let [remapped, pledged, saved] = counted(true, in_place, &with);
            assert_eq!([remapped, pledged], [all, all]);
            // Except after the end of a segment, where a sync makes chunks durable.
            let near = |chunks: u64, all: u64| chunks.abs_diff(all) <= all / 100;
            assert!(
                near(durable, all) && near(saved, all / 2),
                "{durable} {saved}"
            );
            // As with older traces.
            assert_eq!(counted(false, in_place, &with), [all, 0, durable]);
        }
    }
}

/// Each tenant has a journal in its own part, and what the journal commits is there as well.
#[test]
fn each_tenant_has_its_own_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    std::fs::write(&path, trace(true)).unwrap();
    let trace = Arc::new(TraceFile::read(&path, &Reading::default()).unwrap());
    let tenant = |name: &str| Tenant {
        name: name.into(),
        trace: Arc::clone(&trace),
    };
    let tenants = Tenants::new(vec![tenant("a"), tenant("b")]).unwrap();
    let scenario = scenario(Load::Tenants {
        tenants: &tenants,
        times: 1,
        repeated: RepeatedContents::Same,
    });
    let outcome = run(&scenario, "vellum:write-once,replay");
    let counted = ["remapped_blocks", "pledged_blocks"].map(|name| outcome.counted(name));
    assert_eq!(counted, [2 * 2 * COMMITS; 2]);
}

#[test]
fn a_journaling_host_names_what_short_transactions_commit() {
    let counted = |mode, flush_every, policy: &str| {
        let mut load = Synthetic::new(*workload::find("zipf").unwrap());
        load.requests = 10_000;
        load.flush_every = flush_every;
        load.journal = Some(Journal {
            mode,
            blocks: 4096,
            commit: Commit::Async,
            fsync_flushes: true,
            write_back: 0,
            file: File::Overwritten,
        });
        let outcome = run(&scenario(Load::Synthetic(load)), policy);
        let names = [
            "remapped_blocks",
            "pledged_blocks",
            "flushes_of_homes",
            "journal_blocks",
        ];
        names.map(|name| outcome.counted(name))
    };
    for mode in [Mode::Data, Mode::Ordered] {
        let without = counted(mode, 20, "vellum:zero=off,write-once");
        let with = counted(mode, 20, "vellum:zero=off,write-once,replay");
        assert_eq!([with[0], with[3]], [without[0], without[3]]);
        assert!(without[1] == 0 && with[1] > 400, "{with:?}");
        // Transactions of 2000 data blocks each, except the last one.
        let long = counted(mode, 2000, "vellum:zero=off,write-once,replay");
        match mode {
            Mode::Data => assert!(long[1] * 10 < with[1], "{long:?}"),
            _ => assert_eq!(long[1], 5, "metadata alone is short"),
        }
    }
    let flushes = |policy| counted(Mode::Data, 20, policy)[2];
    assert!(flushes("vellum:write-once") > 2 && flushes("vellum:write-once,replay") <= 2);
}

/// A trace says whether a client discards or writes zeros, and whether that has to be durable.
#[test]
fn zeros_and_durable_discards_are_replayed_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let counted = |name: &str, op: Op| {
        let mut writer = writer();
        let mut at = 0;
        for lba in 0..100 {
            for (op, blocks) in [(Op::Write { fua: false }, 1), (op, 1)] {
                at += 100_000;
                let request = Request {
                    at,
                    op,
                    lba,
                    blocks,
                    contents: vec![],
                    committed: vec![],
                };
                writer.push(&Entry::Request(request)).unwrap();
            }
        }
        let path = dir.path().join(name);
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        let trace = &TraceFile::read(&path, &Reading::default()).unwrap();
        let repeated = RepeatedContents::Same;
        let load = Load::Trace {
            trace,
            times: 1,
            repeated,
        };
        let outcome = run(&scenario(load), "vellum");
        ["discarded_blocks", "zero_blocks", "durable_chunks"].map(|name| outcome.counted(name))
    };
    let fua = true;
    let [discarded, zeros, durable] = counted("zeros", Op::WriteZeroes { fua });
    assert_eq!([discarded, zeros], [0, 100]);
    assert!(durable >= 100, "{durable}");
    let [discarded, zeros, durable] = counted("discards", Op::Discard { fua });
    assert_eq!([discarded, zeros], [100, 0]);
    assert!(durable >= 100, "{durable}");
    let [discarded, zeros, durable] = counted("plain", Op::Discard { fua: false });
    assert_eq!([discarded, zeros], [100, 0]);
    assert!(durable < 100, "{durable}");
}
