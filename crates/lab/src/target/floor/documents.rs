//! Documents that the floor answers finds with, so that a scan is held against one whose answers have the same size: as many
//! documents, of as many bytes, in batches as large as MongoDB's.

use base::bson::Builder;

/// What only the floor knows: `{floorAnswers: N, bytes: B}` makes it answer each find and aggregate with N documents of
/// about B bytes; without `bytes` it goes back to what it answered before.
pub(crate) const COMMAND: &str = "floorAnswers";

/// The first batch of MongoDB's cursors, and the most bytes of further ones.
const FIRST: u64 = 101;
const BATCH_BYTES: usize = 16 << 20;

/// The type of a 64-bit number, of a document, and of an array.
const INT64: u8 = 0x12;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;

/// The answers to a find and to what fetches the rest.
#[derive(Debug)]
pub(super) struct Documents {
    count: u64,
    /// The elements of the largest batch, one after the other, and where each ends.
    elements: Vec<u8>,
    ends: Vec<usize>,
}

impl Documents {
    /// What the command asks for; `None` if it asks for none.
    pub(super) fn asked(body: &[u8]) -> Option<Documents> {
        let count = number(body, COMMAND.as_bytes())?;
        let bytes = usize::try_from(number(body, b"bytes")?).ok()?.clamp(1, BATCH_BYTES);
        Some(Documents::new(count, bytes))
    }

    fn new(count: u64, bytes: usize) -> Documents {
        let mut document = Builder::new();
        document.append(c"_id", 1_i64).append(c"text", "x".repeat(bytes.saturating_sub(35)).as_str());
        let document = document.finish();
        let most = (BATCH_BYTES / document.bytes().len().max(1)) as u64;
        let (mut elements, mut ends) = (Vec::new(), Vec::new());
        for key in 0..most.clamp(FIRST, 100_000).min(count) {
            elements.push(DOCUMENT);
            elements.extend_from_slice(key.to_string().as_bytes());
            elements.push(0);
            elements.extend_from_slice(document.bytes());
            ends.push(elements.len());
        }
        Documents { count, elements, ends }
    }

    /// The body of the answer to a command, if it is about a cursor.
    pub(super) fn answer(&self, name: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        match name {
            b"find" | b"aggregate" => Some(self.batch("firstBatch", self.count, FIRST)),
            b"getMore" => Some(self.batch("nextBatch", number(body, b"getMore")?, u64::MAX)),
            _ => None,
        }
    }

    /// A batch of what is left. The cursor's id is how many are left after it: so nothing has to be kept.
    fn batch(&self, name: &str, left: u64, most: u64) -> Vec<u8> {
        let count = left.min(most).min(self.ends.len() as u64);
        let end = usize::try_from(count).ok().and_then(|count| count.checked_sub(1));
        let end = end.and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let elements = self.elements.get(..end).unwrap_or_default();
        let mut cursor = Vec::with_capacity(elements.len() + 64);
        cursor.push(INT64);
        cursor.extend_from_slice(b"id\0");
        cursor.extend_from_slice(&(left - count).to_le_bytes());
        cursor.extend_from_slice(b"\x02ns\0\x0c\0\0\0floor.floor\0");
        embed(&mut cursor, ARRAY, name, elements);
        let mut body = Vec::with_capacity(cursor.len() + 64);
        embed(&mut body, DOCUMENT, "cursor", &cursor);
        body.extend_from_slice(b"\x01ok\0");
        body.extend_from_slice(&1.0_f64.to_le_bytes());
        let mut whole = Vec::with_capacity(body.len() + 5);
        whole.extend_from_slice(&((body.len() + 5) as u32).to_le_bytes());
        whole.extend_from_slice(&body);
        whole.push(0);
        whole
    }
}

/// Appends an element that holds others.
fn embed(to: &mut Vec<u8>, kind: u8, name: &str, elements: &[u8]) {
    to.push(kind);
    to.extend_from_slice(name.as_bytes());
    to.push(0);
    to.extend_from_slice(&((elements.len() + 5) as u32).to_le_bytes());
    to.extend_from_slice(elements);
    to.push(0);
}

/// A 64-bit number of a command, wherever in it it stands: these are the lab's own and the driver's.
fn number(body: &[u8], name: &[u8]) -> Option<u64> {
    let pattern = [&[INT64], name, &[0]].concat();
    let at = body.windows(pattern.len()).position(|bytes| bytes == pattern)? + pattern.len();
    Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::FieldName;

    fn command(name: &str, value: i64) -> Vec<u8> {
        let mut body = Builder::new();
        body.append(FieldName::known(name), value).append(c"bytes", 1000_i64);
        body.finish().bytes().to_vec()
    }

    #[test]
    fn a_cursor_yields_as_many_documents_as_were_asked_for() {
        for wanted in [0, 1, 101, 102, 40_000] {
            let documents = Documents::asked(&command(COMMAND, wanted)).unwrap();
            let (mut read, mut name, mut left) = (0, "find", 0);
            loop {
                let reply = documents.answer(name.as_bytes(), &command(name, left)).unwrap();
                base::bson::validate(&reply).unwrap();
                read += reply.windows(4).filter(|bytes| *bytes == b"_id\0").count() as i64;
                left = number(&reply, b"id").unwrap() as i64;
                if left == 0 {
                    break;
                }
                assert!(reply.len() < 17 << 20);
                name = "getMore";
            }
            assert_eq!(read, wanted);
        }
        assert!(Documents::asked(b"").is_none());
    }

    #[test]
    fn documents_have_the_size_asked_for() {
        let documents = Documents::new(1, 1000);
        assert!((990..1020).contains(&documents.elements.len()), "{}", documents.elements.len());
    }
}
