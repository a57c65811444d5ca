//! The compressors of OP_COMPRESSED: snappy, zlib and zstd, in pure Rust.
//!
//! What unpacks stops one byte beyond the size that was claimed, so that a small message can't ask for endless memory.

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// The largest window a zstd frame may ask for; MongoDB's clients use levels that stay below.
const ZSTD_WINDOW_MAX: u64 = 64 * 1024 * 1024;

/// A way of compressing messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compressor {
    /// Not at all, though within OP_COMPRESSED.
    Noop = 0,
    /// Snappy, raw format.
    Snappy = 1,
    /// Zlib.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compressor {
    /// Those offered in the handshake, best first: clients' wishes are matched against them.
    pub const OFFERED: [Compressor; 3] = [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];

    /// The name in the handshake.
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }

    /// The one with this number on the wire.
    pub fn from_number(number: u8) -> Option<Compressor> {
        Some(match number {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }
}

/// Appends what `packed` unpacks to; never more than one byte beyond `size`, which tells that
/// there was too much.
pub fn decompress(compressor: Compressor, packed: &[u8], size: usize, out: &mut Vec<u8>) -> Option<()> {
    let limit = size as u64 + 1;
    match compressor {
        Compressor::Noop => {
            out.extend_from_slice(packed);
            Some(())
        }
        Compressor::Snappy => {
            if snap::raw::decompress_len(packed).ok()? != size {
                return None;
            }
            let start = out.len();
            out.resize(start + size, 0);
            snap::raw::Decoder::new().decompress(packed, out.get_mut(start..)?).ok()?;
            Some(())
        }
        Compressor::Zlib => {
            ZlibDecoder::new(packed).take(limit).read_to_end(out).ok()?;
            Some(())
        }
        Compressor::Zstd => {
            let decoder =
                ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, ZSTD_WINDOW_MAX).ok()?;
            decoder.take(limit).read_to_end(out).ok()?;
            Some(())
        }
    }
}

/// Appends `body`, compressed; `None` where that isn't possible.
pub fn compress(compressor: Compressor, body: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match compressor {
        Compressor::Noop => out.extend_from_slice(body),
        Compressor::Snappy => {
            let start = out.len();
            out.resize(start + snap::raw::max_compress_len(body.len()), 0);
            let written = snap::raw::Encoder::new().compress(body, out.get_mut(start..)?).ok()?;
            out.truncate(start + written);
        }
        Compressor::Zlib => {
            let mut encoder = ZlibEncoder::new(&mut *out, flate2::Compression::new(6));
            encoder.write_all(body).ok()?;
            encoder.finish().ok()?;
        }
        Compressor::Zstd => {
            ruzstd::encoding::compress(body, &mut *out, ruzstd::encoding::CompressionLevel::Fastest);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back_and_too_much_is_told() {
        let body: Vec<u8> = (0..50_000_u32).map(|i| (i / 9) as u8).collect();
        for compressor in Compressor::OFFERED.into_iter().chain([Compressor::Noop]) {
            let (mut packed, mut whole, mut cut) = (Vec::new(), Vec::new(), Vec::new());
            compress(compressor, &body, &mut packed).unwrap();
            decompress(compressor, &packed, body.len(), &mut whole).unwrap();
            assert_eq!(whole, body, "{compressor:?}");
            let told = decompress(compressor, &packed, 100, &mut cut);
            assert!(told.is_none() || cut.len() > 100, "{compressor:?}");
        }
    }
}
