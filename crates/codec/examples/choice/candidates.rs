//! What could store a block, with one interface.

use anyhow::{Context, anyhow};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use vellum_codec::{Block, Decoder, Encoder, Encoding, Level, Method, runs};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat};

/// A way to store a block, alone or against a base.
pub trait Candidate {
    fn encode(&mut self, block: &Block, base: &Block, out: &mut Vec<u8>) -> anyhow::Result<()>;
    fn decode(&mut self, bytes: &[u8], base: &Block, out: &mut Block) -> anyhow::Result<()>;
}

/// More than any of them needs.
const ROOM: usize = 8192;

pub type Named = (&'static str, Box<dyn Candidate>);

/// Those that store a block alone.
pub fn whole(dictionary: &[u8]) -> anyhow::Result<Vec<Named>> {
    Ok(vec![
        ("runs", Box::new(Runs(Decoder::new()))),
        ("LZ4", Box::new(Lz4)),
        ("zlib 1", Box::new(Zlib(1))),
        ("zlib 6", Box::new(Zlib(6))),
        ("zstd 1", Box::new(Zstd::new(1, &[])?)),
        ("zstd 3", Box::new(Zstd::new(3, &[])?)),
        ("zstd 9", Box::new(Zstd::new(9, &[])?)),
        ("zstd 1 + dict", Box::new(Zstd::new(1, dictionary)?)),
        ("zstd 3 + dict", Box::new(Zstd::new(3, dictionary)?)),
        ("ours, LZ4", Box::new(Ours::new(Method::Lz4))),
        (
            "ours, zstd 1",
            Box::new(Ours::new(Method::Zstd(Level::DEFAULT))),
        ),
    ])
}

/// Those that store a block against a base.
pub fn delta() -> anyhow::Result<Vec<Named>> {
    Ok(vec![
        ("XOR runs", Box::new(Xor::new(Runs(Decoder::new())))),
        ("XOR LZ4", Box::new(Xor::new(Lz4))),
        ("XOR zlib 1", Box::new(Xor::new(Zlib(1)))),
        ("XOR zstd 1", Box::new(Xor::new(Zstd::new(1, &[])?))),
        ("XOR zstd 3", Box::new(Xor::new(Zstd::new(3, &[])?))),
        ("base LZ4", Box::new(Lz4Base)),
        ("base zstd 1", Box::new(ZstdBase::new(1)?)),
        ("base zstd 3", Box::new(ZstdBase::new(3)?)),
        ("ours, runs", Box::new(OursDelta::new(Method::Runs))),
        ("ours, LZ4", Box::new(OursDelta::new(Method::Lz4))),
        (
            "ours, zstd 1",
            Box::new(OursDelta::new(Method::Zstd(Level::DEFAULT))),
        ),
    ])
}

struct Runs(Decoder);

impl Candidate for Runs {
    fn encode(&mut self, block: &Block, _: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM, 0);
        let length = runs::encode(block, out).context("no room for the runs")?;
        out.truncate(length);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], _: &Block, out: &mut Block) -> anyhow::Result<()> {
        // A dense block's runs can be longer than a block; no one would store them.
        if bytes.len() <= out.len() {
            self.0.decode(Encoding::Runs, bytes, None, out)?;
        }
        Ok(())
    }
}

struct Lz4;

impl Candidate for Lz4 {
    fn encode(&mut self, block: &Block, _: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM, 0);
        let length = lz4_flex::block::compress_into(block, out)?;
        out.truncate(length);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], _: &Block, out: &mut Block) -> anyhow::Result<()> {
        lz4_flex::block::decompress_into(bytes, out)?;
        Ok(())
    }
}

/// LZ4 with the base as what came before.
struct Lz4Base;

impl Candidate for Lz4Base {
    fn encode(&mut self, block: &Block, base: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM, 0);
        let length = lz4_flex::block::compress_into_with_dict(block, out, base)?;
        out.truncate(length);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], base: &Block, out: &mut Block) -> anyhow::Result<()> {
        lz4_flex::block::decompress_into_with_dict(bytes, out, base)?;
        Ok(())
    }
}

struct Zlib(u32);

impl Candidate for Zlib {
    fn encode(&mut self, block: &Block, _: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM, 0);
        let mut stream = Compress::new(Compression::new(self.0), false);
        let status = stream.compress(block, out, FlushCompress::Finish)?;
        anyhow::ensure!(status == Status::StreamEnd, "zlib has not ended");
        out.truncate(stream.total_out() as usize);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], _: &Block, out: &mut Block) -> anyhow::Result<()> {
        Decompress::new(false).decompress(bytes, out, FlushDecompress::Finish)?;
        Ok(())
    }
}

fn code(code: usize) -> anyhow::Error {
    anyhow!("{}", zstd_safe::get_error_name(code))
}

fn context(level: i32) -> anyhow::Result<CCtx<'static>> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::DictIdFlag(false),
        CParameter::CompressionLevel(level),
    ] {
        context.set_parameter(parameter).map_err(code)?;
    }
    Ok(context)
}

struct Zstd {
    compress: CCtx<'static>,
    decompress: DCtx<'static>,
}

impl Zstd {
    fn new(level: i32, dictionary: &[u8]) -> anyhow::Result<Self> {
        let mut compress = context(level)?;
        let mut decompress = DCtx::create();
        decompress
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .map_err(code)?;
        if !dictionary.is_empty() {
            // One for the life of the program.
            let there: &'static CDict<'static> =
                Box::leak(Box::new(CDict::create(dictionary, level)));
            let back: &'static DDict<'static> = Box::leak(Box::new(DDict::create(dictionary)));
            compress.ref_cdict(there).map_err(code)?;
            decompress.ref_ddict(back).map_err(code)?;
        }
        Ok(Self {
            compress,
            decompress,
        })
    }
}

impl Candidate for Zstd {
    fn encode(&mut self, block: &Block, _: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM, 0);
        let length = self.compress.compress2(&mut out[..], block).map_err(code)?;
        out.truncate(length);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], _: &Block, out: &mut Block) -> anyhow::Result<()> {
        self.decompress
            .decompress(&mut out[..], bytes)
            .map_err(code)?;
        Ok(())
    }
}

/// zstd with the base as what came before.
struct ZstdBase {
    level: i32,
}

impl ZstdBase {
    fn new(level: i32) -> anyhow::Result<Self> {
        Ok(Self { level })
    }
}

impl Candidate for ZstdBase {
    fn encode(&mut self, block: &Block, base: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM, 0);
        let mut context = context(self.level)?;
        context.ref_prefix(base).map_err(code)?;
        let length = context.compress2(&mut out[..], block).map_err(code)?;
        out.truncate(length);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], base: &Block, out: &mut Block) -> anyhow::Result<()> {
        let mut context = DCtx::create();
        context
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .map_err(code)?;
        context.ref_prefix(base).map_err(code)?;
        context.decompress(&mut out[..], bytes).map_err(code)?;
        Ok(())
    }
}

/// Another candidate, on the XOR.
struct Xor<C> {
    by: C,
    difference: Box<Block>,
}

impl<C> Xor<C> {
    fn new(by: C) -> Self {
        let difference = Box::new([0; ROOM / 2]);
        Self { by, difference }
    }
}

impl<C: Candidate> Candidate for Xor<C> {
    fn encode(&mut self, block: &Block, base: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        for ((difference, new), old) in self.difference.iter_mut().zip(block).zip(base) {
            *difference = new ^ old;
        }
        self.by.encode(&self.difference, base, out)
    }

    fn decode(&mut self, bytes: &[u8], base: &Block, out: &mut Block) -> anyhow::Result<()> {
        self.by.decode(bytes, base, out)?;
        for (byte, old) in out.iter_mut().zip(base) {
            *byte ^= old;
        }
        Ok(())
    }
}

/// What this crate chooses.
struct Ours {
    encoder: Encoder,
    decoder: Decoder,
    chosen: Option<Encoding>,
}

impl Ours {
    fn new(method: Method) -> Self {
        Self {
            encoder: Encoder::new(method, method),
            decoder: Decoder::new(),
            chosen: None,
        }
    }

    fn take(&mut self, found: Option<vellum_codec::Encoded>, block: &Block, out: &mut Vec<u8>) {
        self.chosen = found.map(|found| found.encoding);
        match found {
            Some(found) => out.truncate(found.length),
            None => {
                out.clear();
                out.extend_from_slice(block);
            }
        }
    }
}

impl Candidate for Ours {
    fn encode(&mut self, block: &Block, _: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM / 2, 0);
        let found = self.encoder.compress(block, out);
        self.take(found, block, out);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], base: &Block, out: &mut Block) -> anyhow::Result<()> {
        match self.chosen {
            Some(encoding) => self.decoder.decode(encoding, bytes, Some(base), out)?,
            None => out.copy_from_slice(bytes),
        }
        Ok(())
    }
}

struct OursDelta(Ours);

impl OursDelta {
    fn new(method: Method) -> Self {
        Self(Ours::new(method))
    }
}

impl Candidate for OursDelta {
    fn encode(&mut self, block: &Block, base: &Block, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.resize(ROOM / 2, 0);
        let found = self.0.encoder.delta(block, base, out);
        self.0.take(found, block, out);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8], base: &Block, out: &mut Block) -> anyhow::Result<()> {
        self.0.decode(bytes, base, out)
    }
}
