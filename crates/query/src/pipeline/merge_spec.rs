//! Specification of `$merge`.
//!
//! ```text
//! {$merge: <collection>}
//! {$merge: {
//!     into: <collection> | {db: <string>, coll: <string>},
//!     on: <path> | [<path>, …],               optional: _id by default
//!     let: {<variable>: <expression>, …},     optional, for a pipeline
//!     whenMatched: "replace" | "keepExisting" | "merge" | "fail" | [<stage>, …],    optional: "merge"
//!     whenNotMatched: "insert" | "discard" | "fail",                                optional: "insert"
//! }}
//! ```

use super::collections::Namespace;
use super::fields::check_options;
use super::variables::{Let, parse_let};
use crate::field_path::checked_path;
use crate::{Context, Update};
use base::bson::{Builder, Document, DocumentBuf, Element, Path, Value, ValueBuf};
use base::{Error, Result, bail, err};
use std::sync::Arc;

/// Code for a target in an internal database.
pub(super) const INTERNAL_DATABASE: i32 = 31320;

/// A parsed `$merge`.
pub(super) struct Merge {
    pub(super) into: Namespace,
    pub(super) on: Vec<Path>,
    pub(super) matched: Matched,
    pub(super) not_matched: NotMatched,
}

/// Action for a document that exists in the target.
pub(super) enum Matched {
    Replace,
    KeepExisting,
    Merge,
    Fail,
    /// An error of the pipeline counts when a document is written, as in MongoDB.
    Pipeline {
        update: Result<Arc<Update>>,
        pipeline: ValueBuf,
        variables: Let,
    },
}

/// Action for a document that does not exist in the target.
#[derive(Clone, Copy)]
pub(super) enum NotMatched {
    Insert,
    Discard,
    Fail,
}

impl Merge {
    /// Parses the specification.
    ///
    /// Errors: 51182 unless it is a string or a document, 40414 and 40415 for missing and unknown fields. 51134, 51178,
    /// 51181, 51186, 51187, 51191, 51199, 5786800 and the errors of [`Namespace::parse`] for invalid fields.
    pub(super) fn parse(spec: &Element<'_>, context: &Context) -> Result<Merge> {
        let options = match spec.value() {
            Value::String("") => bail!(InvalidNamespace, "$merge needs the name of a collection"),
            Value::String(_) => return Ok(Merge::by_default(parse_into(spec)?)),
            Value::Document(options) => options,
            other => {
                bail!(51182, "$merge only supports a string or object argument, not {}", other.kind());
            }
        };
        check_options("$merge", options, &["into", "on", "let", "whenMatched", "whenNotMatched"])?;
        let find = |name| options.find(name).filter(|option| !option.value().is_nullish());
        if let Some(variables) = find("let")
            && variables.value().as_document().is_none()
        {
            return Err(Error::wrong_type("$merge.let", variables.kind(), "object"));
        }
        let into = options.find("into").ok_or_else(|| Error::missing_field("$merge.into"))?;
        let mut merge = Merge::by_default(parse_into(&into)?);
        if let Some(on) = options.find("on") {
            merge.on = parse_on(on.value())?;
        }
        if let Some(mode) = find("whenNotMatched") {
            merge.not_matched = parse_not_matched(mode.value())?;
        }
        if let Some(mode) = options.find("whenMatched") {
            merge.matched = parse_matched(mode.value(), options, context)?;
        }
        merge.check_modes(options)?;
        Ok(merge)
    }

    fn by_default(into: Namespace) -> Merge {
        let on = vec![Path::new(c"_id")];
        Merge { into, on, matched: Matched::Merge, not_matched: NotMatched::Insert }
    }

    /// Refuses combinations of modes that MongoDB does not support. Errors: 51181, and 51199 for `let` without a
    /// pipeline.
    fn check_modes(&self, options: Document<'_>) -> Result<()> {
        if matches!(self.matched, Matched::Fail) && !matches!(self.not_matched, NotMatched::Insert)
            || matches!(
                (&self.matched, self.not_matched),
                (Matched::KeepExisting, NotMatched::Discard | NotMatched::Fail)
            )
        {
            bail!(
                51181,
                "Combination of $merge modes 'whenMatched: {}' and 'whenNotMatched: {}' is not supported",
                self.matched.name(),
                self.not_matched.name()
            );
        }
        if options.get("let").is_some_and(|variables| !variables.is_nullish())
            && !matches!(self.matched, Matched::Pipeline { .. })
        {
            bail!(51199, "Cannot use 'let' variables with 'whenMatched: {}' mode", self.matched.name());
        }
        Ok(())
    }
}

impl Matched {
    fn name(&self) -> &'static str {
        match self {
            Matched::Replace => "replace",
            Matched::KeepExisting => "keepExisting",
            Matched::Merge => "merge",
            Matched::Fail => "fail",
            Matched::Pipeline { .. } => "pipeline",
        }
    }
}

impl NotMatched {
    fn name(self) -> &'static str {
        match self {
            NotMatched::Insert => "insert",
            NotMatched::Discard => "discard",
            NotMatched::Fail => "fail",
        }
    }
}

/// Parses the target. Errors: 5786800 for an empty name, 51178 for other types, errors of [`Namespace::parse`].
fn parse_into(into: &Element<'_>) -> Result<Namespace> {
    let into = match into.value() {
        Value::String("") => {
            bail!(5786800, "Invalid $merge namespace: the name of the collection is empty");
        }
        Value::String(collection) => Namespace::local(collection),
        Value::Document(into) => Namespace::parse("$merge.into", into)?,
        other => {
            let found = other.kind().alias();
            bail!(51178, "$merge 'into' field  must be either a string or an object, but found {found}");
        }
    };
    into.check_target("$merge", (31319, INTERNAL_DATABASE))?;
    Ok(into)
}

/// Parses the fields of `on`: a string or a non-empty array of distinct strings. Errors: 51186, 51187, 51134, 31465.
fn parse_on(on: Value<'_>) -> Result<Vec<Path>> {
    let fields: Vec<Value<'_>> = match on {
        Value::String(_) => vec![on],
        Value::Array(fields) => fields.iter().collect(),
        other => {
            let found = other.kind().alias();
            bail!(
                51186,
                "$merge 'on' field  must be either a string or an array of strings, but found {found}"
            );
        }
    };
    if fields.is_empty() {
        bail!(51187, "If explicitly specifying $merge 'on', must include at least one field");
    }
    let mut paths: Vec<Path> = Vec::new();
    for field in fields {
        let found = field.kind().alias();
        let text = field.as_str();
        let text =
            text.ok_or_else(|| err!(51134, "$merge 'on' array elements must be strings, but found {found}"))?;
        let path = checked_path(text)?;
        if paths.contains(&path) {
            bail!(31465, "Found a duplicate field '{text}'");
        }
        paths.push(path);
    }
    Ok(paths)
}

fn parse_not_matched(mode: Value<'_>) -> Result<NotMatched> {
    match mode {
        Value::String("insert") => Ok(NotMatched::Insert),
        Value::String("discard") => Ok(NotMatched::Discard),
        Value::String("fail") => Ok(NotMatched::Fail),
        other => Err(bad_mode("whenNotMatched", other)),
    }
}

/// Parses `whenMatched`: a mode or a pipeline, which reads its variables when it runs.
fn parse_matched(mode: Value<'_>, options: Document<'_>, context: &Context) -> Result<Matched> {
    match mode {
        Value::String("replace") => Ok(Matched::Replace),
        Value::String("keepExisting") => Ok(Matched::KeepExisting),
        Value::String("merge") => Ok(Matched::Merge),
        Value::String("fail") => Ok(Matched::Fail),
        Value::Array(stages) => {
            let variables = parse_variables(options, context)?;
            let update = Update::parse(mode, &[], &variables.declare(context)).map(Arc::new);
            if stages.iter().any(|stage| stage.as_document().is_none()) {
                update.clone()?;
            }
            Ok(Matched::Pipeline { update, pipeline: mode.to_owned(), variables })
        }
        Value::String(_) => Err(bad_mode("whenMatched", mode)),
        other => {
            let found = other.kind().alias();
            Err(err!(
                51191,
                "$merge 'whenMatched' field  must be either a string or an array, but found {found}"
            ))
        }
    }
}

/// Returns the error for an unknown mode or a mode that is not a string.
fn bad_mode(field: &str, mode: Value<'_>) -> Error {
    match mode {
        Value::String(mode) => Error::unknown_value(format_args!("$merge.{field}"), mode),
        other => Error::wrong_type(format_args!("$merge.{field}"), other.kind(), "string"),
    }
}

/// Parses the variables of a pipeline: the variables of `let`, and always `new`, the incoming document.
///
/// Errors: 51273 if `let` gives `new` another value.
fn parse_variables(options: Document<'_>, context: &Context) -> Result<Let> {
    let mut spec = Builder::new();
    spec.begin_document(c"let");
    match options.get("let") {
        Some(Value::Document(variables)) => {
            for variable in variables.iter().filter(|variable| variable.name() != "new") {
                spec.append_element(&variable);
            }
            if variables.get("new").is_some_and(|new| new.as_str() != Some("$$ROOT")) {
                bail!(
                    51273,
                    "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'"
                );
            }
        }
        Some(other) if !other.is_nullish() => {
            let found = other.kind().alias();
            bail!(
                TypeMismatch,
                "BSON field '$merge.let' is the wrong type '{found}', expected type 'object'"
            );
        }
        _ => {}
    }
    spec.append(c"new", "$$ROOT");
    let spec: DocumentBuf = spec.finish();
    match spec.view().first() {
        Some(option) => parse_let("$merge", &option, context),
        None => Ok(Let::default()),
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::fails;

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$merge: 1}]", 51182, "$merge only supports a string or object argument, not int");
        fails("[{$merge: {}}]", 40414, "'$merge.into' is missing");
        fails("[{$merge: {into: 1}}]", 51178, "must be either a string or an object, but found int");
        fails("[{$merge: {into: 't', x: 1}}]", 40415, "'$merge.x' is an unknown field");
        fails("[{$merge: {into: 't', on: 1}}]", 51186, "but found int");
        fails("[{$merge: {into: 't', on: []}}]", 51187, "must include at least one field");
        fails("[{$merge: {into: 't', on: [1]}}]", 51134, "array elements must be strings, but found int");
        fails("[{$merge: {into: 't', whenMatched: 'x'}}]", 2, "Enumeration value 'x'");
        fails("[{$merge: {into: 't', whenMatched: 1}}]", 51191, "but found int");
        fails(
            "[{$merge: {into: 't', whenMatched: 'fail', whenNotMatched: 'discard'}}]",
            51181,
            "is not supported",
        );
        fails(
            "[{$merge: {into: 't', let: {a: 1}}}]",
            51199,
            "Cannot use 'let' variables with 'whenMatched: merge' mode",
        );
        fails("[{$merge: {into: 't', let: {new: 1}, whenMatched: []}}]", 51273, "reserved 'new' variable");
        fails("[{$merge: 't'}, {$limit: 1}]", 40601, "$merge can only be the final stage in the pipeline");
    }
}
