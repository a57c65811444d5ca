//! Type bits: the types of numbers and symbols, which keys do not store. They make decoding exact.
//!
//! Numbers and strings are items, in their order in the key. An item is *plain* and takes no space if the key implies
//! its type. Any other item is a byte: its low three bits are the type, its high five bits count the plain items since
//! the last byte.

/// The type of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// The type that the key implies: string, int32 if it fits, else int64, else double.
    Plain,
    Int64,
    Double,
    NegativeZero,
    /// A NaN whose eight bytes follow.
    RawDouble,
    /// A decimal whose sixteen bytes follow.
    Decimal,
    Symbol,
}

/// A code that only counts plain items, used when their number exceeds five bits.
const SKIP: u8 = 7;
/// Maximum number of plain items that one byte can count.
const GAP_MAX: u8 = 31;

impl Item {
    /// The low three bits of the item's byte.
    fn code(self) -> u8 {
        match self {
            Item::Plain => SKIP,
            Item::Int64 => 1,
            Item::Double => 2,
            Item::NegativeZero => 3,
            Item::RawDouble => 4,
            Item::Decimal => 5,
            Item::Symbol => 6,
        }
    }

    /// Returns the item of a code.
    fn from_code(code: u8) -> Item {
        match code {
            1 => Item::Int64,
            2 => Item::Double,
            3 => Item::NegativeZero,
            4 => Item::RawDouble,
            5 => Item::Decimal,
            6 => Item::Symbol,
            _ => Item::Plain,
        }
    }
}

/// Writes type bits while a key is encoded. `gap` counts the plain items since the last byte.
#[derive(Clone, Default, Debug)]
pub(super) struct TypeBits {
    bytes: Vec<u8>,
    gap: u8,
}

impl TypeBits {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.gap = 0;
    }

    /// Records the next item. A plain item only increments the gap, unless the gap is full.
    pub(super) fn push(&mut self, item: Item, payload: &[u8]) {
        if item == Item::Plain {
            if self.gap == GAP_MAX {
                self.bytes.push(GAP_MAX << 3 | SKIP);
                self.gap = 0;
            }
            self.gap += 1;
            return;
        }
        self.bytes.push(self.gap << 3 | item.code());
        self.bytes.extend_from_slice(payload);
        self.gap = 0;
    }
}

/// Reads type bits while a key is decoded. All items past the end are plain.
#[derive(Clone)]
pub(super) struct TypeReader<'a> {
    rest: &'a [u8],
    /// Plain items before the next byte's item, and the code of that item.
    next: Option<(u8, u8)>,
}

impl<'a> TypeReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> TypeReader<'a> {
        TypeReader { rest: bytes, next: None }
    }

    pub(super) fn next(&mut self) -> Item {
        loop {
            let (gap, code) = match self.next.take() {
                Some(next) => next,
                None => match self.rest.split_first() {
                    Some((byte, rest)) => {
                        self.rest = rest;
                        (byte >> 3, byte & 7)
                    }
                    None => return Item::Plain,
                },
            };
            if gap > 0 {
                self.next = Some((gap - 1, code));
                return Item::Plain;
            }
            if code != SKIP {
                return Item::from_code(code);
            }
        }
    }

    /// Returns the payload of the item just read.
    pub(super) fn payload<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (payload, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_in_order_and_plain_items_cost_nothing() {
        let mut items = vec![Item::Plain; 100];
        items[40] = Item::Int64;
        items[41] = Item::Decimal;
        items[73] = Item::Symbol;
        let mut bits = TypeBits::default();
        for item in &items {
            bits.push(*item, if *item == Item::Decimal { &[7; 16] } else { &[] });
        }
        assert_eq!(bits.bytes().len(), 1 + 1 + 1 + 16 + 1);
        let mut reader = TypeReader::new(bits.bytes());
        for item in items {
            assert_eq!(reader.next(), item);
            if item == Item::Decimal {
                assert_eq!(reader.payload::<16>(), Some([7; 16]));
            }
        }
        assert_eq!(reader.next(), Item::Plain);
    }
}
