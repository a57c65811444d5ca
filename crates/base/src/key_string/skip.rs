//! Length of a key's first component, found without decoding. An index scan needs it for bounds on a component after
//! one that varies.

use super::{number, tags};

/// Returns the size of the first component of `key` in bytes; `None` if `key` has no whole component.
pub fn component_length(key: &[u8], ascending: bool) -> Option<usize> {
    let mut skip = Skip { key, at: 0, mask: if ascending { 0 } else { 0xFF } };
    skip.value()?;
    Some(skip.at)
}

/// A position in a key. `mask` is FF in a descending component.
struct Skip<'a> {
    key: &'a [u8],
    at: usize,
    mask: u8,
}

impl Skip<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.key.get(self.at)?;
        self.at += 1;
        Some(byte ^ self.mask)
    }

    fn bytes(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|&at| at <= self.key.len())?;
        Some(())
    }

    /// Skips to the byte after the next END. Escapes in text contain no END, because both of their bytes are at least
    /// one.
    fn text(&mut self) -> Option<()> {
        let end = tags::END ^ self.mask;
        let length = self.key.get(self.at..)?.iter().position(|&byte| byte == end)?;
        self.bytes(length + 1)
    }

    /// Skips one value. Nesting is counted without recursion, so any depth is safe.
    fn value(&mut self) -> Option<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            let mut tag = self.byte()?;
            match (tag, open.last()) {
                (tags::END, None) => return None,
                (tags::END, Some(_)) => {
                    open.pop();
                    if open.is_empty() {
                        return Some(());
                    }
                    continue;
                }
                (_, Some(&tags::DOCUMENT)) => {
                    // The tag was the element's rank. The name and the value's own tag follow.
                    self.text()?;
                    tag = self.byte()?;
                }
                _ => {}
            }
            match tag {
                tags::DOCUMENT | tags::ARRAY => open.push(tag),
                tags::JAVASCRIPT_WITH_SCOPE => {
                    self.text()?;
                    open.push(tags::DOCUMENT);
                }
                _ => self.scalar(tag)?,
            }
            if open.is_empty() {
                return Some(());
            }
        }
    }

    /// Skips the bytes after the tag of a value that is neither document nor array.
    fn scalar(&mut self, tag: u8) -> Option<()> {
        match tag {
            tags::NAN..=tags::INFINITY => number::decode(tag, &mut || self.byte()).map(drop),
            tags::STRING | tags::JAVASCRIPT => self.text(),
            tags::BINARY => {
                let length = self.length()?;
                self.bytes(length + 1)
            }
            tags::OBJECT_ID => self.bytes(12),
            tags::DATE_TIME | tags::TIMESTAMP => self.bytes(8),
            tags::REGEX => {
                self.text()?;
                self.text()
            }
            tags::DB_POINTER => {
                let length = self.length()?;
                self.bytes(length + 12)
            }
            _ => Some(()),
        }
    }

    /// Reads a length in one byte, or in four bytes after FF.
    fn length(&mut self) -> Option<usize> {
        match self.byte()? {
            0xFF => {
                let mut length = 0usize;
                for _ in 0..4 {
                    length = length << 8 | usize::from(self.byte()?);
                }
                Some(length)
            }
            short => Some(usize::from(short)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::component_length;
    use crate::bson::extended_json;

    #[test]
    fn every_kind_of_value_is_as_long_as_it_was_encoded() {
        let holder = extended_json::parse(
            r#"{v: [null, 1, -3.5, {$numberDecimal: "0.1"}, {$numberDecimal: "-1E-3000"}, "", "a\u0000b\u0001",
                {}, [], {a: {b: [1, {c: "x"}, []]}, d: {}}, [[], [{}], 1.5], {$numberDouble: "NaN"}, true,
                {$date: {$numberLong: "5"}}, {$timestamp: {t: 1, i: 2}}, {$oid: "000102030405060708090a00"},
                {$binary: {base64: "AAECAwQ=", subType: "00"}}, {$regularExpression: {pattern: "a", options: "i"}},
                {$minKey: 1}, {$maxKey: 1}, {$undefined: true}, {$code: "x"},
                {$code: "x", $scope: {a: 1, b: {c: []}}}, {$numberLong: "9223372036854775807"}]}"#,
        )
        .unwrap();
        for value in holder.view().get("v").unwrap().as_array().unwrap().iter() {
            for ascending in [true, false] {
                let mut key = Vec::new();
                encode(value, ascending, &mut key);
                let length = key.len();
                assert_eq!(component_length(&key, ascending), Some(length), "{value}");
                key.extend_from_slice(&[0x00, 0xFF, 0x40]);
                assert_eq!(component_length(&key, ascending), Some(length), "{value}");
                assert_eq!(component_length(&key[..length - 1], ascending).filter(|&n| n == length), None);
            }
        }
    }
}
