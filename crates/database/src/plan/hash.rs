//! Hashes by which clients group queries: of a query's shape, and of the shape with the indexes.

use super::{Read, shape};
use crate::collection::Collection;
use base::bson::Document;

/// The hash of a query's shape (its filter without constants, its order), and that of the shape
/// together with the collection's indexes, each in eight hexadecimal digits.
pub(crate) fn hashes(filter: Document<'_>, read: &Read, collection: &Collection) -> (String, String) {
    let shape = shape::encode(filter, read.sort.as_deref(), read.projection.as_ref(), Document::EMPTY);
    let mut hash = Hash(0x811C_9DC5);
    hash.bytes(&shape);
    let shape = format!("{:08X}", hash.0);
    for index in collection.data.iter().flat_map(|data| &data.indexes) {
        hash.bytes(index.spec.name.as_bytes());
        hash.bytes(&[0]);
        hash.bytes(index.spec.key.bytes());
    }
    (shape, format!("{:08X}", hash.0))
}

/// FNV-1a in 32 bits.
struct Hash(u32);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}
