//! The keys of a document in an index, the values of a key, and the error of a duplicate key, which clients read.

use super::{Index, IndexSpec, KeyKind, KeyPart, Wildcard, wildcard};
use base::bson::{Builder, Document, DocumentBuf, Value, ValueBuf};
use base::key_string::{Decoder, KeyBuilder};
use base::{Error, Namespace, Result, bail, err};
use query::keys::compound_keys;
use query::{Collation, Context};
use smallvec::SmallVec;

// Keys of a document: arrays fan out, and missing fields become null.

/// Initial capacity of a key in bytes: most keys are an ObjectId, one or two numbers, or a short string.
const KEY_BYTES: usize = 32;

/// One key of a document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyOf {
    /// The indexed values.
    pub key_string: Vec<u8>,
    /// Types that the key string does not preserve.
    pub type_bits: Vec<u8>,
}

/// All keys of a document in one index, sorted, and its multikey bits.
#[derive(Clone, Debug, Default)]
pub struct DocumentKeys {
    /// The distinct keys in order; most documents have one.
    pub keys: SmallVec<[KeyOf; 1]>,
    /// For each key part, a bit for each path component with an array that fanned out; then the bits of a wildcard's
    /// paths. Empty if no array occurred.
    pub multikey: Vec<u32>,
}

impl DocumentKeys {
    /// Returns the size of the key strings.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.key_string.len()).sum()
    }

    /// Whether a key has these values, of any types.
    pub(crate) fn has_key_string(&self, key_string: &[u8]) -> bool {
        self.keys.binary_search_by(|key| key.key_string.as_slice().cmp(key_string)).is_ok()
    }
}

impl IndexSpec {
    /// Returns the number of words of multikey bits.
    pub(crate) fn multikey_words(&self) -> usize {
        self.parts.len() + self.wildcard.as_ref().map_or(0, |_| wildcard::ARRAY_WORDS)
    }

    /// Returns the keys of a document.
    ///
    /// Errors: CannotIndexParallelArrays, 16746 for an ambiguous numeric component, 16766 for an array in a hashed
    /// field, interruption.
    pub fn keys_of(&self, document: Document<'_>, context: &Context) -> Result<DocumentKeys> {
        let mut document_keys = DocumentKeys::default();
        if let Some(partial) = &self.partial
            && !partial.matcher.matches(document, context)?
        {
            return Ok(document_keys);
        }
        if let Some(text) = &self.text {
            self.text_keys(text, document, &mut document_keys, context)?;
        } else if let Some(geo) = &self.geo {
            geo.keys(self, document, &mut document_keys, context)?;
        } else if let Some(wildcard) = &self.wildcard {
            self.wildcard_keys(wildcard, document, &mut document_keys, context)?;
        } else if self.single_key(document, &mut document_keys, context)? {
            return Ok(document_keys);
        } else {
            self.plain_keys(document, &mut document_keys, context)?;
        }
        if document_keys.keys.len() > 1 {
            document_keys.keys.sort_unstable();
            document_keys.keys.dedup_by(|a, b| a.key_string == b.key_string);
        }
        debug_assert!(
            document_keys.multikey.is_empty() || document_keys.multikey.len() <= self.multikey_words(),
            "{document_keys:?}"
        );
        let is_plain = self.text.is_none() && self.geo.is_none() && self.wildcard.is_none();
        debug_assert!(
            !is_plain
                || document_keys.keys.len() <= 1
                || document_keys.multikey.iter().any(|bits| *bits != 0),
            "several keys without an array: a scan would return the document twice"
        );
        Ok(document_keys)
    }

    /// Returns true if two versions of a document agree in all fields that decide its keys. May return false although
    /// the keys are the same.
    pub(crate) fn are_keys_same(&self, before: Document<'_>, after: Document<'_>) -> bool {
        if self.partial.is_some() || self.text.is_some() || self.wildcard.is_some() {
            return false;
        }
        self.parts.iter().all(|part| match (before.find(part.path.first()), after.find(part.path.first())) {
            (Some(a), Some(b)) => a.kind() == b.kind() && a.value_bytes() == b.value_bytes(),
            (a, b) => a.is_none() && b.is_none(),
        })
    }

    /// Adds the keys of an ordinary or compound index.
    fn plain_keys(
        &self,
        document: Document<'_>,
        document_keys: &mut DocumentKeys,
        context: &Context,
    ) -> Result<()> {
        document_keys.multikey = vec![0; self.parts.len()];
        let DocumentKeys { keys, multikey } = document_keys;
        let paths = self.parts.iter().map(|part| &part.path);
        compound_keys(
            document,
            paths,
            &mut |part, behind| self.note_array(part, behind, multikey),
            &mut |values| {
                if self.sparse && !values.iter().any(Option::is_some) {
                    return Ok(());
                }
                push_key(keys, self.key_of(values), context)
            },
        )
    }

    /// Adds a key for each leaf, combined with the key of the other parts.
    ///
    /// Errors: 7246301 for an array in another part, interruption.
    fn wildcard_keys(
        &self,
        wildcard: &Wildcard,
        document: Document<'_>,
        document_keys: &mut DocumentKeys,
        context: &Context,
    ) -> Result<()> {
        let leaves = wildcard.leaves(document, context)?;
        document_keys.multikey = vec![0; self.multikey_words()];
        let DocumentKeys { keys, multikey } = document_keys;
        let (parts, by_path) = multikey.split_at_mut(self.parts.len());
        if let Some(bits) = parts.get_mut(wildcard.part) {
            *bits = u32::from(leaves.ambiguous);
        }
        leaves.arrays.iter().for_each(|path| wildcard::note_array(path, by_path));
        let others = self.parts.iter().enumerate().filter(|(position, _)| *position != wildcard.part);
        compound_keys(
            document,
            others.map(|(_, part)| &part.path),
            &mut |other, _| {
                let part = self.parts.get(other + usize::from(other >= wildcard.part));
                let path = part.map_or("", |part| part.path.as_str());
                Err(err!(7246301, "The field '{path}' of a compound wildcard index cannot be an array"))
            },
            &mut |values| {
                let (before, after) = values.split_at(wildcard.part.min(values.len()));
                leaves.list.iter().try_for_each(|(path, value)| {
                    let values = before.iter().copied().chain([Some(*value)]).chain(after.iter().copied());
                    push_key(keys, self.key_with(values, Some((wildcard.part, path))), context)
                })
            },
        )
    }

    /// Adds the key of the most frequent kind of index, on one top-level field without an array. Returns false if this
    /// simple case does not apply.
    fn single_key(
        &self,
        document: Document<'_>,
        document_keys: &mut DocumentKeys,
        context: &Context,
    ) -> Result<bool> {
        let [part] = &*self.parts else { return Ok(false) };
        if part.kind == KeyKind::Hashed || part.path.components().len() != 1 {
            return Ok(false);
        }
        let value = document.get(part.path.as_str());
        if matches!(value, Some(Value::Array(_))) {
            return Ok(false);
        }
        if value.is_some() || !self.sparse {
            push_key(&mut document_keys.keys, self.key_of(&[value]), context)?;
        }
        Ok(true)
    }

    /// Sets the multikey bit of the component whose array fans out.
    fn note_array(&self, part: usize, behind: usize, multikey: &mut [u32]) -> Result<()> {
        let Some(KeyPart { path, kind }) = self.parts.get(part) else { return Ok(()) };
        if *kind == KeyKind::Hashed {
            bail!(16766, "hashed indexes do not currently support array values. Found array at path: {path}");
        }
        let holder = path.components().len().saturating_sub(behind + 1);
        if let Some(bits) = multikey.get_mut(part) {
            *bits |= 1 << holder.min(31);
        }
        Ok(())
    }

    /// Returns the key of one value for each part. A missing value becomes null.
    fn key_of(&self, values: &[Option<Value<'_>>]) -> KeyOf {
        self.key_with(values.iter().copied(), None)
    }

    /// Returns the key with a path before one part, which no collation orders.
    fn key_with<'v>(
        &self,
        values: impl Iterator<Item = Option<Value<'v>>>,
        path: Option<(usize, &str)>,
    ) -> KeyOf {
        let mut builder = KeyBuilder::with_capacity(KEY_BYTES);
        for (position, (part, value)) in self.parts.iter().zip(values).enumerate() {
            if let Some((_, path)) = path.filter(|(of, _)| *of == position) {
                builder.push(path, true);
            }
            let value = value.unwrap_or(Value::Null);
            match part.kind {
                KeyKind::Ascending | KeyKind::Sphere | KeyKind::Flat | KeyKind::Text => {
                    self.collation.push_key(&mut builder, value, true);
                }
                KeyKind::Descending => self.collation.push_key(&mut builder, value, false),
                KeyKind::Hashed => {
                    builder.push(Value::Int64(self.hash(value)), true);
                }
            }
        }
        builder.into()
    }
}

impl From<KeyBuilder> for KeyOf {
    fn from(builder: KeyBuilder) -> KeyOf {
        let (key_string, type_bits) = builder.into_parts();
        KeyOf { key_string, type_bits }
    }
}

/// Adds a key of a document. Checks the operation's memory at intervals: keys may take more memory than any document.
///
/// Errors: interruption.
#[inline]
pub(super) fn push_key(keys: &mut SmallVec<[KeyOf; 1]>, key: KeyOf, context: &Context) -> Result<()> {
    context.steps(1 + key.key_string.len() / 1024)?;
    keys.push(key);
    Ok(())
}

// Reads the indexed values from a key, for covered plans and for error messages.

impl IndexSpec {
    /// Returns the direction of each part in the form of key strings.
    pub fn ascending(&self) -> Vec<bool> {
        self.parts.iter().map(|part| part.kind != KeyKind::Descending).collect()
    }

    /// Returns the values of a key, one for each part. A hashed part yields its hash, and a string under a collation
    /// yields its sort key as text.
    ///
    /// Errors: the key is corrupt.
    pub fn decode(&self, key_string: &[u8], type_bits: &[u8]) -> Result<Vec<ValueBuf>> {
        if self.collation.is_simple() {
            return base::key_string::decode(key_string, type_bits, &self.ascending());
        }
        let mut decoder = Decoder::new(key_string, type_bits).collated();
        self.ascending().iter().map(|ascending| decoder.next(*ascending)).collect()
    }
}

/// E11000 with keyPattern and keyValue.
pub(crate) fn duplicate_key(namespace: &Namespace, index: &Index, key: &KeyOf) -> Error {
    let value = key_value(index, key);
    // MongoDB 8.2 fails with these codes while it describes the key of a clustered collection.
    let number = value.view().first().and_then(|field| field.value().as_number());
    match number.map(|number| number.to_f64()).filter(|_| index.spec.clustered) {
        Some(number) if number.is_nan() => return err!(50819, "_id is not a number in {namespace}"),
        Some(number) if number.is_infinite() => return err!(50826, "_id is infinite in {namespace}"),
        _ => {}
    }
    let mut info = Builder::new();
    info.append(c"keyPattern", &index.spec.key).append(c"keyValue", &value);
    info.append_optional(c"collation", index.spec.collation.document());
    let collation = match index.spec.collation.document() {
        Some(collation) => format!(" collation: {collation}"),
        None => String::new(),
    };
    err!(
        DuplicateKey,
        "E11000 duplicate key error collection: {namespace} index: {}{collation} dup key: {}",
        index.spec.name,
        value
    )
    .with_info(info.finish())
}

/// A value as the key of an index with this collation shows it.
pub(crate) fn shown(value: Value<'_>, collation: &Collation) -> Result<ValueBuf> {
    let mut builder = KeyBuilder::new();
    collation.push_key(&mut builder, value, true);
    let decoder = Decoder::new(builder.key(), builder.type_bits());
    let mut decoder = if collation.is_simple() { decoder } else { decoder.collated() };
    decoder.next(true)
}

/// The indexed values under the names of the key pattern; of strings under a collation only the
/// bytes they are ordered by are known.
fn key_value(index: &Index, key: &KeyOf) -> DocumentBuf {
    let mut out = Builder::new();
    let values = index.spec.decode(&key.key_string, &key.type_bits).unwrap_or_default();
    for (part, value) in index.spec.parts.iter().zip(&values) {
        out.append(&part.path, value);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use crate::index::keys::*;
    use base::bson::extended_json;
    use base::{ErrorCode, Namespace};
    use query::Interrupt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn keys_are_same_if_all_their_fields_are() {
        let specs = [
            ("{a: 1}", ""),
            ("{'a.b': 1, c: -1}", ""),
            ("{a: 'hashed'}", ""),
            ("{a: '2d', c: 1}", ""),
            ("{a: '2dsphere', c: 1}", ""),
            ("{a: 'text'}", ""),
            ("{'$**': 1}", ""),
            ("{a: 1}", ", partialFilterExpression: {c: {$gt: 1}}"),
        ];
        let documents = [
            "{}",
            "{a: 1}",
            "{a: 1.0}",
            "{a: 1, c: 1}",
            "{a: 1, c: 2}",
            "{c: 2, a: 1, d: 3}",
            "{a: [1, 2]}",
            "{a: {b: 1}}",
        ];
        let documents = documents.map(|document| extended_json::parse(document).unwrap());
        let mut same = 0;
        for (key, options) in specs {
            let spec = extended_json::parse(&format!("{{name: 'n', key: {key}{options}}}")).unwrap();
            let namespace = Namespace::parse("test.c").unwrap();
            let spec = IndexSpec::parse(spec.view(), &namespace, &Context::for_tests()).unwrap();
            let keys = |document: &base::bson::DocumentBuf| {
                spec.keys_of(document.view(), &Context::for_tests()).ok().map(|keys| keys.keys)
            };
            for (before, after) in documents.iter().flat_map(|a| documents.iter().map(move |b| (a, b))) {
                if spec.are_keys_same(before.view(), after.view()) {
                    same += 1;
                    assert_eq!(keys(before), keys(after), "{key}: {before:?} {after:?}");
                }
            }
        }
        // Each document with itself in five indexes, and those that differ in other fields.
        assert!(same > 5 * documents.len(), "{same}");
    }

    /// Ends the operation after this number of checks.
    struct Limit(AtomicUsize);

    impl Interrupt for Limit {
        fn check(&self) -> Result<()> {
            match self.0.fetch_sub(1, Relaxed) {
                1 => Err(err!(ExceededMemoryLimit, "the limit")),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn many_bytes_of_keys_end_the_operation() {
        let long = "x".repeat(100_000);
        let list = |item: &dyn Fn(i32) -> String| (0..170).map(item).collect::<Vec<_>>().join(", ");
        let numbers = list(&|at| at.to_string());
        let words = list(&|at| format!("word{at}"));
        let pairs = list(&|at| format!("[{at}, 1]"));
        let points = list(&|at| format!("{{p: {{type: 'Point', coordinates: [{at}, 1]}}}}"));
        for (key, document) in [
            ("{a: 1, b: 1}", format!("{{a: '{long}', b: [{numbers}]}}")),
            ("{a: 1, b: -1, c: 1}", format!("{{a: '{long}', b: [{numbers}]}}")),
            ("{'$**': 1}", format!("{{'{long}': [{numbers}]}}")),
            ("{a: 1, 'b.$**': 1}", format!("{{a: '{long}', b: {{c: [{numbers}]}}}}")),
            ("{a: 1, b: 'text'}", format!("{{a: '{long}', b: '{words}'}}")),
            ("{b: '2d', a: 1}", format!("{{a: '{long}', b: [{pairs}]}}")),
            ("{a: 1, 'b.p': '2dsphere'}", format!("{{a: '{long}', b: [{points}]}}")),
        ] {
            let spec = extended_json::parse(&format!("{{name: 'n', key: {key}}}")).unwrap();
            let namespace = Namespace::parse("test.c").unwrap();
            let spec = IndexSpec::parse(spec.view(), &namespace, &Context::for_tests()).unwrap();
            let document = extended_json::parse(&document).unwrap();
            let checks = |limit| {
                let limit = Arc::new(Limit(AtomicUsize::new(limit)));
                let keys = spec.keys_of(document.view(), &Context::new(0, 1, limit.clone()));
                (keys, usize::MAX - limit.0.load(Relaxed))
            };
            let (keys, made) = checks(usize::MAX);
            let bytes = keys.unwrap().bytes();
            assert!(bytes > 10 << 20 && made >= bytes >> 20, "{key}: {made} checks for {bytes} bytes");
            let error = checks(10).0.unwrap_err();
            assert_eq!(error.code(), ErrorCode::ExceededMemoryLimit, "{key}");
        }
    }
}
