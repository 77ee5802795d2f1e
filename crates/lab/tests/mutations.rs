//! The fuzz targets of the trace readers and of the parts of a scenario, over some thousands of seeded mutations each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../../fuzz/src/trace.rs"]
mod fuzz;

#[path = "../../../fuzz/src/options.rs"]
mod options;

#[path = "common/binary.rs"]
mod binary;

use std::io::Write;
use vellum_lab::drives;
use vellum_lab::rng::Rng;
use vellum_lab::trace::Format;

const SEEDS: [(Format, &str); 9] = [
    (
        Format::Fio,
        "fio version 3 iolog\n36 /f add\n188 /f read 61440 4096\n199 /f sync 0 0\n205 /f trim 0 8192\n",
    ),
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

/// Changes some bytes; never to none.
fn changed(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
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
    bytes
}

#[test]
fn readers_survive_any_input() {
    let mut rng = Rng::new(17);
    let texts = SEEDS.map(|(format, text)| (format, text.as_bytes().to_vec()));
    let others = [
        (Format::Blktrace, binary::blktrace(false)),
        (Format::Blktrace, binary::blktrace(true)),
        (Format::Vellum, binary::own()),
    ];
    for (format, seed) in texts.into_iter().chain(others) {
        for _ in 0..4000 {
            let bytes = changed(&seed, &mut rng);
            fuzz::read(format, &bytes);
            fuzz::find(&bytes);
        }
    }
}

#[test]
fn maps_of_columns_survive_any_input() {
    let mut rng = Rng::new(18);
    let seed = b"time=0:us,op=2,offset=3:sector,length=4,disk=1,separator=comma,read=R,write=W\n\
                 1.5,hm,W,8,4096\n2,1,R,16,512\n";
    for _ in 0..20_000 {
        fuzz::columns(&changed(seed, &mut rng));
    }
}

#[test]
fn packed_traces_survive_any_input() {
    let mut rng = Rng::new(19);
    let text = SEEDS[1].1.repeat(100);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut zstd = vec![0; 1 << 16];
    let length = zstd_safe::compress(&mut zstd[..], text.as_bytes(), 1).unwrap();
    zstd.truncate(length);
    for seed in [gzip.finish().unwrap(), zstd] {
        for _ in 0..4000 {
            fuzz::unpack(&changed(&seed, &mut rng));
        }
    }
}

#[test]
fn policies_and_axes_survive_any_input() {
    let mut rng = Rng::new(20);
    for seed in [
        "base:d=10,oftl,level-dynamic,level-static=20,op=12.5",
        "base:cost-benefit,map-cache=128",
        "vellum:dedup,dedup-memory=512K,sample=32K,store=caftl-hot-range,decide=sha1,compress,write-once,\
         on-drive,op=28",
        "vellum:dedup,layout=ordered,persistence=strong,merging=off,anticipation=off",
        "woj:md5,op=7",
        "dmdedup",
    ] {
        for _ in 0..4000 {
            options::policy(&changed(seed.as_bytes(), &mut rng));
        }
    }
    let axes = b"op=7 15 28\n--policy=base vellum:dedup\nseed=1 2 3 4 5 6 7 8 9\n";
    for _ in 0..4000 {
        options::axes(&changed(axes, &mut rng));
    }
}

#[test]
fn zones_survive_any_input() {
    let mut rng = Rng::new(22);
    for seed in ["20:80,80:20", "10:60:0,40.5:40:0,49.5:0:100"] {
        for _ in 0..4000 {
            options::zones(&changed(seed.as_bytes(), &mut rng));
        }
    }
}

#[test]
fn drives_survive_any_input() {
    let mut rng = Rng::new(21);
    for name in ["tlc-nvme", "disksim", "fast-ssd", "omd-server"] {
        let seed = drives::find(name).unwrap().written();
        for _ in 0..1000 {
            options::drive(&changed(seed.as_bytes(), &mut rng));
        }
    }
    let queues = "[queues]\ncount = 4\ndepth = 64\ncommands = 32\nburst = 8\nhigh = 8\nmedium = 4\nlow = 1\n";
    let seed = drives::find("fast-ssd").unwrap().written() + queues;
    for _ in 0..1000 {
        options::drive(&changed(seed.as_bytes(), &mut rng));
    }
}

#[test]
fn job_files_of_fio_survive_any_input() {
    let seeds = [
        "[global]\nioengine=libaio\niodepth=16\nbs=8k\nfilename=x\n[a]\nrw=randrw\nrwmixread=70\n\
         size=64m\nnumjobs=2\n",
        "[a]\nrw=randwrite\nsize=1g\nrandom_distribution=zoned:60/10:40/90\nrate=4m\nruntime=5m\n\
         time_based\n",
        "; c\n[a]\nrw=write\noffset=1g\nsize=4k\nloops=3\nfsync=8\ndedupe_percentage=30\n\
         ramp_time=2s\n",
        "[global]\nbssplit=4k/60:64k/40\n[a]\nrw=trimwrite\nsize=4m\nnumjobs=3\n[b]\nstonewall\nrw=rw\n\
         filesize=2m\nthinktime=5ms\n[c]\nwait_for=b\nrw=randrw\nbs=4k,8k\nsize=8m\nsync=1\n",
        "[a]\nfilename=/dev/sda\nrw=write\nsize=25%\noffset_increment=25%\nnumjobs=4\nexitall=0\n\
         [b]\nfilename=/dev/sda\nrw=randtrim\nsize=10%\nio_size=5%\nrate_iops=9\n",
    ];
    let mut rng = Rng::new(13);
    for seed in seeds {
        options::fio(seed.as_bytes());
        for _ in 0..5000 {
            options::fio(&changed(seed.as_bytes(), &mut rng));
        }
    }
}
