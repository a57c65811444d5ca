//! Which keys a document has in an index: arrays fan out, missing fields become null.

use super::{IndexSpec, KeyKind};
use base::bson::{Array, Document, PathComponent, Value};
use base::key_string::KeyBuilder;
use base::{Result, err};
use query::Context;

/// One key of a document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyOf {
    /// The indexed values.
    pub key_string: Vec<u8>,
    /// What the key string leaves out of the values' types.
    pub type_bits: Vec<u8>,
}

/// All keys of a document in one index, sorted, and where its arrays are.
#[derive(Clone, Debug, Default)]
pub struct DocumentKeys {
    /// The keys in their order, each once.
    pub keys: Vec<KeyOf>,
    /// Per key part, a bit for each component of the path at which an array fanned out; empty
    /// where it is plain that none did.
    pub multikey: Vec<u32>,
}

/// Where the walk along one part's path stands.
#[derive(Clone, Copy)]
enum Slot<'a> {
    /// The value is known; `None` is missing.
    Fixed(Option<Value<'a>>),
    /// The value is to be found below `value`, from component `depth` on.
    Pending { value: Value<'a>, depth: usize, nested: bool },
    /// Waits for each element of an array in turn.
    Blocked { array: Array<'a>, depth: usize },
}

impl IndexSpec {
    /// The keys of a document.
    ///
    /// Errors: CannotIndexParallelArrays, 16746 where a numeric component is ambiguous, 16766 for
    /// an array in a hashed field.
    pub fn keys_of(&self, document: Document<'_>, context: &Context) -> Result<DocumentKeys> {
        let mut found = DocumentKeys::default();
        if let Some(partial) = &self.partial
            && !partial.matcher.matches(document, context)?
        {
            return Ok(found);
        }
        if self.single_key(document, &mut found) {
            return Ok(found);
        }
        found.multikey = vec![0; self.parts.len()];
        let start = Slot::Pending { value: Value::Document(document), depth: 0, nested: false };
        self.expand(vec![start; self.parts.len()], &mut found)?;
        if found.keys.len() > 1 {
            found.keys.sort_unstable();
            found.keys.dedup_by(|a, b| a.key_string == b.key_string);
        }
        Ok(found)
    }

    /// The key of the plainest and most frequent kind of index, on one top-level field that holds
    /// no array; whether that was all there is to do.
    fn single_key(&self, document: Document<'_>, found: &mut DocumentKeys) -> bool {
        let [part] = &*self.parts else { return false };
        if part.kind == KeyKind::Hashed || part.path.components().len() != 1 {
            return false;
        }
        let value = document.get(part.path.as_str());
        if matches!(value, Some(Value::Array(_))) {
            return false;
        }
        if value.is_some() || !self.sparse {
            self.push_key(&[value], found);
        }
        true
    }

    /// Walks all slots as far as they go without choosing an array element, then fans out over
    /// the one array that any of them wait for. Recursion is bounded by the nesting of documents.
    fn expand(&self, mut slots: Vec<Slot<'_>>, found: &mut DocumentKeys) -> Result<()> {
        let mut waiting: Option<(usize, Array<'_>)> = None;
        for (part, slot) in slots.iter_mut().enumerate() {
            if let Slot::Pending { value, depth, nested } = *slot {
                *slot = walk(self.parts[part].path.components(), value, depth, nested)?;
            }
            if let Slot::Blocked { array, depth } = *slot {
                if self.parts[part].kind == KeyKind::Hashed {
                    return Err(err!(
                        16766,
                        "hashed indexes do not currently support array values. Found array at path: {}",
                        self.parts[part].path
                    ));
                }
                if let Some((first, other)) = waiting
                    && other.bytes().as_ptr() != array.bytes().as_ptr()
                {
                    return Err(self.parallel(first, part));
                }
                waiting = waiting.or(Some((part, array)));
                // The component before `depth` is the one that holds the array.
                found.multikey[part] |= 1 << depth.saturating_sub(1).min(31);
            }
        }
        let Some((_, array)) = waiting else { return self.emit(&slots, found) };
        if array.is_empty() {
            return self.expand(self.choose(&slots, None), found);
        }
        for element in array.iter() {
            self.expand(self.choose(&slots, Some(element)), found)?;
        }
        Ok(())
    }

    /// The slots with the array they wait for replaced by one element, or by what an empty array
    /// counts as: undefined where the array itself is indexed, else missing.
    fn choose<'a>(&self, slots: &[Slot<'a>], element: Option<Value<'a>>) -> Vec<Slot<'a>> {
        let replace = |(part, slot): (usize, &Slot<'a>)| {
            let Slot::Blocked { depth, .. } = *slot else { return *slot };
            let at_end = self.parts[part].path.components().len() == depth;
            match element {
                None if at_end => Slot::Fixed(Some(Value::Undefined)),
                None => Slot::Fixed(None),
                Some(value) => Slot::Pending { value, depth, nested: true },
            }
        };
        slots.iter().enumerate().map(replace).collect()
    }

    fn emit<'a>(&self, slots: &[Slot<'a>], found: &mut DocumentKeys) -> Result<()> {
        let missing = |slot: &Slot<'_>| matches!(slot, Slot::Fixed(None));
        if self.sparse && slots.iter().all(missing) {
            return Ok(());
        }
        let value = |slot: &Slot<'a>| if let Slot::Fixed(value) = *slot { value } else { None };
        let values: Vec<Option<Value<'a>>> = slots.iter().map(value).collect();
        self.push_key(&values, found);
        Ok(())
    }

    /// Adds the key of one value for each part; missing ones count as null.
    fn push_key(&self, values: &[Option<Value<'_>>], found: &mut DocumentKeys) {
        let mut builder = KeyBuilder::new();
        for (part, value) in self.parts.iter().zip(values) {
            let value = value.unwrap_or(Value::Null);
            match part.kind {
                KeyKind::Ascending => self.collation.push_key(&mut builder, value, true),
                KeyKind::Descending => self.collation.push_key(&mut builder, value, false),
                KeyKind::Hashed => {
                    builder.push(Value::Int64(self.hash(value)), true);
                }
            }
        }
        let (key_string, type_bits) = builder.into_parts();
        found.keys.push(KeyOf { key_string, type_bits });
    }

    fn parallel(&self, first: usize, second: usize) -> base::Error {
        let name = |part: usize| {
            let path = &self.parts[part].path;
            path.components().last().map_or("", PathComponent::name)
        };
        err!(CannotIndexParallelArrays, "cannot index parallel arrays [{}] [{}]", name(second), name(first))
    }
}

/// Follows a path from `value` until it ends, misses, or meets an array to fan out over.
fn walk<'a>(
    components: &[PathComponent],
    mut value: Value<'a>,
    mut depth: usize,
    mut nested: bool,
) -> Result<Slot<'a>> {
    loop {
        let Some(component) = components.get(depth) else {
            return Ok(match value {
                // An array inside the array fanned out over is indexed as it stands.
                Value::Array(array) if !nested => Slot::Blocked { array, depth },
                _ => Slot::Fixed(Some(value)),
            });
        };
        let next = match value {
            Value::Document(document) => document.get(component.name()),
            Value::Array(array) => match positional(array, component)? {
                Some(element) => Some(element),
                None if nested => None,
                None => return Ok(Slot::Blocked { array, depth }),
            },
            _ => None,
        };
        match next {
            None => return Ok(Slot::Fixed(None)),
            Some(inner) => value = inner,
        }
        nested = false;
        depth += 1;
    }
}

/// The element a numeric component names, unless it is not one or the array is too short.
fn positional<'a>(array: Array<'a>, component: &PathComponent) -> Result<Option<Value<'a>>> {
    let Some(index) = component.index() else { return Ok(None) };
    let Some(element) = array.get(index) else { return Ok(None) };
    let by_name = array
        .iter()
        .filter_map(|value| value.as_document())
        .any(|document| document.find(component.name()).is_some());
    if by_name {
        return Err(err!(
            16746,
            "Ambiguous field name found in array (do not use numeric field names in embedded elements in an \
             array), field: '{}' for array: {array}",
            component.name()
        ));
    }
    Ok(Some(element))
}
