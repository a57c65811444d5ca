//! `$first` and `$last`: the value of the first or last document; missing gives null.

use super::{Accumulation, Accumulator, Folding, only_value};
use crate::Context;
use base::Result;
use base::bson::{Builder, Element, Value, ValueBuf};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    if name == "$first" {
        Accumulation::unary(name, spec, context, || Box::new(End { last: false, seen: false, value: None }))
    } else {
        Accumulation::unary(name, spec, context, || Box::new(End { last: true, seen: false, value: None }))
    }
}

struct End {
    last: bool,
    seen: bool,
    value: Option<ValueBuf>,
}

impl Accumulator for End {
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        if self.last || !self.seen {
            self.value = argument.map(|value| value.to_owned());
            self.seen = true;
        }
        Ok(())
    }

    fn finish(&self) -> Result<ValueBuf> {
        Ok(self.value.clone().unwrap_or_else(ValueBuf::null))
    }

    /// `{}` is a missing value, null that there was no document.
    fn save(&self) -> ValueBuf {
        if !self.seen {
            return ValueBuf::null();
        }
        let mut builder = Builder::new();
        builder.begin_document(c"").append_optional(c"v", self.value.as_ref());
        only_value(builder)
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        match saved {
            Value::Document(end) => self.add(end.get("v")),
            _ => Ok(()),
        }
    }

    fn folding(&self) -> Folding {
        if self.last { Folding::Last(1) } else { Folding::First(1) }
    }

    fn memory(&self) -> usize {
        size_of::<End>() + self.value.as_ref().map_or(0, |value| value.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::folds;

    #[test]
    fn takes_the_first_and_the_last() {
        folds("{$first: '$a'}", "[3, 1, 2]", "3");
        folds("{$last: '$a'}", "[3, 1, 2]", "2");
        folds("{$first: '$missing'}", "[3]", "null");
    }
}
