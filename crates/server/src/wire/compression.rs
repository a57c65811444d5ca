//! OP_COMPRESSED: another message inside, by snappy, zlib or zstd.
//!
//! The size a message claims is checked against the limit before anything is decompressed, and
//! what comes out must have exactly that size, so a small message can't ask for endless memory.

use super::header::{self, HEADER_SIZE, Header, Opcode};
use super::{MAX_MESSAGE_SIZE, Trouble, malformed, read_i32};
pub(crate) use wire::compression::Compressor;
use wire::compression::{compress, decompress};

/// The bytes behind the header before the compressed ones: opcode, size, compressor.
const PREAMBLE_SIZE: usize = 9;

/// Unpacks an OP_COMPRESSED frame into `out`, which then holds the whole inner message with a
/// header of its own and at most `most` bytes.
///
/// Errors: an unknown compressor, a size beyond the limit or not the true one, damaged data, or
/// a compressed message inside a compressed one.
pub(crate) fn unpack(frame: &[u8], most: usize, out: &mut Vec<u8>) -> Result<Compressor, Trouble> {
    let (header, body) = Header::split(frame)?;
    let cut_off = || malformed("OP_COMPRESSED is cut off");
    let number = read_i32(body, 0).ok_or_else(cut_off)?;
    let size = read_i32(body, 4).and_then(|size| usize::try_from(size).ok()).ok_or_else(cut_off)?;
    let compressor = *body.get(8).ok_or_else(cut_off)?;
    let packed = body.get(PREAMBLE_SIZE..).ok_or_else(cut_off)?;
    let opcode = Opcode::from_number(number)
        .filter(|&opcode| opcode != Opcode::Compressed)
        .ok_or_else(|| malformed(format!("OP_COMPRESSED holds unsupported opcode {number}")))?;
    let compressor = Compressor::from_number(compressor)
        .ok_or_else(|| malformed(format!("OP_COMPRESSED with unknown compressor {compressor}")))?;
    if size > most.min(MAX_MESSAGE_SIZE) - HEADER_SIZE.min(most) {
        return Err(malformed(format!("OP_COMPRESSED claims {size} uncompressed bytes")));
    }
    out.clear();
    header::begin(out, header.request_id, 0, opcode);
    decompress(compressor, packed, size, out)
        .filter(|()| out.len() == HEADER_SIZE + size)
        .ok_or_else(|| malformed(format!("OP_COMPRESSED: damaged {} data", compressor.name())))?;
    header::finish(out, 0);
    Ok(compressor)
}

/// Replaces the message in `out` by an OP_COMPRESSED one around it.
pub(crate) fn pack(compressor: Compressor, out: &mut Vec<u8>) {
    let Ok((header, body)) = Header::split(out) else { return };
    let response_to = read_i32(out, 8).unwrap_or_default();
    let mut packed = Vec::with_capacity(HEADER_SIZE + PREAMBLE_SIZE + body.len() / 2);
    header::begin(&mut packed, header.request_id, response_to, Opcode::Compressed);
    packed.extend_from_slice(&(header.opcode as i32).to_le_bytes());
    packed.extend_from_slice(&(body.len() as i32).to_le_bytes());
    packed.push(compressor as u8);
    // A reply that can't be compressed goes out as it is, which every client takes.
    if compress(compressor, body, &mut packed).is_some() {
        header::finish(&mut packed, 0);
        *out = packed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compressor; 4] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

    fn message(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header::begin(&mut out, 3, 4, Opcode::Message);
        out.extend_from_slice(body);
        header::finish(&mut out, 0);
        out
    }

    #[test]
    fn every_compressor_goes_there_and_back() {
        for size in [0, 1, 100, 200_000] {
            let body: Vec<u8> = (0..size).map(|i: u32| (i / 7) as u8).collect();
            for compressor in ALL {
                let mut packed = message(&body);
                pack(compressor, &mut packed);
                assert_eq!(header::frame_length(&packed).unwrap(), Some(packed.len()));
                let mut unpacked = Vec::new();
                assert_eq!(unpack(&packed, MAX_MESSAGE_SIZE, &mut unpacked).unwrap(), compressor, "{size}");
                assert_eq!(Header::split(&unpacked).unwrap().1, body, "{compressor:?} {size}");
            }
        }
    }

    #[test]
    fn a_lying_size_is_refused_without_unpacking_it_all() {
        for compressor in ALL {
            for claim in [0i32, 10, 99_999, 100_001, i32::MAX, -1] {
                let mut packed = message(&vec![0; 100_000]);
                pack(compressor, &mut packed);
                packed[20..24].copy_from_slice(&claim.to_le_bytes());
                let mut unpacked = Vec::new();
                assert!(unpack(&packed, MAX_MESSAGE_SIZE, &mut unpacked).is_err(), "{compressor:?} {claim}");
                assert!(unpacked.len() <= 100_100);
            }
        }
    }

    #[test]
    fn compressed_within_compressed_is_refused() {
        let mut packed = message(b"x");
        pack(Compressor::Snappy, &mut packed);
        pack(Compressor::Snappy, &mut packed);
        assert!(unpack(&packed, MAX_MESSAGE_SIZE, &mut Vec::new()).is_err());
    }
}
