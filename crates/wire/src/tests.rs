//! Random and mutated frames: the parser returns a result for any bytes and never panics.

use crate::compression::{self, Compressor};
use crate::frame::{self, Frame, RequestRanges};
use crate::header::{self, Header, Opcode, frame_length};
use crate::{message, query};
use base::bson::Builder;
use base::random::Random;

/// Returns an OP_MSG with a body, two sequences and an optional checksum.
fn sample(checksum: bool) -> Vec<u8> {
    let mut out = Vec::new();
    header::begin(&mut out, 7, 0, Opcode::Message);
    out.extend_from_slice(&u32::from(checksum).to_le_bytes());
    out.push(0);
    let mut body = Builder::with_buffer(out);
    body.append(c"insert", "c").append(c"$db", "d").begin_array(c"x").push(1).push("y").end();
    let mut out = body.into_buffer();
    for name in ["documents", "more"] {
        let mut documents = Builder::new();
        documents.append(c"_id", 1).append(c"text", "some text");
        let document = documents.finish();
        let size = 4 + name.len() + 1 + 2 * document.bytes().len();
        out.push(1);
        out.extend_from_slice(&(size as i32).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend_from_slice(document.bytes());
        out.extend_from_slice(document.bytes());
    }
    if checksum {
        out.extend_from_slice(&[0; 4]);
    }
    header::finish(&mut out, 0);
    if checksum {
        let end = out.len() - 4;
        let sum = crc32c::crc32c(&out[..end]);
        out[end..].copy_from_slice(&sum.to_le_bytes());
    }
    out
}

/// Parses a frame as a connection does and reads all of it.
fn swallow(frame: &[u8]) {
    let _ = frame_length(frame);
    let mut bytes = frame.to_vec();
    if let Ok(compressor) = frame::decompress(&mut bytes, header::MAX_MESSAGE_SIZE) {
        let _ = format!("{:?}", frame::parse(&bytes, compressor));
    }
    let Ok((header, body)) = Header::split(frame) else { return };
    match header.opcode {
        Opcode::Compressed => {
            let mut unpacked = Vec::new();
            if compression::decompress_message(frame, header::MAX_MESSAGE_SIZE, &mut unpacked).is_ok() {
                swallow(&unpacked);
            }
        }
        Opcode::Message => {
            if let Ok(message) = message::parse(frame)
                && let Ok(request) = message.request
            {
                let _ = format!("{:?} {}", request.body, request.name);
                for sequence in request.sequences.iter() {
                    assert_eq!(sequence.documents.iter().count(), sequence.documents.len());
                }
            }
        }
        Opcode::Query => drop(query::parse(body)),
        Opcode::Reply => {}
    }
}

#[test]
fn a_message_is_read_with_its_sequences() {
    for checksum in [false, true] {
        let frame = sample(checksum);
        let message = message::parse(&frame).unwrap();
        let request = message.request.unwrap();
        assert_eq!((request.name, request.database), ("insert", "d"));
        let sequence = request.sequences.iter().next().unwrap();
        let documents = sequence.documents;
        assert_eq!((sequence.name, documents.len()), ("documents", 2));
        assert_eq!(documents.iter().filter(|document| document.get("_id").is_some()).count(), 2);
        let parsed = format!("{request:?}");
        let (envelope, _) = frame::parse(&frame, None).unwrap();
        let ranges = Ok(RequestRanges::of(&request, &frame));
        let copy = Frame { bytes: frame.clone(), envelope, ranges };
        // Debug output of slices prints their content.
        assert_eq!(format!("{:?}", copy.request().unwrap()), parsed);
    }
}

#[test]
fn a_changed_byte_fails_the_checksum() {
    let good = sample(true);
    for at in [20, 40, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(message::parse(&bad).is_err(), "{at}");
    }
}

#[test]
fn every_cut_of_a_message_is_refused() {
    let good = sample(false);
    for cut in 0..good.len() {
        let mut bad = good[..cut].to_vec();
        if cut >= 16 {
            header::finish(&mut bad, 0);
        }
        let is_valid = message::parse(&bad).is_ok_and(|message| message.request.is_ok());
        // A message cut between two sections is again a valid message.
        let sections = [66, 66 + 5 + 10 + 70, 0];
        assert!(!is_valid || sections.iter().any(|end| cut.abs_diff(*end) < 80), "{cut}");
        swallow(&bad);
    }
}

#[test]
fn mutated_frames_never_panic() {
    let random = Random::new(0x5EED);
    let mut samples = vec![sample(false), sample(true)];
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut packed = sample(false);
        compression::compress_message(compressor, &mut packed);
        samples.push(packed);
    }
    for round in 0..40_000 {
        let mut frame = samples[round % samples.len()].clone();
        for _ in 0..=random.index(4) {
            let at = random.index(frame.len());
            frame[at] = match random.index(3) {
                0 => random.draw() as u8,
                1 => frame[at] ^ (1 << random.index(8)),
                _ => [0, 1, 0x7F, 0x80, 0xFF][random.index(5)],
            };
        }
        if random.index(4) == 0 {
            frame.truncate(random.index(frame.len()));
        }
        swallow(&frame);
    }
}

#[test]
fn random_bytes_never_panic() {
    let random = Random::new(0xF00D);
    for _ in 0..20_000 {
        let length = random.index(200);
        let mut frame: Vec<u8> = (0..length).map(|_| random.draw() as u8).collect();
        if let Some(opcode) = frame.get_mut(12..16) {
            let known = [Opcode::Message, Opcode::Query, Opcode::Compressed][random.index(3)];
            opcode.copy_from_slice(&(known as i32).to_le_bytes());
        }
        swallow(&frame);
    }
}
