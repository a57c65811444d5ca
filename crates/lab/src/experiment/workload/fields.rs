//! Reads a workload's TOML field by field: whatever is wrong is told with file, line and field,
//! and a field that nobody has asked for is refused by its name.

use crate::error::{Error, Result};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file, for messages.
#[derive(Clone, Copy)]
pub(super) struct Source<'t> {
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

impl<'t> Source<'t> {
    /// Its fields.
    ///
    /// # Errors
    /// Not TOML.
    pub(super) fn parse(self) -> Result<Fields<'t>> {
        let table = DeTable::parse(self.text)
            .map_err(|error| self.wrong(&error.span().unwrap_or_default(), error.message()))?;
        Ok(Fields::of(self, "the workload".to_string(), table.span(), table.get_ref().clone()))
    }

    fn wrong(self, at: &Range<usize>, message: impl std::fmt::Display) -> Error {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        Error::Input(format!("{}, line {line}: {message}", self.name))
    }
}

/// A table whose fields are taken one by one.
pub(super) struct Fields<'t> {
    source: Source<'t>,
    what: String,
    span: Range<usize>,
    /// In the order of the file.
    left: Vec<(String, Range<usize>, Spanned<DeValue<'t>>)>,
    known: Vec<&'static str>,
}

impl<'t> Fields<'t> {
    fn of(source: Source<'t>, what: String, span: Range<usize>, table: DeTable<'t>) -> Fields<'t> {
        let fields = table.into_iter().map(|(name, value)| (name.get_ref().to_string(), name.span(), value));
        let mut left: Vec<_> = fields.collect();
        left.sort_by_key(|(_, span, _)| span.start);
        Fields { source, what, span, left, known: Vec::new() }
    }

    /// A field, if it is there.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Item<'t>> {
        self.known.push(name);
        let at = self.left.iter().position(|(field, _, _)| field == name)?;
        let (_, _, value) = self.left.remove(at);
        Some(Item { source: self.source, what: format!("{}, '{name}'", self.what), value })
    }

    /// A field that must be there.
    pub(super) fn need(&mut self, name: &'static str) -> Result<Item<'t>> {
        self.take(name).ok_or_else(|| self.wrong(format!("'{name}' is missing")))
    }

    /// All fields, whatever their names.
    pub(super) fn all(self) -> impl Iterator<Item = (String, Item<'t>)> {
        let Fields { source, what, left, .. } = self;
        left.into_iter().map(move |(name, _, value)| {
            let what = format!("{what}, '{name}'");
            (name, Item { source, what, value })
        })
    }

    /// Whether there is such a field, taken or not asked for.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(field, _, _)| field == name)
    }

    /// No more fields are known.
    ///
    /// # Errors
    /// There are some.
    pub(super) fn end(self) -> Result<()> {
        let Some((name, span, _)) = self.left.first() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(self.source.wrong(span, format!("{}: '{name}' is not known; known are {known}", self.what)))
    }

    /// An error about this table as a whole.
    pub(super) fn wrong(&self, message: impl std::fmt::Display) -> Error {
        self.source.wrong(&self.span, format!("{}: {message}", self.what))
    }
}

/// A value of the file.
#[derive(Clone)]
pub(super) struct Item<'t> {
    source: Source<'t>,
    what: String,
    value: Spanned<DeValue<'t>>,
}

impl<'t> Item<'t> {
    pub(super) fn value(&self) -> &DeValue<'t> {
        self.value.get_ref()
    }

    /// An error about this value.
    pub(super) fn wrong(&self, message: impl std::fmt::Display) -> Error {
        self.source.wrong(&self.value.span(), format!("{}: {message}", self.what))
    }

    fn unlike(&self, wanted: &str) -> Error {
        self.wrong(format!("{wanted} is wanted, not {}", self.value().type_str()))
    }

    pub(super) fn string(&self) -> Result<String> {
        self.value().as_str().map(str::to_string).ok_or_else(|| self.unlike("a string"))
    }

    pub(super) fn boolean(&self) -> Result<bool> {
        self.value().as_bool().ok_or_else(|| self.unlike("true or false"))
    }

    pub(super) fn integer(&self) -> Result<i64> {
        let integer = self.value().as_integer().ok_or_else(|| self.unlike("an integer"))?;
        i64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| self.wrong("is out of range"))
    }

    /// An integer of at least this much.
    pub(super) fn at_least(&self, least: u64) -> Result<u64> {
        let number = self.integer()?;
        let number = u64::try_from(number).ok().filter(|number| *number >= least);
        number.ok_or_else(|| self.wrong(format!("must be at least {least}")))
    }

    pub(super) fn number(&self) -> Result<f64> {
        if self.value().is_integer() {
            return Ok(self.integer()? as f64);
        }
        let float = self.value().as_float().ok_or_else(|| self.unlike("a number"))?;
        let number: f64 = float.as_str().parse().map_err(|_| self.wrong("is no number"))?;
        if number.is_finite() { Ok(number) } else { Err(self.wrong("must be finite")) }
    }

    /// A number more than 0 and, if a largest one is given, at most that.
    pub(super) fn share(&self, most: f64) -> Result<f64> {
        let number = self.number()?;
        if number > 0.0 && number <= most {
            Ok(number)
        } else {
            Err(self.wrong(format!("must be more than 0 and at most {most}")))
        }
    }

    /// Milliseconds since 1970 of a date, or of a date and time; without an offset, UTC.
    pub(super) fn date(&self) -> Result<i64> {
        let date = self.value().as_datetime().ok_or_else(|| self.unlike("a date"))?;
        let mut text = date.to_string();
        if date.date.is_none() {
            return Err(self.unlike("a date"));
        }
        if date.time.is_none() {
            text += "T00:00:00";
        }
        if date.offset.is_none() {
            text += "Z";
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| self.wrong("is no date"))?;
        Ok(time.as_millisecond())
    }

    pub(super) fn fields(&self) -> Result<Fields<'t>> {
        let table = self.value().as_table().ok_or_else(|| self.unlike("a table"))?;
        Ok(Fields::of(self.source, self.what.clone(), self.value.span(), table.clone()))
    }

    /// The values of an array; each is called by its place, from 1.
    pub(super) fn items(&self) -> Result<Vec<Item<'t>>> {
        let array = self.value().as_array().ok_or_else(|| self.unlike("an array"))?;
        let item = |(at, value): (usize, &Spanned<DeValue<'t>>)| Item {
            source: self.source,
            what: format!("{} {}", self.what, at + 1),
            value: value.clone(),
        };
        Ok(array.iter().enumerate().map(item).collect())
    }

    /// The values of an array, or the one value that stands there without one.
    pub(super) fn one_or_more(&self) -> Result<Vec<Item<'t>>> {
        if self.value().is_array() { self.items() } else { Ok(vec![self.clone()]) }
    }
}
