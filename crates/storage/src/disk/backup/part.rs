//! A part of a backup in a file: a header, frames of the journal's format, a trailer.
//!
//! The header has 36 bytes: `VellumB\n`, version (u32), kind (u32: 1 everything, 2 changes), the data directory's id
//! (u64), the position before its first commit (u64, 0 for everything), CRC-32C. The trailer has 44: `VellumE\n`, the
//! position of the last commit in it (u64), the greatest cluster time (u64), the time up to which nothing is missing
//! (u64), the number of frames (u64), CRC-32C. All numbers are little endian. A part that was interrupted has no
//! trailer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::trail::{Next, Source, Trail};
use crate::disk::files::Files;
use crate::disk::journal::during;
use crate::{Error, Result};

const BEGIN: [u8; 8] = *b"VellumB\n";
const END: [u8; 8] = *b"VellumE\n";
const VERSION: u32 = 1;
pub(super) const HEAD_BYTES: usize = 8 + 4 + 4 + 8 + 8 + 4;
pub(super) const END_BYTES: usize = 8 + 8 + 8 + 8 + 8 + 4;

/// What a part of a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everything as of one moment.
    Full,
    /// The commits since the part before it.
    Changes,
}

impl Kind {
    /// How files are called that hold it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Full => "full",
            Kind::Changes => "changes",
        }
    }
}

/// What a part begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// The number of the data directory.
    pub(super) id: u64,
    /// The position before its first commit.
    pub(super) from: u64,
}

/// Up to where a part goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// The position of the last commit.
    pub position: u64,
    /// The greatest cluster time of any commit.
    pub time: u64,
    /// A cluster time: there was no other commit up to it.
    pub covers: u64,
}

/// A complete part in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its place among the parts of its directory.
    pub number: u64,
    /// What it holds.
    pub kind: Kind,
    /// The random number of the data directory that it was made of.
    pub id: u64,
    /// The position before its first commit.
    pub from: u64,
    /// Up to where it goes.
    pub end: End,
    /// How many frames it has.
    pub frames: u64,
    /// Its length.
    pub bytes: u64,
    /// Where it is.
    pub path: PathBuf,
}

impl Head {
    pub(super) fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let kind: u32 = match self.kind {
            Kind::Full => 1,
            Kind::Changes => 2,
        };
        bytes[..8].copy_from_slice(&BEGIN);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.from.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; HEAD_BYTES]) -> std::result::Result<Self, String> {
        let (fields, checksum) = bytes.split_at(32);
        if fields.get(..8) != Some(&BEGIN) || checksum != crc32c::crc32c(fields).to_le_bytes() {
            return Err("doesn't begin as a part of a backup does".to_string());
        }
        if let Some(other) = word(fields, 8).filter(|version| *version != VERSION) {
            return Err(format!(
                "has version {other}, and this version of Vellum reads version {VERSION} alone"
            ));
        }
        let kind = match word(fields, 12) {
            Some(1) => Kind::Full,
            Some(2) => Kind::Changes,
            _ => return Err("is of a kind that this version of Vellum doesn't know".to_string()),
        };
        let (id, from) = (number(fields, 16).unwrap_or_default(), number(fields, 24).unwrap_or_default());
        Ok(Head { kind, id, from })
    }
}

impl End {
    pub(super) fn bytes(&self, frames: u64) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&END);
        let numbers = [self.position, self.time, self.covers, frames];
        for (field, number) in bytes[8..40].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; END_BYTES]) -> Option<(Self, u64)> {
        let (fields, checksum) = bytes.split_at(40);
        if fields.get(..8) != Some(&END) || checksum != crc32c::crc32c(fields).to_le_bytes() {
            return None;
        }
        let (position, time) = (number(fields, 8)?, number(fields, 16)?);
        Some((End { position, time, covers: number(fields, 24)? }, number(fields, 32)?))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Part {
    /// Reads the header and the trailer of a file.
    pub(super) fn open(files: &dyn Files, path: &Path, part: u64) -> Result<Self> {
        let (mut head, mut end) = ([0; HEAD_BYTES], [0; END_BYTES]);
        let mut read = || {
            let file = files.open(path, false)?;
            let len = file.len()?;
            let rest = len.checked_sub((HEAD_BYTES + END_BYTES) as u64);
            if let Some(rest) = rest {
                file.read_at(&mut head, 0)?;
                file.read_at(&mut end, HEAD_BYTES as u64 + rest)?;
            }
            Ok(rest.map(|_| len))
        };
        let damaged = |what: &str| Error::Corrupted(format!("{} {what}", path.display()));
        let bytes = read().map_err(|error| during("reading", path, error))?;
        let bytes = bytes.ok_or_else(|| damaged("is shorter than any part of a backup"))?;
        let head = Head::read(&head).map_err(|what| damaged(&what))?;
        let (end, frames) =
            End::read(&end).ok_or_else(|| damaged("has no end: it is cut off, or damaged there"))?;
        let Head { kind, id, from } = head;
        Ok(Part { number: part, kind, id, from, end, frames, bytes, path: path.to_path_buf() })
    }

    /// Its frames, as a source of commits. Those of a full part count from 1.
    pub(super) fn source(&self) -> Source {
        let last = match self.kind {
            Kind::Full => self.frames,
            Kind::Changes => self.end.position,
        };
        let range = HEAD_BYTES as u64..self.bytes.saturating_sub(END_BYTES as u64);
        Source::closed(self.path.clone(), self.from + 1, last, Some(range))
    }

    /// Reads all of it, and fails with what isn't as it was written.
    pub(super) fn check(&self, files: &Arc<dyn Files>) -> Result<()> {
        let mut trail = Trail::new(Arc::clone(files), vec![self.source()], self.from);
        let mut frames = 0;
        loop {
            match trail.next()? {
                Next::Frame(_) => frames += 1,
                Next::End if frames == self.frames => return Ok(()),
                Next::End | Next::Gap(_) => {
                    let what = format!("{frames} frames are found, {} were written", self.frames);
                    return Err(Error::Corrupted(format!("{}: {what}", self.path.display())));
                }
            }
        }
    }
}
