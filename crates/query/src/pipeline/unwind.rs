//! `$unwind`: a document for each element of an array.
//!
//! ```text
//! {$unwind: "$path"}
//! {$unwind: {
//!     path: "$path",
//!     includeArrayIndex: <path>,              optional
//!     preserveNullAndEmptyArrays: <boolean>,  optional
//! }}
//! ```
//!
//! A new option is a case in [`parse`].

use super::fields::set_path;
use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Split, Stage, Stream};
use crate::Row;
use crate::field_path::checked_path;
use crate::interrupt_check::InterruptCheck;
use base::bson::{Array, Document, DocumentBuf, Element, Elements, Path, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$unwind`.
#[derive(Clone)]
pub(crate) struct Unwind {
    pub(super) path: Path,
    pub(super) preserve: bool,
    pub(super) index: Option<Path>,
}

/// Parses `$unwind`. Errors: 15981, 28808 to 28812, 28818, 28822 as in MongoDB; the errors of paths.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let (mut path, mut preserve, mut index) = (None, false, None);
    match spec.value() {
        Value::String(text) => path = Some(text),
        Value::Document(options) => {
            for option in options {
                match option.name() {
                    "path" => path = Some(path_option(&option)?),
                    "preserveNullAndEmptyArrays" => preserve = preserve_option(&option)?,
                    "includeArrayIndex" => index = Some(index_option(&option)?),
                    other => bail!(28811, "unrecognized option to $unwind stage: {other}"),
                }
            }
        }
        other => {
            let found = other.kind().alias();
            bail!(
                15981,
                "expected either a string or an object as specification for $unwind stage, got {found}"
            );
        }
    }
    let path = path.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| err!(28812, "no path specified to $unwind stage"))?;
    let Some(path) = path.strip_prefix('$') else {
        bail!(28818, "path option to $unwind stage should be prefixed with a '$': {path}");
    };
    if path.contains('\0') {
        bail!(16419, "field path must not contain embedded null characters");
    }
    Ok(Parsed::one(Unwind { path: checked_path(path)?, preserve, index }))
}

fn path_option<'a>(option: &Element<'a>) -> Result<&'a str> {
    let found = option.kind().alias();
    option
        .value()
        .as_str()
        .ok_or_else(|| err!(28808, "expected a string as the path for $unwind stage, got {found}"))
}

fn preserve_option(option: &Element<'_>) -> Result<bool> {
    let found = option.kind().alias();
    option.value().as_bool().ok_or_else(|| {
        err!(
            28809,
            "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {found}"
        )
    })
}

/// Parses `includeArrayIndex`. Errors: 28810 unless it is a non-empty string, 28822 for a leading dollar sign.
fn index_option(option: &Element<'_>) -> Result<Path> {
    let text = option.value().as_str().filter(|text| !text.is_empty()).ok_or_else(|| {
        let found = option.kind().alias();
        err!(
            28810,
            "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got {found}"
        )
    })?;
    if text.starts_with('$') {
        bail!(28822, "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {text}");
    }
    checked_path(text)
}

impl Unwind {
    /// The top-level fields that change.
    pub(super) fn changed(&self) -> Vec<String> {
        let mut changed = vec![self.path.first().to_string()];
        changed.extend(self.index.as_ref().map(|path| path.first().to_string()));
        changed
    }

    /// Returns the document with one element, or none, instead of the array.
    pub(super) fn output(
        &self,
        document: Document<'_>,
        value: Option<Value<'_>>,
        index: Option<i64>,
    ) -> DocumentBuf {
        let unwound = set_path(document, &self.path, value);
        match &self.index {
            Some(path) => set_path(unwound.view(), path, Some(index.map_or(Value::Null, Value::Int64))),
            None => unwound,
        }
    }
}

impl Operator for Unwind {
    fn kind(&self) -> Kind<'_> {
        Kind::Unwind(self)
    }

    fn effect(&self) -> Effect {
        Effect::Multiplies(self.changed())
    }

    fn reads(&self) -> Reads {
        Reads::Also(vec![self.path.clone()])
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running {
            stage: self,
            input,
            interrupts: InterruptCheck::new(&environment.context),
            current: None,
        }))
    }
}

/// Unwinds one document at a time.
struct Running {
    stage: Arc<Unwind>,
    input: Stream,
    interrupts: InterruptCheck,
    current: Option<Current>,
}

/// The row being unwound, and the progress.
struct Current {
    row: Row,
    /// Bytes of the remaining elements, counted from the end of the array.
    remaining: usize,
    position: i64,
}

impl Current {
    /// Returns the document of the next element.
    fn next(&mut self, stage: &Unwind) -> Option<DocumentBuf> {
        let document = self.row.document.view();
        let array = stage.path.get(document)?.as_array()?;
        let mut elements = remaining_elements(array, self.remaining)?;
        let element = elements.next()?;
        let output = stage.output(document, Some(element.value()), Some(self.position));
        self.remaining = elements.rest().len();
        self.position += 1;
        Some(output)
    }
}

/// Returns the last elements of an array, which occupy `remaining` bytes. Resuming at a byte position makes unwinding
/// linear in the array's length.
fn remaining_elements(array: Array<'_>, remaining: usize) -> Option<Elements<'_>> {
    const LENGTH: usize = 4;
    const TERMINATOR: usize = 1;
    // A view skips the length field without reading it, so any four bytes can serve as the length.
    let start = array.bytes().len().checked_sub(remaining + TERMINATOR + LENGTH)?;
    Some(Document::from_valid(array.bytes().get(start..)?).iter())
}

impl Running {
    /// Starts the next document. Returns its output if it has no elements to unwind; `None` if elements follow or the
    /// document is dropped.
    fn begin(&mut self, row: Row) -> Option<Row> {
        let stage = &self.stage;
        let document = row.document.view();
        match stage.path.get(document) {
            Some(Value::Array(array)) if !array.is_empty() => {
                let remaining = array.elements().rest().len();
                self.current = Some(Current { row, remaining, position: 0 });
                None
            }
            Some(Value::Array(_)) if stage.preserve => {
                let alone = stage.output(document, None, None);
                Some(row.with(alone))
            }
            None | Some(Value::Null | Value::Undefined) if stage.preserve => match &stage.index {
                Some(path) => {
                    let indexed = set_path(document, path, Some(Value::Null));
                    Some(row.with(indexed))
                }
                None => Some(row),
            },
            None | Some(Value::Array(_) | Value::Null | Value::Undefined) => None,
            Some(_) => match &stage.index {
                Some(path) => {
                    let indexed = set_path(document, path, Some(Value::Null));
                    Some(row.with(indexed))
                }
                None => Some(row),
            },
        }
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            self.interrupts.check()?;
            if let Some(current) = &mut self.current {
                if let Some(output) = current.next(&self.stage) {
                    self.interrupts.check_bytes(output.bytes().len())?;
                    return Ok(Some(current.row.copy(output)));
                }
                self.current = None;
            }
            let Some(row) = self.input.next()? else { return Ok(None) };
            if let Some(output) = self.begin(row) {
                self.interrupts.check_bytes(output.document.view().bytes().len())?;
                return Ok(Some(output));
            }
        }
    }

    fn begin_section(&mut self) -> bool {
        self.input.begin_section()
    }

    fn split(&mut self) -> Option<Split> {
        let stage = self.stage.clone();
        let running = |input, interrupt: &_| -> Stream {
            Box::new(Running { stage, input, current: None, interrupts: InterruptCheck::of(interrupt) })
        };
        Some(self.input.split()?.through(running))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    const INPUT: &str =
        "[{_id: 1, a: [1, 2], b: 0}, {_id: 2, a: []}, {_id: 3}, {_id: 4, a: null}, {_id: 5, a: 7}]";

    #[test]
    fn gives_a_document_for_each_element() {
        let expected = "[{_id: 1, a: 1, b: 0}, {_id: 1, a: 2, b: 0}, {_id: 5, a: 7}]";
        gives(INPUT, "[{$unwind: '$a'}]", expected);
        gives(INPUT, "[{$unwind: {path: '$a'}}]", expected);
        gives("[{a: {b: [1, [2]]}}]", "[{$unwind: '$a.b'}]", "[{a: {b: 1}}, {a: {b: [2]}}]");
    }

    #[test]
    fn preserves_empty_arrays_and_counts() {
        gives(
            INPUT,
            "[{$unwind: {path: '$a', preserveNullAndEmptyArrays: true, includeArrayIndex: 'i'}}]",
            "[{_id: 1, a: 1, b: 0, i: NumberLong(0)}, {_id: 1, a: 2, b: 0, i: NumberLong(1)}, {_id: 2, i: null},
              {_id: 3, i: null}, {_id: 4, a: null, i: null}, {_id: 5, a: 7, i: null}]",
        );
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$unwind: 1}]", 15981, "expected either a string or an object");
        fails("[{$unwind: {path: 1}}]", 28808, "expected a string as the path for $unwind stage, got int");
        fails("[{$unwind: {path: '$a', preserveNullAndEmptyArrays: 1}}]", 28809, "expected a boolean");
        fails("[{$unwind: {path: '$a', includeArrayIndex: ''}}]", 28810, "expected a non-empty string");
        fails("[{$unwind: {path: '$a', x: 1}}]", 28811, "unrecognized option to $unwind stage: x");
        fails("[{$unwind: {}}]", 28812, "no path specified to $unwind stage");
        fails("[{$unwind: 'a'}]", 28818, "should be prefixed with a '$': a");
        fails(
            "[{$unwind: {path: '$a', includeArrayIndex: '$i'}}]",
            28822,
            "should not be prefixed with a '$': $i",
        );
    }
}
