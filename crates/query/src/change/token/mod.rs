//! Resume tokens: the position of an event in a stream, as a key string in hexadecimal.
//!
//! The parts, in this order: the cluster time, the version, the kind of token, the event's number within its oplog
//! entry, the invalidation flag, the collection's UUID, the event
//! (`{operationType, documentKey or operationDescription}`), and the fragment of a split event. Tokens therefore sort
//! in the order of the events, as bytes and as text.

mod key;
#[cfg(test)]
mod tests;

use base::bson::{Builder, Document, DocumentBuf, Value};
use base::encoding;
use base::{Result, bail, err};
use key::Reader;

/// The version of new tokens.
const VERSION: u8 = 2;
const EVENT: i64 = 128;
const UUID_SUBTYPE: u8 = 4;

/// A resume token. Its bytes compare as positions in the stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ResumeToken {
    bytes: Vec<u8>,
}

/// The decoded parts of a resume token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenParts {
    /// The cluster time from which to read the oplog.
    pub time: u64,
    /// Whether the token names an event; otherwise it precedes all events of its time.
    pub is_event: bool,
    /// Whether the event is the invalidation after another event.
    pub from_invalidate: bool,
    /// The UUID of the event's collection.
    pub uuid: Option<[u8; 16]>,
    /// The fragment of a split event.
    pub fragment: Option<u32>,
}

/// The parts of an event's token.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventToken<'a> {
    pub(super) time: u64,
    pub(super) index: usize,
    pub(super) uuid: Option<&'a [u8; 16]>,
    /// The identifier of the event.
    pub(super) identifier: Document<'a>,
}

impl ResumeToken {
    /// Returns the token before all events of a cluster time: a high-water mark, used when no event occurred.
    pub fn before(time: u64) -> ResumeToken {
        let mut bytes = start(time);
        bytes.extend_from_slice(&[key::ZERO, key::ZERO, key::FALSE, key::NULL, key::END]);
        ResumeToken { bytes }
    }

    /// Returns a sample event token of a cluster time.
    #[cfg(test)]
    pub(crate) fn sample(time: u64) -> ResumeToken {
        let mut identifier = Builder::new();
        identifier.append(c"operationType", "drop");
        let identifier = identifier.finish();
        ResumeToken::of(EventToken { time, index: 0, uuid: None, identifier: identifier.view() })
    }

    /// Returns the token of an event.
    pub(super) fn of(event: EventToken<'_>) -> ResumeToken {
        let mut bytes = start(event.time);
        key::push(Value::Int64(EVENT), &mut bytes);
        key::push(Value::Int64(i64::try_from(event.index).unwrap_or(i64::MAX)), &mut bytes);
        bytes.push(key::FALSE);
        match event.uuid {
            Some(uuid) => key::push(Value::Binary { subtype: UUID_SUBTYPE, bytes: uuid }, &mut bytes),
            None => bytes.push(key::NULL),
        }
        key::push(Value::Document(event.identifier), &mut bytes);
        bytes.push(key::END);
        ResumeToken { bytes }
    }

    /// Returns the token of the invalidation after this event.
    pub(super) fn invalidation(&self) -> ResumeToken {
        let mut bytes = self.bytes.clone();
        // Two numbers follow time and version, then the flag.
        let mut reader = Reader::new(self.bytes.get(11..).unwrap_or_default());
        let at = reader.skip().and_then(|()| reader.skip()).map(|()| self.bytes.len() - reader.rest().len());
        if let Some(flag) = at.and_then(|at| bytes.get_mut(at)) {
            *flag = key::TRUE;
        }
        ResumeToken { bytes }
    }

    /// Returns the token of one fragment of this event, counted from zero.
    pub fn fragment(&self, number: u32) -> ResumeToken {
        let mut bytes = self.bytes.clone();
        bytes.pop();
        key::push(Value::Int64(i64::from(number)), &mut bytes);
        bytes.push(key::END);
        ResumeToken { bytes }
    }

    /// Whether this token belongs to a fragment of the other token's event.
    pub fn is_fragment_of(&self, event: &ResumeToken) -> bool {
        let prefix = event.bytes.get(..event.bytes.len() - 1).unwrap_or_default();
        self.bytes.len() > event.bytes.len() && self.bytes.starts_with(prefix)
    }

    /// The token in hexadecimal.
    pub fn hex(&self) -> String {
        encoding::hex_upper(&self.bytes)
    }

    /// The token in the form of events: `{_data: hexadecimal}`.
    pub fn to_document(&self) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"_data", self.hex().as_str());
        out.finish()
    }

    /// Parses a client's token.
    ///
    /// Errors: 40647 and 40648 for documents of another form, FailedToParse for invalid hexadecimal, 50811 for bytes
    /// that are not a key string, and the errors of [`parts`](Self::parts).
    pub fn parse(token: Document<'_>) -> Result<ResumeToken> {
        let Some(Value::String(hex)) = token.get("_data") else {
            bail!(40647, "Bad resume token: _data of missing or of wrong type. Expected string, got {token}");
        };
        // Type bits are the types in an event's `_id`, which are not needed here.
        if !matches!(token.get("_typeBits"), None | Some(Value::Binary { subtype: 0, .. })) {
            bail!(40648, "Bad resume token: _typeBits of wrong type {token}");
        }
        let bytes = encoding::from_hex(hex)
            .ok_or_else(|| err!(FailedToParse, "resume token string was not a valid hex string"))?;
        let token = ResumeToken { bytes };
        token.parts()?;
        Ok(token)
    }

    /// Decodes the token.
    ///
    /// Errors: MongoDB's code for each missing part or part of another type; 50811 for bytes that are not a key string.
    pub fn parts(&self) -> Result<TokenParts> {
        let mut reader = Reader::new(&self.bytes);
        let broken = |first: u8| err!(50811, "KeyString format error: Unknown type: {first}");
        let Some(first) = reader.peek() else { bail!(40649, "invalid empty resume token") };
        if first != key::TIMESTAMP {
            return Err(broken(first));
        }
        reader.byte();
        let time = u64::from_be_bytes(reader.chunk().ok_or_else(|| broken(first))?);
        let version = integer(
            &mut reader,
            (50796, "Resume Token does not contain version"),
            (50854, "Invalid resume token: wrong type for version"),
        )?;
        if !(0..=2).contains(&version) {
            bail!(50795, "Invalid Resume Token: only supports version 0, 1 and 2");
        }
        let mut parts =
            TokenParts { time, is_event: true, from_invalidate: false, uuid: None, fragment: None };
        if version >= 1 {
            let kind = integer(
                &mut reader,
                (51055, "Resume Token does not contain tokenType"),
                (51056, "Resume Token tokenType is not an int."),
            )?;
            if kind != 0 && kind != EVENT {
                bail!(51057, "Token type {kind} not recognized");
            }
            parts.is_event = kind == EVENT;
        }
        let index = integer(
            &mut reader,
            (50793, "Resume Token does not contain txnOpIndex"),
            (50855, "Resume Token txnOpIndex is not an integer"),
        )?;
        if index < 0 {
            bail!(50794, "Invalid Resume Token: txnOpIndex should be non-negative");
        }
        if version >= 1 {
            parts.from_invalidate = match reader.byte().filter(|byte| *byte != key::END) {
                Some(key::FALSE) => false,
                Some(key::TRUE) => true,
                Some(_) => bail!(50870, "Resume Token fromInvalidate is not a boolean."),
                None => bail!(50872, "Resume Token does not contain fromInvalidate"),
            };
        }
        read_event(&mut reader, version, &mut parts)?;
        Ok(parts)
    }
}

/// Reads the parts after the fixed ones: the collection, the event and the fragment.
fn read_event(reader: &mut Reader<'_>, version: i64, parts: &mut TokenParts) -> Result<()> {
    let broken = |first: u8| err!(50811, "KeyString format error: Unknown type: {first}");
    let Some(first) = reader.byte().filter(|byte| *byte != key::END) else {
        return match version {
            2 => Err(err!(6189500, "Expected UUID or null")),
            _ => Ok(()),
        };
    };
    match first {
        key::NULL => {}
        key::BINARY => match (reader.byte(), reader.byte(), reader.chunk::<16>()) {
            (Some(16), Some(UUID_SUBTYPE), Some(uuid)) => parts.uuid = Some(uuid),
            _ => bail!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype"),
        },
        _ => bail!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype"),
    }
    let Some(first) = reader.peek() else {
        return match parts.is_event && version >= 2 {
            true => Err(err!(6189501, "Expected an eventIdentifier for an event resume token")),
            false => Ok(()),
        };
    };
    if !parts.is_event {
        bail!(6189504, "Invalid high water mark token");
    }
    if first != key::OBJECT {
        bail!(6189503, "Resume Token eventIdentifier is not an object");
    }
    reader.skip().ok_or_else(|| broken(first))?;
    if let Some(first) = reader.peek()
        && version >= 2
    {
        reader.byte();
        let number = reader.integer(first).and_then(|number| u32::try_from(number).ok());
        parts.fragment =
            Some(number.filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
                err!(7182501, "Resume token 'fragmentNum' must be a non-negative integer.")
            })?);
    }
    match reader.rest() {
        [key::END] | [] => Ok(()),
        _ => Err(err!(40646, "invalid oversized resume token")),
    }
}

fn integer(reader: &mut Reader<'_>, missing: (i32, &str), invalid: (i32, &str)) -> Result<i64> {
    let located = |(code, text): (i32, &str)| base::Error::new(base::ErrorCode::Location(code), text);
    let first = reader.byte().filter(|byte| *byte != key::END).ok_or_else(|| located(missing))?;
    reader.integer(first).filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| located(invalid))
}

/// Encodes the cluster time and the version, with which all tokens begin.
fn start(time: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(96);
    key::push(Value::Timestamp(time), &mut bytes);
    key::push(Value::Int32(i32::from(VERSION)), &mut bytes);
    bytes
}
