//! The fuzz targets of the trace readers, over some thousands of seeded mutations each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../../fuzz/src/trace.rs"]
mod fuzz;

use vellum_lab::rng::Rng;
use vellum_lab::trace::Format;

const SEEDS: [(Format, &str); 8] = [
    (
        Format::Blkparse,
        "8,0 3 1 0.25 697 Q WFS 223490 + 8 [k]\n8,0 3 2 0.5 697 Q FN [k]\n8,0 3 2 0.5 697 Q D 0 + 9999999\n",
    ),
    (
        Format::Fiu,
        "100 1 a 8 16 W 6 0 0123456789abcdef0123456789abcdef620f0b67a91f7f74151bc5be745b7110\n",
    ),
    (
        Format::Msr,
        "128166372003061629,hm,1,Read,383496192,32768,151\n1,hm,1,Write,310983680,4096,1331\n",
    ),
    (
        Format::CloudPhysics,
        "version,time,op,size,lbn\n1,10,2a,4096,80\n1,11,28,8192,160\n",
    ),
    (
        Format::Alibaba,
        "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n",
    ),
    (
        Format::Tencent,
        "1538323200,12910952,128,0,1063\n1538323201,6160447,8,1,1627\n",
    ),
    (Format::DiskSim, "0.5 0 16 8 0\n12.345678 1 24 16 1\n"),
    (
        Format::Mqsim,
        "938513000 4 264719032 16 0\n938828000 3 8 16 1\n",
    ),
];

#[test]
fn readers_survive_whatever_comes() {
    let mut rng = Rng::new(17);
    for (format, text) in SEEDS {
        for _ in 0..4000 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                match rng.below(5) {
                    0 => bytes[at] = rng.draw() as u8,
                    1 => bytes[at] = b"0123456789 ,.+-\n"[rng.below(16) as usize],
                    2 => bytes.insert(at, b'9'),
                    3 if bytes.len() > 1 => bytes.truncate(at.max(1)),
                    _ => {
                        let end = (at + rng.below(30) as usize).min(bytes.len());
                        let part = bytes[at..end].to_vec();
                        bytes.extend(part);
                    }
                }
            }
            fuzz::read(format, &bytes);
            fuzz::find(&bytes);
        }
    }
}
