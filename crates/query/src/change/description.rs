//! Conversion of a diff to the `updateDescription` of a change event.

use super::diff::{ArrayDiff, ArrayEntry, DocumentDiff, SubDiff};
use base::Result;
use base::bson::{Builder, Document, Element, FieldName};

/// Appends the fields of `updateDescription` to the open document: `updatedFields`, `removedFields`, `truncatedArrays`
/// and, if requested, `disambiguatedPaths`. The last distinguishes positions from numeric names, and dots within names
/// from path separators.
///
/// Errors: as [`apply`](super::apply) for a value that is not a diff.
pub fn describe(diff: Document<'_>, disambiguate: bool, out: &mut Builder) -> Result<()> {
    let mut description = Description::default();
    description.document(&DocumentDiff::read(diff)?)?;
    out.begin_document(c"updatedFields").append_all(description.updated.finish().view()).end();
    out.begin_array(c"removedFields");
    description.removed.iter().for_each(|path| {
        out.push(path.as_str());
    });
    out.end();
    out.begin_array(c"truncatedArrays");
    for (path, length) in &description.truncated {
        out.push_document().append(c"field", path.as_str()).append(c"newSize", *length).end();
    }
    out.end();
    if disambiguate {
        out.begin_document(c"disambiguatedPaths").append_all(description.ambiguous.finish().view()).end();
    }
    Ok(())
}

/// A field name or array position on the path to a change.
enum Step {
    Name(String),
    Position(usize),
}

/// The fields of an `updateDescription` under construction, and the path of the current change.
#[derive(Default)]
struct Description {
    path: Vec<Step>,
    updated: Builder,
    removed: Vec<String>,
    truncated: Vec<(String, i32)>,
    ambiguous: Builder,
}

impl Description {
    /// Reports the changes of a document: new values, removed fields, then nested changes.
    fn document(&mut self, diff: &DocumentDiff<'_>) -> Result<()> {
        for element in diff.updates.iter().chain(diff.inserts) {
            self.at(Step::Name(element.name().to_owned()), |this| this.update(&element));
        }
        for element in diff.deletes {
            self.at(Step::Name(element.name().to_owned()), |this| {
                let path = this.dotted();
                this.removed.push(path);
            });
        }
        for sub in diff.sub_diffs() {
            let (name, sub) = sub?;
            self.within(Step::Name(name.to_owned()), &sub)?;
        }
        Ok(())
    }

    /// Reports the changes of an array: a shorter length first, then changed positions.
    fn array(&mut self, diff: &ArrayDiff<'_>) -> Result<()> {
        if let Some(length) = diff.length {
            self.truncated.push((self.dotted(), i32::try_from(length).unwrap_or(i32::MAX)));
            self.disambiguate();
        }
        for entry in diff.entries() {
            match entry? {
                (position, ArrayEntry::Value(element)) => {
                    self.at(Step::Position(position), |this| this.update(&element));
                }
                (position, ArrayEntry::Sub(sub)) => self.within(Step::Position(position), &sub)?,
            }
        }
        Ok(())
    }

    /// Reports the changes below one step of the path.
    fn within(&mut self, step: Step, sub: &SubDiff<'_>) -> Result<()> {
        self.path.push(step);
        // The diff is validated BSON, whose depth bounds the recursion.
        match sub {
            SubDiff::Document(diff) => self.document(diff)?,
            SubDiff::Array(diff) => self.array(diff)?,
        }
        self.path.pop();
        Ok(())
    }

    /// Reports a change at one path.
    fn at(&mut self, step: Step, tell: impl FnOnce(&mut Self)) {
        self.path.push(step);
        tell(self);
        self.disambiguate();
        self.path.pop();
    }

    fn update(&mut self, element: &Element<'_>) {
        let path = self.dotted();
        self.updated.append_renamed(FieldName::trusted(&path), element);
    }

    /// Returns the current path in dotted notation.
    fn dotted(&self) -> String {
        let mut path = String::new();
        for (at, step) in self.path.iter().enumerate() {
            if at > 0 {
                path.push('.');
            }
            match step {
                Step::Name(name) => path.push_str(name),
                Step::Position(position) => path.push_str(&position.to_string()),
            }
        }
        path
    }

    /// Records the components of an ambiguous path.
    fn disambiguate(&mut self) {
        let unclear = self.path.iter().enumerate().any(|(at, step)| match step {
            Step::Name(name) => name.contains('.') || at > 0 && is_number(name),
            Step::Position(_) => false,
        });
        if !unclear {
            return;
        }
        self.ambiguous.begin_array(FieldName::trusted(&self.dotted()));
        for step in &self.path {
            match step {
                Step::Name(name) => self.ambiguous.push(name.as_str()),
                Step::Position(position) => self.ambiguous.push(i32::try_from(*position).unwrap_or(i32::MAX)),
            };
        }
        self.ambiguous.end();
    }
}

/// Whether a name could be a position: digits without leading zeros.
fn is_number(name: &str) -> bool {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    digits && (name == "0" || !name.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn describes(diff: &str, expected: &str) {
        let mut out = Builder::new();
        describe(parse(diff).unwrap().view(), true, &mut out).unwrap();
        assert_eq!(out.finish(), parse(expected).unwrap(), "{diff}");
    }

    #[test]
    fn paths_are_dotted() {
        describes(
            "{d: {x: false}, u: {a: 1}, i: {b: {c: 2}}, sd: {d: {e: false}, sf: {a: true, l: 3, u1: 5}}}",
            "{updatedFields: {a: 1, b: {c: 2}, 'd.f.1': 5}, removedFields: ['x', 'd.e'],
              truncatedArrays: [{field: 'd.f', newSize: 3}], disambiguatedPaths: {}}",
        );
        describes(
            "{sa: {a: true, s0: {u: {b: 1}}}}",
            "{updatedFields: {'a.0.b': 1}, removedFields: [], truncatedArrays: [], disambiguatedPaths: {}}",
        );
    }

    #[test]
    fn ambiguous_paths_are_listed_by_component() {
        describes(
            "{u: {'1': 1, 'a.b': 2}, sa: {d: {'1': false}, u: {'01': 3}, s0: {a: true, u7: 4}}}",
            "{updatedFields: {'1': 1, 'a.b': 2, 'a.01': 3, 'a.0.7': 4}, removedFields: ['a.1'],
              truncatedArrays: [],
              disambiguatedPaths: {'a.b': ['a.b'], 'a.1': ['a', '1'], 'a.0.7': ['a', '0', 7]}}",
        );
        describes(
            "{'sx.y': {a: true, l: 1}}",
            "{updatedFields: {}, removedFields: [], truncatedArrays: [{field: 'x.y', newSize: 1}],
              disambiguatedPaths: {'x.y': ['x.y']}}",
        );
    }
}
