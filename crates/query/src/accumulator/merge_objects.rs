//! `$mergeObjects`: the documents' fields together, later ones winning in the earlier's place.

use super::{Accumulation, Accumulator, check_memory, only_value};
use crate::Context;
use base::bson::{Builder, Document, DocumentBuf, Element, Value, ValueBuf};
use base::{Result, err};

pub(super) fn parse(name: &'static str, spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
    let limit = context.limits.push;
    Accumulation::unary(name, spec, context, move || Box::new(Merged { fields: DocumentBuf::empty(), limit }))
}

struct Merged {
    fields: DocumentBuf,
    limit: usize,
}

impl Accumulator for Merged {
    /// Errors: 5911200 for what is neither a document nor null or missing.
    fn add(&mut self, argument: Option<Value<'_>>) -> Result<()> {
        match argument {
            None | Some(Value::Null | Value::Undefined) => Ok(()),
            Some(Value::Document(document)) => {
                self.fields = merge(self.fields.view(), document);
                check_memory("$mergeObjects", self.memory(), self.limit)
            }
            Some(other) => Err(err!(
                5911200,
                "$mergeObjects requires object inputs, but input {other} is of type {}",
                other.kind().alias()
            )),
        }
    }

    fn finish(&self) -> Result<ValueBuf> {
        let mut builder = Builder::new();
        builder.append(c"", &self.fields);
        Ok(only_value(builder))
    }

    fn save(&self) -> ValueBuf {
        Value::Document(self.fields.view()).to_owned()
    }

    fn absorb(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn memory(&self) -> usize {
        size_of::<Merged>() + self.fields.bytes().len()
    }
}

fn merge(base: Document<'_>, over: Document<'_>) -> DocumentBuf {
    let mut builder = Builder::new();
    for element in base {
        builder.append_element(&over.find(element.name()).unwrap_or(element));
    }
    for element in over {
        if base.find(element.name()).is_none() {
            builder.append_element(&element);
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use crate::accumulator::testing::{folding_fails, folds};

    #[test]
    fn later_documents_win_in_the_earlier_place() {
        folds("{$mergeObjects: '$a'}", "[{x: 1, y: 2}, null, {z: 3, x: 4}]", "{x: 4, y: 2, z: 3}");
        folds("{$mergeObjects: '$a'}", "[]", "{}");
        folding_fails("{$mergeObjects: '$a'}", "[1]", 5911200);
    }
}
