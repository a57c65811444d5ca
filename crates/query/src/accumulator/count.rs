//! `$count`: how many documents there are.

use super::parse::count_value;
use super::{Accumulation, Accumulator, Argument, Folding};
use crate::Context;
use base::bson::{Element, Value, ValueBuf};
use base::{Result, err};
use std::sync::Arc;

/// Errors: TypeMismatch unless the argument is `{}`.
pub(super) fn parse(_name: &'static str, spec: &Element<'_>, _context: &Context) -> Result<Accumulation> {
    if !spec.value().as_document().is_some_and(|argument| argument.is_empty()) {
        return Err(err!(TypeMismatch, "$count takes no arguments, i.e. $count:{{}}"));
    }
    Ok(Accumulation::of(Argument::Nothing, Arc::new(|_| Box::new(Count(0)))))
}

struct Count(u64);

impl Accumulator for Count {
    fn add(&mut self, _argument: Option<Value<'_>>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(Value::from(count_value(self.0)).to_owned())
    }

    fn save(&self) -> ValueBuf {
        Value::Int64(i64::try_from(self.0).unwrap_or(i64::MAX)).to_owned()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        self.0 += saved.as_i64().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        Ok(())
    }

    fn folding(&self) -> Folding {
        Folding::Joins
    }

    fn memory(&self) -> usize {
        size_of::<Count>()
    }

    fn grows(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folds, refuses};

    #[test]
    fn counts_documents() {
        folds("{$count: {}}", "[1, null, 'x']", "3");
        refuses("{$count: 1}", 14, "$count takes no arguments");
    }
}
