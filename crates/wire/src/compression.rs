//! OP_COMPRESSED: a message compressed by snappy, zlib or zstd, in pure Rust.
//!
//! Decompression stops one byte beyond the claimed size, so a small message cannot ask for endless memory.

use crate::header::{self, FrameError, HEADER_SIZE, Header, MAX_MESSAGE_SIZE, Opcode, malformed, read_i32};
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// The largest window that a zstd frame may use. MongoDB's clients use levels below this.
const ZSTD_WINDOW_MAX: u64 = 64 * 1024 * 1024;

/// A compressor of OP_COMPRESSED.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compressor {
    /// No compression, though wrapped in OP_COMPRESSED.
    Noop = 0,
    /// Snappy, raw format.
    Snappy = 1,
    /// Zlib.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compressor {
    /// Compressors offered in the handshake, best first. The server picks from these what the client also lists.
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

    /// Returns the compressor with this number on the wire.
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

/// Appends the decompressed bytes of `input`. Stops one byte beyond `size`, which signals excess data to the caller.
pub fn decompress(compressor: Compressor, input: &[u8], size: usize, out: &mut Vec<u8>) -> Option<()> {
    let one_more = size as u64 + 1;
    match compressor {
        Compressor::Noop => {
            out.extend_from_slice(input);
            Some(())
        }
        Compressor::Snappy => {
            if snap::raw::decompress_len(input).ok()? != size {
                return None;
            }
            let start = out.len();
            out.resize(start + size, 0);
            snap::raw::Decoder::new().decompress(input, out.get_mut(start..)?).ok()?;
            Some(())
        }
        Compressor::Zlib => {
            ZlibDecoder::new(input).take(one_more).read_to_end(out).ok()?;
            Some(())
        }
        Compressor::Zstd => {
            let decoder =
                ruzstd::decoding::StreamingDecoder::new_with_max_window_size(input, ZSTD_WINDOW_MAX).ok()?;
            decoder.take(one_more).read_to_end(out).ok()?;
            Some(())
        }
    }
}

/// Appends the compressed `body`; `None` if compression fails.
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

/// Bytes between the header and the compressed data: opcode, size, compressor.
const PREAMBLE_SIZE: usize = 9;

/// Decompresses an OP_COMPRESSED frame into `out`, as a whole message with its own header. `limit` limits the size of
/// the result in bytes.
///
/// Errors: an unknown compressor, a size beyond the limit, a wrong size, damaged data, or a compressed message inside a
/// compressed message.
pub fn decompress_message(frame: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<Compressor, FrameError> {
    let (header, body) = Header::split(frame)?;
    let cut_off = || malformed("OP_COMPRESSED is cut off");
    let number = read_i32(body, 0).ok_or_else(cut_off)?;
    let size = read_i32(body, 4).and_then(|size| usize::try_from(size).ok()).ok_or_else(cut_off)?;
    let compressor = *body.get(8).ok_or_else(cut_off)?;
    let compressed = body.get(PREAMBLE_SIZE..).ok_or_else(cut_off)?;
    let opcode = Opcode::from_number(number)
        .filter(|&opcode| opcode != Opcode::Compressed)
        .ok_or_else(|| malformed(format!("OP_COMPRESSED holds unsupported opcode {number}")))?;
    let compressor = Compressor::from_number(compressor)
        .ok_or_else(|| malformed(format!("OP_COMPRESSED with unknown compressor {compressor}")))?;
    if size > limit.min(MAX_MESSAGE_SIZE) - HEADER_SIZE.min(limit) {
        return Err(malformed(format!("OP_COMPRESSED claims {size} uncompressed bytes")));
    }
    out.clear();
    header::begin(out, header.request_id, 0, opcode);
    decompress(compressor, compressed, size, out)
        .filter(|()| out.len() == HEADER_SIZE + size)
        .ok_or_else(|| malformed(format!("OP_COMPRESSED: damaged {} data", compressor.name())))?;
    header::finish(out, 0);
    Ok(compressor)
}

/// Replaces the message in `out` by an OP_COMPRESSED message around it.
pub fn compress_message(compressor: Compressor, out: &mut Vec<u8>) {
    let Ok((header, body)) = Header::split(out) else { return };
    let response_to = read_i32(out, 8).unwrap_or_default();
    let mut compressed = Vec::with_capacity(HEADER_SIZE + PREAMBLE_SIZE + body.len() / 2);
    header::begin(&mut compressed, header.request_id, response_to, Opcode::Compressed);
    compressed.extend_from_slice(&(header.opcode as i32).to_le_bytes());
    compressed.extend_from_slice(&(body.len() as i32).to_le_bytes());
    compressed.push(compressor as u8);
    // A reply that cannot be compressed is sent uncompressed, which every client accepts.
    if compress(compressor, body, &mut compressed).is_some() {
        header::finish(&mut compressed, 0);
        *out = compressed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_round_trips_and_large_output_is_refused() {
        let body: Vec<u8> = (0..50_000_u32).map(|i| (i / 9) as u8).collect();
        for compressor in Compressor::OFFERED.into_iter().chain([Compressor::Noop]) {
            let (mut compressed, mut decompressed, mut cut) = (Vec::new(), Vec::new(), Vec::new());
            compress(compressor, &body, &mut compressed).unwrap();
            decompress(compressor, &compressed, body.len(), &mut decompressed).unwrap();
            assert_eq!(decompressed, body, "{compressor:?}");
            let result = decompress(compressor, &compressed, 100, &mut cut);
            assert!(result.is_none() || cut.len() > 100, "{compressor:?}");
        }
    }

    const ALL: [Compressor; 4] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

    fn message(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header::begin(&mut out, 3, 4, Opcode::Message);
        out.extend_from_slice(body);
        header::finish(&mut out, 0);
        out
    }

    #[test]
    fn every_compressor_round_trips() {
        for size in [0, 1, 100, 200_000] {
            let body: Vec<u8> = (0..size).map(|i: u32| (i / 7) as u8).collect();
            for compressor in ALL {
                let mut compressed = message(&body);
                compress_message(compressor, &mut compressed);
                assert_eq!(header::frame_length(&compressed).unwrap(), Some(compressed.len()));
                let mut out = Vec::new();
                assert_eq!(decompress_message(&compressed, MAX_MESSAGE_SIZE, &mut out).unwrap(), compressor);
                assert_eq!(Header::split(&out).unwrap().1, body, "{compressor:?} {size}");
            }
        }
    }

    #[test]
    fn a_lying_size_is_refused_without_unpacking_it_all() {
        for compressor in ALL {
            for claim in [0i32, 10, 99_999, 100_001, i32::MAX, -1] {
                let mut compressed = message(&vec![0; 100_000]);
                compress_message(compressor, &mut compressed);
                compressed[20..24].copy_from_slice(&claim.to_le_bytes());
                let mut out = Vec::new();
                assert!(decompress_message(&compressed, MAX_MESSAGE_SIZE, &mut out).is_err(), "{claim}");
                assert!(out.len() <= 100_100);
            }
        }
    }

    #[test]
    fn compressed_within_compressed_is_refused() {
        let mut compressed = message(b"x");
        compress_message(Compressor::Snappy, &mut compressed);
        compress_message(Compressor::Snappy, &mut compressed);
        assert!(decompress_message(&compressed, MAX_MESSAGE_SIZE, &mut Vec::new()).is_err());
    }
}
