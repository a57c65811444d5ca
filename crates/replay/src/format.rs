//! The file format of a recording. A new kind of event needs a tag in `tag`, and cases in `encode` and `decode`.
//!
//! A file begins with the eight bytes `VELLUMRC` and the version, 1, in four bytes. All numbers are little-endian.
//! Events follow, each as
//!
//! | bytes | content |
//! |---|---|
//! | 4 | length of the data after the checksum |
//! | 4 | CRC-32C of that data |
//! | 1 | kind of event |
//! | 4 | number of the connection, from 1; 0 for none |
//! | 8 | microseconds since the start of the recording |
//! | remaining | depends on the kind |
//!
//! The first event is the header. A file whose last event is not [`EventKind::End`] was cut short, and is valid up to
//! there. A wrong checksum means damage, and the reader stops.

use base::bson::{Document, DocumentBuf, validate};
use std::fmt;
use std::io::{self, Read};

const MAGIC: &[u8; 8] = b"VELLUMRC";

/// Version of the format.
pub const VERSION: u32 = 1;

/// Length of the fixed part: kind, connection and time.
const FIXED_SIZE: usize = 13;

/// Maximum length of an event: the longest message plus the fields around it.
const EVENT_MAX: usize = 48_000_000 + 64;

/// A recorded event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Number of the connection, from 1.
    pub connection: u32,
    /// Microseconds since the start of the recording.
    pub at: u64,
    /// Kind and data of the event.
    pub kind: EventKind,
}

/// Kind and data of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// Description of the recording, as BSON. It is the first event, and occurs once.
    Header(Vec<u8>),
    /// A client connected.
    Opened,
    /// A message of the client.
    Request {
        /// Request id, which the reply names.
        id: i32,
        /// Flags of the OP_MSG.
        flags: u32,
        /// Sections of the OP_MSG.
        sections: Vec<u8>,
    },
    /// A message of the server.
    Reply {
        /// Id of the reply.
        id: i32,
        /// Id of the request that it answers.
        to: i32,
        /// Flags of the OP_MSG.
        flags: u32,
        /// Sections of the OP_MSG.
        sections: Vec<u8>,
    },
    /// A request that was recorded without its content and reply; holds the name of the command.
    Withheld(String),
    /// The connection ended.
    Closed,
    /// End of the recording, with the reason. The reason is empty for an ordinary end.
    End(String),
}

/// Errors of reading a file.
#[derive(Debug)]
pub enum ReadError {
    /// Not a recording, or of an unknown version.
    NotARecording(String),
    /// The file ends in the middle of an event.
    Truncated,
    /// The checksum or the content of an event is wrong.
    Corrupt {
        /// Offset of the event in bytes.
        at: u64,
    },
    /// I/O error.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotARecording(why) => f.write_str(why),
            ReadError::Truncated => f.write_str("it ends in the middle of an event"),
            ReadError::Corrupt { at } => write!(f, "it is damaged at byte {at}"),
            ReadError::Io(error) => write!(f, "{error}"),
        }
    }
}

/// Returns the start of a file: magic, version and header.
pub fn encode_start(header: &DocumentBuf) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    encode(&Event { connection: 0, at: 0, kind: EventKind::Header(header.bytes().to_vec()) }, &mut out);
    out
}

/// Appends an event.
pub fn encode(event: &Event, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; 8]);
    out.push(tag(&event.kind));
    out.extend(event.connection.to_le_bytes());
    out.extend(event.at.to_le_bytes());
    match &event.kind {
        EventKind::Opened | EventKind::Closed => {}
        EventKind::Header(bytes) => out.extend(bytes),
        EventKind::Withheld(text) | EventKind::End(text) => out.extend(text.as_bytes()),
        EventKind::Request { id, flags, sections } => {
            out.extend(id.to_le_bytes());
            out.extend(flags.to_le_bytes());
            out.extend(sections);
        }
        EventKind::Reply { id, to, flags, sections } => {
            out.extend(id.to_le_bytes());
            out.extend(to.to_le_bytes());
            out.extend(flags.to_le_bytes());
            out.extend(sections);
        }
    }
    let length = (out.len() - start - 8) as u32;
    let checksum = crc32c::crc32c(out.get(start + 8..).unwrap_or_default());
    if let Some(slot) = out.get_mut(start..start + 8) {
        slot[..4].copy_from_slice(&length.to_le_bytes());
        slot[4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Returns the byte that stands for a kind of event in the file.
fn tag(kind: &EventKind) -> u8 {
    match kind {
        EventKind::Header(_) => 0,
        EventKind::Opened => 1,
        EventKind::Request { .. } => 2,
        EventKind::Reply { .. } => 3,
        EventKind::Withheld(_) => 4,
        EventKind::Closed => 5,
        EventKind::End(_) => 6,
    }
}

/// Reads a recording event by event.
pub struct Reader<R> {
    source: R,
    header: DocumentBuf,
    /// Number of bytes read.
    at: u64,
}

impl<R: Read> Reader<R> {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// A description of the content if it is no recording.
    pub fn open(mut source: R) -> Result<Reader<R>, ReadError> {
        let mut start = [0; 12];
        let filled = fill(&mut source, &mut start)?;
        let (magic, version) = start.split_at(MAGIC.len());
        if filled < start.len() || magic != MAGIC {
            return Err(ReadError::NotARecording("it is not a recording of vellum lab record".to_string()));
        }
        let version = number(version).unwrap_or_default();
        if version != VERSION {
            return Err(ReadError::NotARecording(format!(
                "it has format version {version}, and this program reads version {VERSION}"
            )));
        }
        let mut reader = Reader { source, header: DocumentBuf::empty(), at: start.len() as u64 };
        match reader.event()?.map(|event| event.kind) {
            Some(EventKind::Header(bytes)) if validate(&bytes).is_ok() => {
                reader.header = DocumentBuf::from_valid(bytes);
                Ok(reader)
            }
            _ => Err(ReadError::NotARecording("it has no header".to_string())),
        }
    }

    /// Returns the description of the recording.
    pub fn header(&self) -> Document<'_> {
        self.header.view()
    }

    /// Returns the next event; `None` at the end of the file.
    ///
    /// # Errors
    /// An I/O error or a corrupt event.
    pub fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        let at = self.at;
        match self.event()? {
            Some(Event { kind: EventKind::Header(_), .. }) => Err(ReadError::Corrupt { at }),
            event => Ok(event),
        }
    }

    /// Reads one event and verifies its checksum. A file that ends within an event was cut short, not corrupt.
    fn event(&mut self) -> Result<Option<Event>, ReadError> {
        let corrupt = ReadError::Corrupt { at: self.at };
        let mut head = [0; 8];
        match fill(&mut self.source, &mut head)? {
            0 => return Ok(None),
            8 => {}
            _ => return Err(ReadError::Truncated),
        }
        let (length, checksum) = head.split_at(4);
        let length = number(length).unwrap_or_default() as usize;
        if !(FIXED_SIZE..=EVENT_MAX).contains(&length) {
            return Err(corrupt);
        }
        let mut bytes = Vec::new();
        // Memory grows with the bytes read, not with the claimed length.
        (&mut self.source).take(length as u64).read_to_end(&mut bytes).map_err(ReadError::Io)?;
        if bytes.len() < length {
            return Err(ReadError::Truncated);
        }
        if Some(crc32c::crc32c(&bytes)) != number(checksum) {
            return Err(corrupt);
        }
        self.at += 8 + length as u64;
        decode(&bytes).map(Some).ok_or(corrupt)
    }
}

/// Reads until the buffer is full or the source ends. Returns the number of bytes.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ReadError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
    }
    Ok(filled)
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

/// Decodes the bytes of an event after its checksum.
fn decode(bytes: &[u8]) -> Option<Event> {
    let (tag, rest) = bytes.split_first()?;
    let (connection, rest) = rest.split_first_chunk()?;
    let (at, rest) = rest.split_first_chunk()?;
    let word = |at: usize| number(rest.get(at..)?);
    let id = |at: usize| word(at).map(|word| word as i32);
    let text = || String::from_utf8(rest.to_vec()).ok();
    let kind = match tag {
        0 => EventKind::Header(rest.to_vec()),
        1 if rest.is_empty() => EventKind::Opened,
        2 => EventKind::Request { id: id(0)?, flags: word(4)?, sections: rest.get(8..)?.to_vec() },
        3 => EventKind::Reply { id: id(0)?, to: id(4)?, flags: word(8)?, sections: rest.get(12..)?.to_vec() },
        4 => EventKind::Withheld(text()?),
        5 if rest.is_empty() => EventKind::Closed,
        6 => EventKind::End(text()?),
        _ => return None,
    };
    Some(Event { connection: u32::from_le_bytes(*connection), at: u64::from_le_bytes(*at), kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Builder;

    fn events() -> Vec<Event> {
        let event = |at, kind| Event { connection: 7, at, kind };
        vec![
            event(1, EventKind::Opened),
            event(2, EventKind::Withheld("saslStart".to_string())),
            event(3, EventKind::Request { id: -1, flags: 2, sections: vec![0, 5, 0, 0, 0, 0] }),
            event(u64::MAX, EventKind::Reply { id: 9, to: -1, flags: 0, sections: vec![] }),
            event(4, EventKind::Closed),
            event(5, EventKind::End(String::new())),
        ]
    }

    fn file() -> Vec<u8> {
        let mut header = Builder::new();
        header.append(c"upstream", "mongodb://h:1/");
        let mut out = encode_start(&header.finish());
        events().iter().for_each(|event| encode(event, &mut out));
        out
    }

    fn read(bytes: &[u8]) -> (Vec<Event>, Option<ReadError>) {
        let mut reader = match Reader::open(bytes) {
            Ok(reader) => reader,
            Err(broken) => return (Vec::new(), Some(broken)),
        };
        let mut events = Vec::new();
        loop {
            match reader.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return (events, None),
                Err(broken) => return (events, Some(broken)),
            }
        }
    }

    #[test]
    fn written_events_are_read() {
        let file = file();
        let (found, broken) = read(&file);
        assert!(broken.is_none(), "{broken:?}");
        assert_eq!(found, events());
        assert_eq!(
            Reader::open(file.as_slice()).unwrap().header().get("upstream").unwrap().as_str(),
            Some("mongodb://h:1/")
        );
    }

    #[test]
    fn a_file_that_ends_early_is_good_up_to_there() {
        let complete = file();
        for end in 0..complete.len() {
            let (found, broken) = read(&complete[..end]);
            assert!(events().starts_with(&found), "{end}");
            assert!(found.len() < events().len());
            // A cut between two events shows only in the missing end event.
            assert!(broken.is_some() || found.last() != Some(&events()[5]), "{end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let complete = file();
        for at in 0..complete.len() {
            for bit in 0..8 {
                let mut file = complete.clone();
                file[at] ^= 1 << bit;
                let (found, broken) = read(&file);
                assert!(broken.is_some() && events().starts_with(&found), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn other_files_and_versions_are_named() {
        let (_, broken) = read(b"#!/bin/sh");
        assert!(broken.unwrap().to_string().contains("not a recording"));
        let mut newer = file();
        newer[8] = 2;
        assert!(read(&newer).1.unwrap().to_string().contains("version 2"));
    }
}
