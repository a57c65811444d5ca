//! Hashes by which clients group queries: of a query's shape, and of the shape with the indexes.

use crate::collection::Collection;
use crate::plan::Read;
use base::bson::{Array, Document, Value};

/// The hash of a query's shape (its filter without constants, its order), and that of the shape
/// together with the collection's indexes, each in eight hexadecimal digits.
pub(super) fn hashes(filter: Document<'_>, read: &Read, collection: &Collection) -> (String, String) {
    let mut hash = Hash(0x811C_9DC5);
    hash.document(filter, true);
    for (path, ascending) in read.sort.iter().flat_map(|sort| sort.fields()) {
        hash.text(path.as_str());
        hash.byte(u8::from(*ascending));
    }
    let shape = format!("{:08X}", hash.0);
    for index in collection.data.iter().flat_map(|data| &data.indexes) {
        hash.text(&index.spec.name);
        hash.document(index.spec.key.view(), false);
    }
    (shape, format!("{:08X}", hash.0))
}

/// FNV-1a in 32 bits.
struct Hash(u32);

impl Hash {
    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }

    fn text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.byte(byte));
        self.byte(0);
    }

    /// Names and nesting; values of paths and operators only if they are not constants, that is
    /// filters of their own. Recursion is bounded by the nesting of documents.
    fn document(&mut self, document: Document<'_>, shape: bool) {
        for element in document {
            self.text(element.name());
            match element.value() {
                Value::Document(inner) => self.document(inner, shape),
                Value::Array(inner) if is_filters(inner) => {
                    inner
                        .iter()
                        .filter_map(|value| value.as_document())
                        .for_each(|d| self.document(d, shape));
                }
                value if shape => self.byte(value.kind().canonical_rank()),
                value => self.text(&value.to_string()),
            }
        }
        self.byte(1);
    }
}

fn is_filters(array: Array<'_>) -> bool {
    array.iter().all(|value| value.as_document().is_some())
}
