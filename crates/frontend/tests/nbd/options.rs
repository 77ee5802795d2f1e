//! The handshake.

use crate::client::{Client, context_data, info_data};
use crate::disks::Served;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_device::block::Extent;
use vellum_frontend::changes::{Changes, Since};
use vellum_frontend::finder::Found;
use vellum_frontend::nbd::Export;
use vellum_frontend::nbd::wire::{self, export_flag, info, option, reply};
use vellum_frontend::testing::RamDisk;

fn two() -> Served {
    let served = Served::empty();
    served
        .server
        .add(Export::new("one", Arc::new(RamDisk::new(256, 16, 16))).described("the first"))
        .unwrap();
    served
        .server
        .add(Export::new("two", Arc::new(RamDisk::new(8, 16, 16))).read_only_if(true))
        .unwrap();
    served
}

#[test]
fn info_describes_an_export_and_go_enters_it() {
    let served = two();
    let mut client = Client::greeted(&served.path());
    let answers = client.option(
        option::INFO,
        &info_data("one", &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]),
    );
    let info = |kind: u16| {
        answers
            .iter()
            .find(|a| a.0 == reply::INFO && wire::be16(&a.1, 0) == kind)
            .unwrap()
            .1[2..]
            .to_vec()
    };
    assert_eq!(wire::be64(&info(info::EXPORT), 0), 256 * 4096);
    assert_eq!(info(info::NAME), b"one");
    assert_eq!(info(info::DESCRIPTION), b"the first");
    let sizes: Vec<u32> = info(info::BLOCK_SIZE)
        .chunks(4)
        .map(|c| wire::be32(c, 0))
        .collect();
    assert_eq!(sizes, [512, 4096, 32 << 20]);
    assert_eq!(answers.last().unwrap().0, reply::ACK);

    assert_eq!(
        client.verdict(option::GO, &info_data("none", &[])),
        reply::ERR_UNKNOWN
    );
    assert_eq!(
        client.verdict(option::GO, &info_data("two", &[])),
        reply::ACK
    );
    assert_eq!(client.read(0, 512), [0; 512]);
}

#[test]
fn flags_say_what_is_served() {
    let served = two();
    let writable = Client::connected(&served.path(), "one", true);
    let both = export_flag::HAS_FLAGS
        | export_flag::SEND_FLUSH
        | export_flag::CAN_MULTI_CONN
        | export_flag::SEND_DF;
    assert_eq!(writable.flags & both, both);
    let changes =
        export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES | export_flag::SEND_FAST_ZERO;
    assert_eq!(writable.flags & (changes | export_flag::READ_ONLY), changes);
    let read_only = Client::connected(&served.path(), "two", false);
    assert_eq!(
        read_only.flags & (changes | export_flag::READ_ONLY),
        export_flag::READ_ONLY
    );
    assert_eq!(read_only.flags & export_flag::SEND_DF, 0);
}

#[test]
fn the_first_export_is_the_default() {
    let served = two();
    assert_eq!(Client::connected(&served.path(), "", true).size, 256 * 4096);
    assert!(served.server.remove("one"));
    assert!(!served.server.remove("one"));
    assert_eq!(Client::connected(&served.path(), "", false).size, 8 * 4096);
}

#[test]
fn export_name_pads_unless_told_not_to() {
    let served = two();
    for (flags, length) in [(3u32, 10), (1, 134)] {
        let mut stream = std::os::unix::net::UnixStream::connect(served.path()).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&flags.to_be_bytes()).unwrap();
        let mut client = Client {
            stream,
            structured: false,
            size: 0,
            flags: 0,
        };
        client.send_option(option::EXPORT_NAME, b"two");
        let mut reply = vec![0; length];
        client.stream.read_exact(&mut reply).unwrap();
        assert_eq!(wire::be64(&reply, 0), 8 * 4096);
        assert_eq!(client.read(4096, 512), [0; 512]);
    }
    let mut client = Client::greeted(&served.path());
    client.send_option(option::EXPORT_NAME, b"none");
    assert!(client.is_closed());
}

#[test]
fn list_names_them_all() {
    let served = two();
    let mut client = Client::greeted(&served.path());
    let answers = client.option(option::LIST, &[]);
    assert_eq!(answers.len(), 3);
    assert_eq!(
        answers[0],
        (reply::SERVER, b"\0\0\0\x03onethe first".to_vec())
    );
    assert_eq!(answers[1], (reply::SERVER, b"\0\0\0\x03two".to_vec()));
    assert_eq!(client.verdict(option::LIST, b"x"), reply::ERR_INVALID);
}

#[test]
fn meta_contexts() {
    let served = two();
    let mut client = Client::greeted(&served.path());
    let one = context_data("one", &["base:allocation"]);
    assert_eq!(
        client.verdict(option::SET_META_CONTEXT, &one),
        reply::ERR_INVALID,
        "structured replies come first"
    );
    assert_eq!(
        client.verdict(option::STRUCTURED_REPLY, b"?"),
        reply::ERR_INVALID
    );
    assert_eq!(client.verdict(option::STRUCTURED_REPLY, &[]), reply::ACK);
    for queries in [&[][..], &["base:"], &["base:allocation", "x:y"]] {
        let answers = client.option(option::LIST_META_CONTEXT, &context_data("one", queries));
        assert_eq!(
            answers[0],
            (reply::META_CONTEXT, b"\0\0\0\0base:allocation".to_vec()),
            "{queries:?}"
        );
    }
    assert_eq!(
        client
            .option(option::LIST_META_CONTEXT, &context_data("one", &["qemu:"]))
            .len(),
        1
    );
    assert_eq!(
        client
            .option(option::SET_META_CONTEXT, &context_data("one", &["base:"]))
            .len(),
        1
    );
    assert_eq!(
        client.verdict(option::SET_META_CONTEXT, &context_data("none", &[])),
        reply::ERR_UNKNOWN
    );
    let mut lying = context_data("one", &[]);
    lying[7..11].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        client.verdict(option::SET_META_CONTEXT, &lying),
        reply::ERR_INVALID
    );
    let answers = client.option(option::SET_META_CONTEXT, &one);
    assert_eq!(
        answers[0],
        (reply::META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec())
    );
    // Contexts chosen for one export and used with another: not agreed.
    assert_eq!(
        client.verdict(option::GO, &info_data("two", &[])),
        reply::ACK
    );
    client.structured = true;
    assert_eq!(client.call(wire::command::BLOCK_STATUS, 0, 0, 512, &[]), 22);
}

/// Snapshots by age: each look finds a newer one. Number N has 8 N blocks, of which the first N have changed.
#[derive(Clone, Default)]
struct Ages(Arc<AtomicU64>);

impl Ages {
    /// The number of the snapshot that a name refers to now.
    fn number(&self, export: &str) -> u64 {
        let exact = export.strip_prefix("one@s").map(|number| number.parse());
        match exact {
            Some(number) => number.unwrap(),
            None => self.0.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

impl Changes for Ages {
    fn points(&self, _: &str) -> Vec<String> {
        vec!["p".to_owned()]
    }

    fn since(&self, export: &str, number: Option<u64>, _: &str) -> Option<Since> {
        let changed = self.number(export);
        assert_eq!(number, Some(changed));
        Some(Arc::new(move |lba, blocks, _| {
            let mapped = lba.0 < changed;
            let blocks = if mapped { changed - lba.0 } else { blocks };
            Some(vec![Extent { blocks, mapped }])
        }))
    }
}

/// A backup by age must not get one snapshot's data, and what has changed in another.
#[test]
fn contexts_and_data_are_of_one_snapshot() {
    let served = two();
    let ages = Ages::default();
    let (look, name) = (ages.clone(), "one@-15m");
    served.server.compare_by(Arc::new(ages));
    served.server.find_by(Arc::new(move |asked| {
        let number = asked.starts_with("one@").then(|| look.number(asked))?;
        Some(Found {
            of: "one".to_owned(),
            name: format!("one@s{number}"),
            number,
            device: Arc::new(RamDisk::new(8 * number, 16, 16)).into(),
        })
    }));
    for names in [[name, name], [name, "one@s5"], ["one@s5", name]] {
        let mut client = Client::greeted(&served.path());
        assert_eq!(client.verdict(option::STRUCTURED_REPLY, &[]), reply::ACK);
        client.structured = true;
        let context = context_data(names[0], &["qemu:dirty-bitmap:p"]);
        assert_eq!(client.option(option::SET_META_CONTEXT, &context).len(), 2);
        let answers = client.option(option::GO, &info_data(names[1], &[]));
        let blocks = wire::be64(&answers[0].1, 2) / 4096;
        if names[0] == names[1] {
            let changed = client.status(0, 0, 8 * 4096)[0];
            assert_eq!(changed, (blocks as u32 / 8 * 4096, 1));
        } else {
            let status = client.call(wire::command::BLOCK_STATUS, 0, 0, 512, &[]);
            assert_eq!(status, 22, "{names:?}");
        }
    }
}

#[test]
fn strange_options_are_refused_and_forgiven() {
    let served = two();
    let mut client = Client::greeted(&served.path());
    assert_eq!(client.verdict(4711, b"whatever"), reply::ERR_UNSUP);
    assert_eq!(client.verdict(option::STARTTLS, &[]), reply::ERR_POLICY);
    assert_eq!(
        client.verdict(option::INFO, b"\xff\xff\xff\xff"),
        reply::ERR_INVALID
    );
    assert_eq!(
        client.verdict(option::INFO, b"\0\0\0\x01\xff\0\0"),
        reply::ERR_INVALID,
        "not UTF-8"
    );
    assert_eq!(
        client.verdict(option::INFO, &vec![0; 100_000]),
        reply::ERR_TOO_BIG
    );
    assert_eq!(
        client.verdict(option::INFO, &info_data("one", &[info::NAME; 4000])),
        reply::ACK
    );
    assert_eq!(client.verdict(option::ABORT, &[]), reply::ACK);
    assert!(client.is_closed());
}

#[test]
fn floods_and_nonsense_end_the_connection() {
    let served = two();
    let mut client = Client::greeted(&served.path());
    let mut answered = 0;
    while client
        .stream
        .write_all(
            &[
                &wire::MAGIC_OPTION.to_be_bytes()[..],
                &[0, 0, 9, 9, 0, 0, 0, 0],
            ]
            .concat(),
        )
        .is_ok()
    {
        answered += 1;
        if client.stream.read_exact(&mut [0; 20 + 14]).is_err() {
            break;
        }
        assert!(answered <= 256);
    }
    let mut client = Client::greeted(&served.path());
    client
        .stream
        .write_all(
            &[
                &wire::MAGIC_OPTION.to_be_bytes()[..],
                &[0, 0, 0, 6, 0xff, 0, 0, 0],
            ]
            .concat(),
        )
        .unwrap();
    assert!(client.is_closed());
    let mut client = Client::greeted(&served.path());
    client.stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(client.is_closed());
    let mut client = Client::greeted(&served.path());
    client.send_option(option::EXPORT_NAME, &vec![b'x'; 50_000]);
    assert!(client.is_closed());
    // The server still runs.
    Client::connected(&served.path(), "one", true);
    // A client sees the end before it is reported.
    let reports = || served.reports.lock().unwrap().len();
    (0..6000).take_while(|_| reports() < 4).for_each(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
    });
    assert_eq!(reports(), 4);
}
