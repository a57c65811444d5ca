//! Object ids: twelve bytes, of which the first four are seconds since 1970.

use crate::encoding;
use std::fmt;

/// A BSON ObjectId; ordered as its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 12]);

impl ObjectId {
    /// Builds an id from seconds since 1970, five bytes of the process, and the low three bytes of a counter.
    pub fn from_parts(seconds: u32, process: [u8; 5], counter: u32) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(&process);
        bytes[9..].copy_from_slice(&counter.to_be_bytes()[1..]);
        ObjectId(bytes)
    }

    /// Reads 24 hexadecimal digits.
    pub fn parse(text: &str) -> Option<ObjectId> {
        encoding::from_hex(text)?.try_into().ok().map(ObjectId)
    }

    /// The time of the id in milliseconds since 1970. The seconds are signed, as in MongoDB.
    pub fn timestamp_millis(&self) -> i64 {
        let [a, b, c, d, ..] = self.0;
        i64::from(i32::from_be_bytes([a, b, c, d])) * 1000
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::hex(&self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId('{self}')")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = ObjectId::from_parts(1_600_000_000, [1, 2, 3, 4, 5], 0x00AB_CDEF);
        assert_eq!(ObjectId::parse(&id.to_string()), Some(id));
        assert_eq!(id.timestamp_millis(), 1_600_000_000_000);
        assert_eq!(ObjectId::parse(&"f".repeat(24)).map(|id| id.timestamp_millis()), Some(-1000));
        assert_eq!(ObjectId::parse("zz"), None);
        assert_eq!(ObjectId::parse(&"g".repeat(24)), None);
    }
}
