//! Bytes and time of each candidate, by kind of block.

use crate::candidates::{self, Named};
use crate::samples::{Kind, Sample, Workload};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::time::Instant;
use vellum_codec::Block;
use vellum_core::addr::BLOCK_BYTES;

/// Blocks of a kind and workload that are measured; of more, evenly spaced ones.
const MEASURED: usize = 1000;
/// One in so many is timed, as the best of so many times: the machine does other things too.
const TIMED: usize = 8;
const TIMES: usize = 7;
/// A dictionary's size.
const DICTIONARY_BYTES: usize = 8 << 10;

#[derive(Default)]
struct Sum {
    blocks: u64,
    bytes: u64,
    timed: u128,
    encode: u128,
    decode: u128,
}

type Sums = BTreeMap<(Kind, usize), Sum>;

pub fn print(workloads: &[Workload]) -> anyhow::Result<()> {
    let (mut whole, mut delta) = (Sums::new(), Sums::new());
    let (mut whole_names, mut delta_names) = (Vec::new(), Vec::new());
    for (index, workload) in workloads.iter().enumerate() {
        // A dictionary must not know what it is tried on.
        let dictionary = train(workloads, index)?;
        let mut candidates = candidates::whole(&dictionary)?;
        whole_names = candidates.iter().map(|(name, _)| *name).collect();
        measure(workload, &mut candidates, &mut whole, false)?;
        let mut candidates = candidates::delta()?;
        delta_names = candidates.iter().map(|(name, _)| *name).collect();
        measure(workload, &mut candidates, &mut delta, true)?;
    }
    println!("## Bytes of a block alone (mean; at most a block)\n");
    bytes(&whole_names, &whole);
    println!("\n## Bytes of a block against its base (mean; at most a block)\n");
    bytes(&delta_names, &delta);
    println!("\n## Nanoseconds a block, alone\n");
    times(&whole_names, &whole);
    println!("\n## Nanoseconds a block, against its base\n");
    times(&delta_names, &delta);
    Ok(())
}

fn spaced(workload: &Workload, kind: Kind) -> impl Iterator<Item = &Sample> {
    let of_kind = move |sample: &&Sample| sample.kind == kind;
    let count = workload.samples.iter().filter(of_kind).count();
    let step = count.div_ceil(MEASURED).max(1);
    workload.samples.iter().filter(of_kind).step_by(step)
}

/// A dictionary from the metadata of all workloads but one.
fn train(workloads: &[Workload], but: usize) -> anyhow::Result<Vec<u8>> {
    let (mut bytes, mut sizes) = (Vec::new(), Vec::new());
    for (index, workload) in workloads.iter().enumerate() {
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_data()) {
            for sample in spaced(workload, kind).step_by(8) {
                if index != but {
                    bytes.extend_from_slice(&sample.block[..]);
                    sizes.push(BLOCK_BYTES);
                }
            }
        }
    }
    let mut dictionary = vec![0; DICTIONARY_BYTES];
    match zstd_safe::train_from_buffer(&mut dictionary[..], &bytes, &sizes) {
        Ok(length) => dictionary.truncate(length),
        // With one log there is nothing to learn from.
        Err(_) => dictionary.clear(),
    }
    Ok(dictionary)
}

fn measure(
    workload: &Workload,
    candidates: &mut [Named],
    sums: &mut Sums,
    with_base: bool,
) -> anyhow::Result<()> {
    let none = [0; BLOCK_BYTES];
    let mut bytes = Vec::new();
    let mut out: Box<Block> = Box::new(none);
    for kind in Kind::ALL {
        for (at, sample) in spaced(workload, kind).enumerate() {
            let base = match &sample.base {
                Some(base) => base,
                None if with_base => continue,
                None => &none,
            };
            let times = if at % TIMED == 0 { TIMES } else { 0 };
            for (index, (name, candidate)) in candidates.iter_mut().enumerate() {
                let (mut encode, mut decode) = (u128::MAX, u128::MAX);
                for _ in 0..times.max(1) {
                    let begin = Instant::now();
                    candidate
                        .encode(&sample.block, base, &mut bytes)
                        .with_context(|| *name)?;
                    encode = encode.min(begin.elapsed().as_nanos());
                    let begin = Instant::now();
                    candidate
                        .decode(&bytes, base, &mut out)
                        .with_context(|| *name)?;
                    decode = decode.min(begin.elapsed().as_nanos());
                }
                ensure!(
                    bytes.len() > BLOCK_BYTES || out[..] == sample.block[..],
                    "{name}: a {} block did not come back",
                    kind.name()
                );
                let sum = sums.entry((kind, index)).or_default();
                sum.blocks += 1;
                sum.bytes += bytes.len().min(BLOCK_BYTES) as u64;
                if times > 0 {
                    sum.timed += 1;
                    sum.encode += encode;
                    sum.decode += decode;
                }
            }
        }
    }
    Ok(())
}

fn head(first: &str, names: &[&str]) {
    println!("| {first} | blocks | {} |", names.join(" | "));
    println!("| --- | ---{} |", " | ---".repeat(names.len()));
}

fn bytes(names: &[&str], sums: &Sums) {
    head("kind", names);
    for kind in Kind::ALL {
        let Some(first) = sums.get(&(kind, 0)) else {
            continue;
        };
        print!("| {} | {}", kind.name(), first.blocks);
        for index in 0..names.len() {
            let mean = sums
                .get(&(kind, index))
                .map_or(0, |sum| sum.bytes / sum.blocks);
            print!(" | {mean}");
        }
        println!(" |");
    }
}

fn times(names: &[&str], sums: &Sums) {
    head("", names);
    for (what, kinds) in [
        ("metadata", &Kind::ALL[..11]),
        ("data", &Kind::ALL[11..13]),
        ("incompressible", &Kind::ALL[13..]),
    ] {
        for (way, of) in [
            ("encode", (|sum| sum.encode) as fn(&Sum) -> u128),
            ("decode", |sum| sum.decode),
        ] {
            let mut line = String::new();
            let mut blocks = 0;
            for index in 0..names.len() {
                let (mut time, mut count) = (0, 0);
                for sum in kinds.iter().filter_map(|kind| sums.get(&(*kind, index))) {
                    time += of(sum);
                    count += sum.timed;
                }
                line += &format!(" | {}", time / count.max(1));
                blocks = count;
            }
            println!("| {what}, {way} | {blocks}{line} |");
        }
    }
}
