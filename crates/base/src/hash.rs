//! The 64-bit hash of hashed indexes and `$toHashedIndexKey`, as MongoDB's `BSONElementHasher` computes it.
//!
//! The hash is MD5 over a zero seed and the value: its rank as a 32-bit integer, then its bytes. Numbers are truncated
//! to int64, so equal integers of all types collide. Documents and arrays are hashed element by element, each with its
//! name, and end with a rank of zero.

use crate::bson::{Document, Element, Type, Value};
use crate::encoding;
use md5::{Digest, Md5};

/// Returns the hash of a value in a hashed index. Numbers lose their fraction first, so 2.3 and 2 collide by design.
pub fn hash64(value: Value<'_>) -> i64 {
    let mut state = Md5::new();
    state.update(0i32.to_le_bytes());
    add_value(&mut state, value, None);
    let digest: [u8; 16] = state.finalize().into();
    digest.first_chunk().map_or(0, |half| i64::from_le_bytes(*half))
}

/// A running MD5 sum.
#[derive(Default)]
pub struct Md5Sum(Md5);

impl Md5Sum {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the sum of all bytes in hexadecimal digits.
    pub fn hex(self) -> String {
        encoding::hex(&self.0.finalize())
    }
}

/// Returns the rank that the hash uses. Unlike the rank of the order, it is negative for MinKey.
fn rank(kind: Type) -> i32 {
    match kind {
        Type::MinKey => -1,
        Type::Undefined => 0,
        other => i32::from(other.canonical_rank()),
    }
}

/// Adds a value: its rank, its name if it is an element, then its content.
fn add_value(state: &mut Md5, value: Value<'_>, name: Option<&[u8]>) {
    state.update(rank(value.kind()).to_le_bytes());
    if let Some(name) = name {
        state.update(name);
        state.update([0]);
    }
    match value {
        Value::Document(document) => add_document(state, document),
        Value::Array(array) => add_document(state, array.as_document()),
        Value::JavaScriptWithScope { code, scope } => {
            state.update(code.as_bytes());
            state.update([0]);
            add_document(state, scope);
        }
        _ => match value.as_number() {
            Some(number) => state.update(number.to_i64_clamped().to_le_bytes()),
            None => {
                let mut bytes = Vec::new();
                value.write_to(&mut bytes);
                state.update(&bytes);
            }
        },
    }
}

fn add_document(state: &mut Md5, document: Document<'_>) {
    document.iter().for_each(|element: Element<'_>| {
        add_value(state, element.value(), Some(element.name_bytes()));
    });
    state.update(0i32.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson::extended_json::parse_value;

    /// Expected hashes from MongoDB's unit tests of its hasher.
    const KNOWN: &[(&str, i64)] = &[
        ("42", -944302157085130861),
        ("42.123", -944302157085130861),
        ("NumberLong(42)", -944302157085130861),
        ("NumberDecimal('42.9')", -944302157085130861),
        ("0", 4854801880128277513),
        ("NaN", 4854801880128277513),
        ("1.987", 5902408780260971510),
        ("-1.789", 1140205862565771219),
        ("1.7976931348623157e308", 921523596458303250),
        ("NumberLong('9223372036854775807')", 921523596458303250),
        ("-1.7976931348623157e308", 4532067210535695462),
        ("MinKey", 7961148599568647290),
        ("MaxKey", 5504842513779440750),
        ("undefined", 40158834000849533),
        ("null", 2338878944348059895),
        ("'abc'", 8478485326885698097),
        ("Symbol('abc')", 8478485326885698097),
        ("''", 2049396243249673340),
        ("'hashThisStringLiteral'", -5776344739422278694),
        ("{a: 'abc', b: NumberLong(123)}", 4771603801758380216),
        ("{}", 7980500913326740417),
        ("['bar', 'baz', 'qux']", -2938911267422831539),
        ("[]", 8849948234993459283),
        ("BinData(0, 'AAECAwQG')", 7252465090394235301),
        ("BinData(128, 'AAECAwQG')", 5736670452907618262),
        ("UUID('000102030405060708090a0b0c0d0e0f')", 6084661258071355978),
        ("ObjectId('010203040506070809101112')", -5588663249627035708),
        ("true", 6405873908747105701),
        ("false", 6289544573401934092),
        ("Date(6153737367135073092)", 4476222765095560467),
        ("Date(0)", -1178696894582842035),
        ("RegExp('mongodb')", -7275792090268217043),
        ("/.*/i", 7095855029187981886),
        ("DBPointer('db.c', ObjectId('010203040506070809101112'))", 2426768198104018194),
        ("Code('func f() { return 1; }')", 6861638109178014270),
        ("Code('func f() { return 1; }', {c: true})", 501342939894575968),
    ];

    #[test]
    fn hashes_are_mongodbs() {
        for (text, hash) in KNOWN {
            let value = parse_value(text).unwrap();
            assert_eq!(hash64(value.view()), *hash, "{text}");
        }
    }
}
