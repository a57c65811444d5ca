//! `$regex` with `$options`, and regular expressions as values.
//!
//! A pattern matches strings, and equals a stored regex with equal pattern and options.
//!
//! ```text
//! {<path>: /pattern/options}
//! {<path>: {$regex: <string or regex>, $options: <string>}}
//! ```

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use crate::Interrupt;
use crate::regex::{Literals, Regex, check_before};
use base::bson::{Document, Element, Path, RegexText, Type, Value};
use base::{Result, bail, err};

/// A pattern that matches values.
#[derive(Clone, Debug)]
pub struct RegexMatch {
    /// The pattern as given.
    pub pattern: String,
    /// The options as given.
    pub options: String,
    regex: Regex,
}

impl RegexMatch {
    /// Compiles the pattern.
    pub(super) fn new(pattern: &str, options: &str) -> Result<RegexMatch> {
        let regex = Regex::new(pattern, options)?;
        Ok(RegexMatch { pattern: pattern.to_string(), options: options.to_string(), regex })
    }

    /// The condition as a value.
    pub fn value(&self) -> Value<'_> {
        // Compilation has refused zero bytes.
        let text = |text| RegexText::new(text).unwrap_or_default();
        Value::Regex { pattern: text(&self.pattern), options: text(&self.options) }
    }

    /// The texts that the pattern searches for, if it consists only of plain texts.
    pub(super) fn literals(&self) -> Option<&Literals> {
        self.regex.literals()
    }

    /// Whether a value matches. Strings and symbols are searched; a stored regex is compared.
    #[inline]
    pub(super) fn test(&self, element: Option<&Element<'_>>, interrupt: &dyn Interrupt) -> Result<bool> {
        if let (Some(text), Some(literals)) = (element.and_then(text_bytes), self.regex.literals()) {
            check_before(text.len(), interrupt)?;
            if let Some(matched) = literals.is_match(text) {
                return Ok(matched);
            }
        }
        match element.map(Element::value) {
            Some(Value::String(text) | Value::Symbol(text)) => self.regex.is_match(text, interrupt),
            Some(Value::Regex { pattern, options }) => {
                Ok(*pattern == *self.pattern && same_options(&options, &self.options))
            }
            _ => Ok(false),
        }
    }
}

/// The undecoded text of a string or symbol. A search over bytes needs no decoding.
#[inline]
pub(super) fn text_bytes<'a>(element: &Element<'a>) -> Option<&'a [u8]> {
    match element.kind() {
        Type::String | Type::Symbol => element.value_bytes().get(4..)?.split_last().map(|(_, text)| text),
        _ => None,
    }
}

/// Whether the options are equal, in any order.
fn same_options(a: &str, b: &str) -> bool {
    a == b || (a.len() == b.len() && a.chars().all(|option| b.contains(option)))
}

/// Builds a match of a path's value with a pattern.
pub(super) fn field(path: &Path, pattern: &str, options: &str) -> Result<Node> {
    let predicate = Predicate::Regex(RegexMatch::new(pattern, options)?);
    Ok(Node::Field { path: path.clone(), predicate })
}

/// Parses `$regex` with the `$options` among its siblings.
pub(super) fn parse_regex(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    let (pattern, own_options) = match argument.value() {
        Value::String(pattern) => (pattern, ""),
        Value::Regex { pattern, options } => (pattern.as_str(), options.as_str()),
        _ => bail!(BadValue, "$regex has to be a string"),
    };
    let options = sibling_options(argument.siblings, own_options)?.unwrap_or(own_options);
    field(argument.path, pattern, options).map(Some)
}

/// Returns the text of `$options`, which is refused if the regex itself has options.
fn sibling_options<'a>(siblings: Document<'a>, own: &str) -> Result<Option<&'a str>> {
    let mut seen_regex = false;
    for element in siblings {
        match element.name() {
            "$regex" => seen_regex = true,
            "$options" => {
                let Value::String(options) = element.value() else {
                    bail!(BadValue, "$options has to be a string");
                };
                return match (own.is_empty(), seen_regex) {
                    (true, _) => Ok(Some(options)),
                    (false, true) => Err(err!(51075, "options set in both $regex and $options")),
                    (false, false) if options.is_empty() => Ok(None),
                    (false, false) => Err(err!(51074, "options set in both $regex and $options")),
                };
            }
            _ => {}
        }
    }
    Ok(None)
}

/// `$options`: parsed by `$regex`, refused without it.
pub(super) fn parse_options(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    match argument.siblings.get("$regex") {
        Some(_) => Ok(None),
        None => Err(err!(BadValue, "$options needs a $regex")),
    }
}
