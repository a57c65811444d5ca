//! Parser and validator of diffs, which may also come from outside, by `applyOps`.

use base::bson::{Document, Element, Elements, Type, Value};
use base::{Result, bail, err};

/// The sections of a document's diff.
pub(in crate::change) struct DocumentDiff<'a> {
    pub(in crate::change) deletes: Document<'a>,
    pub(in crate::change) updates: Document<'a>,
    pub(in crate::change) inserts: Document<'a>,
    sub_diffs: Elements<'a>,
}

/// The diff of an array.
pub(in crate::change) struct ArrayDiff<'a> {
    /// The new length of a shortened array.
    pub(in crate::change) length: Option<usize>,
    entries: Elements<'a>,
}

/// The diff of a field or of an array's element.
pub(in crate::change) enum SubDiff<'a> {
    Document(DocumentDiff<'a>),
    Array(ArrayDiff<'a>),
}

/// The change of an array position.
pub(in crate::change) enum ArrayEntry<'a> {
    Value(Element<'a>),
    Sub(SubDiff<'a>),
}

fn not_empty(diff: Document<'_>) -> Result<Element<'_>> {
    diff.first().ok_or_else(|| err!(4770500, "Expected diff to be non-empty"))
}

fn section<'a>(element: &Element<'a>) -> Result<Document<'a>> {
    element.value().as_document().ok_or_else(|| {
        err!(4770507, "Expected {} section to be type {}", element.name(), Type::Document.alias())
    })
}

impl<'a> DocumentDiff<'a> {
    /// Splits a diff into its sections.
    ///
    /// Errors: 4770500 for an empty diff, 4770503 for unknown or misordered sections, 4770505 for a section without a
    /// name, 4770507 for a section that is not a document.
    pub(in crate::change) fn read(diff: Document<'a>) -> Result<DocumentDiff<'a>> {
        not_empty(diff)?;
        let empty = Document::EMPTY;
        let mut read = DocumentDiff {
            deletes: empty,
            updates: empty,
            inserts: empty,
            sub_diffs: Document::EMPTY.iter(),
        };
        let mut rest = diff.iter();
        let mut last = 0;
        loop {
            let here = rest.clone();
            let Some(element) = rest.next() else { return Ok(read) };
            let Some(first) = element.name().chars().next() else {
                bail!(4770505, "Expected sections field names in diff to be non-empty ");
            };
            let order = match first {
                'd' => 1,
                'u' => 2,
                'i' => 3,
                's' => 4,
                _ => 0,
            };
            if order <= last {
                bail!(4770503, "Unexpected section: {first} in document diff");
            }
            last = order;
            match first {
                'd' => read.deletes = section(&element)?,
                'u' => read.updates = section(&element)?,
                'i' => read.inserts = section(&element)?,
                _ => {
                    read.sub_diffs = here;
                    return Ok(read);
                }
            }
        }
    }

    /// Returns the diffs of fields, with their names.
    ///
    /// Errors: 4770514 for a section of another kind after them, 470510 for a diff that is not a document.
    pub(in crate::change) fn sub_diffs(
        &self,
    ) -> impl Iterator<Item = Result<(&'a str, SubDiff<'a>)>> + use<'a> {
        self.sub_diffs.clone().map(|element| {
            let Some(name) = element.name().strip_prefix('s') else {
                let name = element.name();
                bail!(4770514, "Did not expect more sections in diff but found one: {name}");
            };
            match element.value() {
                Value::Document(diff) => Ok((name, SubDiff::read(diff)?)),
                _ => Err(err!(470510, "Subdiffs should be objects, got {element}")),
            }
        })
    }
}

impl<'a> ArrayDiff<'a> {
    /// Reads the header of an array's diff and its optional new length. Errors: 4770519 and 4770520 for the header,
    /// 4770507 for the length.
    fn read(diff: Document<'a>) -> Result<ArrayDiff<'a>> {
        let mut entries = diff.iter();
        let header = entries.next();
        match header.map(|header| header.value()) {
            Some(Value::Boolean(true)) => {}
            Some(Value::Boolean(_)) => {
                bail!(4770520, "Expected array header to be value true but got a: false");
            }
            _ => bail!(4770519, "Expected array header to be bool but got {diff}"),
        }
        let mut length = None;
        let behind = entries.clone();
        match entries.next() {
            Some(element) if element.name() == "l" => {
                let Value::Int32(new) = element.value() else {
                    bail!(4770507, "Expected l section to be type {}", Type::Int32.alias());
                };
                length = Some(usize::try_from(new).unwrap_or(0));
            }
            _ => entries = behind,
        }
        Ok(ArrayDiff { length, entries })
    }

    /// Returns the changes of positions, in the order of the diff.
    ///
    /// Errors: 4770521, 4770512, 4770502 for other names, 4770501 for a diff that is not a document.
    pub(in crate::change) fn entries(
        &self,
    ) -> impl Iterator<Item = Result<(usize, ArrayEntry<'a>)>> + use<'a> {
        self.entries.clone().map(|element| {
            let name = element.name();
            let Some((kind, position)) = name.split_at_checked(1).filter(|(_, rest)| !rest.is_empty()) else {
                bail!(4770521, "expected field name to be at least two characters long, but found: {name}");
            };
            let digits = position.bytes().all(|byte| byte.is_ascii_digit());
            let Some(at) = digits.then(|| position.parse().ok()).flatten() else {
                bail!(4770512, "Expected integer but got {position}");
            };
            match (kind, element.value()) {
                ("u", _) => Ok((at, ArrayEntry::Value(element))),
                ("s", Value::Document(diff)) => Ok((at, ArrayEntry::Sub(SubDiff::read(diff)?))),
                ("s", _) => Err(err!(4770501, "expected sub diff at index {at} but got {element}")),
                _ => Err(err!(
                    4770502,
                    "Expected either 'u' (update) or 's' (sub diff) at index {at} but got {element}"
                )),
            }
        })
    }
}

impl<'a> SubDiff<'a> {
    fn read(diff: Document<'a>) -> Result<SubDiff<'a>> {
        match not_empty(diff)?.name() {
            "a" => Ok(SubDiff::Array(ArrayDiff::read(diff)?)),
            _ => Ok(SubDiff::Document(DocumentDiff::read(diff)?)),
        }
    }
}
