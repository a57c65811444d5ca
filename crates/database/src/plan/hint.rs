//! Index selection by the client: `hint`, `min` and `max`.

use super::Read;
use crate::catalog::collection::{Collection, Data};
use crate::index::{Index, IndexSpec, KeyKind};
use crate::operation::{IndexHint, QuerySettings};
use base::bson::{Document, DocumentBuf, Value, equal};
use base::{Result, bail, err};
use query::collation::{Collation, depends_on_collation};
use std::ops::Bound;
use std::sync::Arc;
use storage::{Key, Range};

// Hints: the client's choice of an index.

/// An index named by name or key pattern, or a collection scan.
#[derive(Clone, Debug)]
pub enum Hint {
    /// The index with this name.
    Name(String),
    /// The index with this name, hidden or not, for internal reads.
    Internal(String),
    /// The index with this key pattern.
    Key(DocumentBuf),
    /// `{$natural: ±1}`: a collection scan, forward or backward.
    Natural {
        /// Starts with the oldest document.
        forward: bool,
    },
}

impl Hint {
    /// Parses the `hint` field of a command. An empty document is no hint.
    ///
    /// Errors: FailedToParse, BadValue.
    pub fn parse(value: Value<'_>) -> Result<Option<Hint>> {
        match value {
            Value::String(name) => Ok(Some(Hint::Name(name.to_string()))),
            Value::Document(key) if key.is_empty() => Ok(None),
            Value::Document(key) => Hint::parse_key(key).map(Some),
            _ => Err(err!(FailedToParse, "Hint must be a string or an object")),
        }
    }

    /// Returns the hinted index among the usable indexes; `None` for `$natural`.
    ///
    /// Errors: BadValue without a matching index, IndexNotFound with several.
    pub(crate) fn resolve<'d>(
        &self,
        data: &'d Data,
        describe: impl FnOnce() -> String,
    ) -> Result<Option<&'d Arc<Index>>> {
        let mut visible = data.indexes.iter().filter(|index| !index.spec.hidden);
        let found = match self {
            Hint::Natural { .. } => return Ok(None),
            Hint::Internal(name) => data.indexes.iter().find(|index| index.spec.name == *name),
            Hint::Name(name) => visible.find(|index| index.spec.name == *name),
            Hint::Key(key) => {
                let mut same = visible.filter(|index| same_pattern(index.spec.key.view(), key.view()));
                match (same.next(), same.next()) {
                    (Some(first), Some(second)) => return Err(ambiguous(first, second, &describe())),
                    (found, _) => found,
                }
            }
        };
        found.map(Some).ok_or_else(|| {
            err!(
                BadValue,
                "error processing query: {}\n planner returned error :: caused by :: hint provided does not \
                 correspond to an existing index",
                describe()
            )
        })
    }

    /// Checks that a hint agrees with a `$natural` sort.
    ///
    /// Errors: BadValue.
    pub(crate) fn check_natural(&self, ascends: bool) -> Result<()> {
        match self {
            Hint::Natural { forward } if *forward == ascends => Ok(()),
            Hint::Natural { .. } => {
                bail!(BadValue, "$natural hint must be in the same direction as $natural sort order")
            }
            _ => bail!(BadValue, "index hint not allowed with $natural sort order"),
        }
    }

    fn parse_key(key: Document<'_>) -> Result<Hint> {
        let Some(natural) = key.get("$natural") else { return Ok(Hint::Key(key.to_owned())) };
        if key.iter().count() > 1 {
            bail!(BadValue, "Cannot include '$natural' in compound hint: {key}");
        }
        match natural.as_number().map(|number| number.to_f64()) {
            Some(1.0) => Ok(Hint::Natural { forward: true }),
            Some(-1.0) => Ok(Hint::Natural { forward: false }),
            _ => Err(err!(BadValue, "$natural hint cannot be set to a value other than -1 or 1.")),
        }
    }
}

/// The indexes that a plan over a collection may use by query settings, and whether it may scan the collection. Returns
/// `None` if the settings leave nothing: MongoDB then plans as without them.
pub(crate) fn allowed_indexes(
    settings: &QuerySettings,
    collection: &Collection,
) -> Option<(Vec<Arc<Index>>, bool)> {
    let (_, hints) = settings.index_hints.iter().find(|(namespace, _)| *namespace == collection.namespace)?;
    let names = |hint: &IndexHint, spec: &IndexSpec| match hint {
        IndexHint::Name(name) => spec.name == *name,
        IndexHint::Key(key) => same_pattern(spec.key.view(), key.view()),
        IndexHint::Natural => false,
    };
    let allows = |index: &&Arc<Index>| hints.iter().any(|hint| names(hint, &index.spec));
    let indexes: Vec<_> =
        collection.data.iter().flat_map(|data| &data.indexes).filter(allows).cloned().collect();
    let scans = hints.contains(&IndexHint::Natural);
    (scans || !indexes.is_empty()).then_some((indexes, scans))
}

/// Returns the error for two indexes with equal keys and different collations. Only a hint by name
/// distinguishes them.
fn ambiguous(first: &Index, second: &Index, query: &str) -> base::Error {
    let shown = |index: &Index| {
        let IndexSpec { key, name, .. } = &*index.spec;
        format!("kp: {key} name: '({name}, )' io: {}", index.spec.to_document())
    };
    err!(
        IndexNotFound,
        "error processing query: {query}\n planner returned error :: caused by :: Hint matched multiple \
         indexes, must hint by index name. Matched: {} and {}",
        shown(first),
        shown(second)
    )
}

/// Returns true if two key patterns are equal, except for the types of their numbers.
fn same_pattern(a: Document<'_>, b: Document<'_>) -> bool {
    a.iter().count() == b.iter().count()
        && a.iter().zip(b).all(|(a, b)| a.name() == b.name() && equal(a.value(), b.value()))
}

// `min` and `max`: bounds on an index given as keys instead of a filter.

/// Returns the range of keys from `min` (inclusive) to `max` (exclusive).
///
/// Errors: 51174 if a bound does not have the index's fields in order, 51175 for bounds in the
/// wrong order.
pub(crate) fn range(index: &Index, read: &Read) -> Result<Range> {
    if index.spec.wildcard.is_some() {
        return Err(incompatible());
    }
    let bound = |document: &Option<DocumentBuf>| match document {
        Some(document) => key(index, document.view(), read.matcher.collation()).map(Some),
        None => Ok(None),
    };
    let (lower, upper) = (bound(&read.min)?, bound(&read.max)?);
    if let (Some(lower), Some(upper)) = (&lower, &upper)
        && lower >= upper
    {
        bail!(51175, "The value provided for min() does not come before the value provided for max()");
    }
    Ok(Range {
        lower: lower.map_or(Bound::Unbounded, |key| Bound::Included(Key::from(key))),
        upper: upper.map_or(Bound::Unbounded, |key| Bound::Excluded(Key::from(key))),
    })
}

fn incompatible() -> base::Error {
    err!(51174, "The index chosen is not compatible with min/max")
}

fn key(index: &Index, document: Document<'_>, collation: &Collation) -> Result<Vec<u8>> {
    if document.iter().count() != index.spec.parts.len() {
        return Err(incompatible());
    }
    let mut key = Vec::new();
    for (element, part) in document.iter().zip(&index.spec.parts) {
        if element.name() != part.path.as_str() {
            return Err(incompatible());
        }
        if index.spec.collation != *collation && depends_on_collation(element.value()) {
            return Err(incompatible());
        }
        index.spec.collation.append_key(element.value(), part.kind != KeyKind::Descending, &mut key);
    }
    Ok(key)
}
