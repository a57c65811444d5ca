//! Fields in insertion order with fast lookup.

use base::bson::{Builder, FieldName, Value};
use std::collections::HashMap;

/// Number of fields up to which linear search is faster than hashing.
const SMALL: usize = 16;

/// The fields of a document under construction. Later values replace earlier ones.
#[derive(Default)]
pub(super) struct OrderedFields<'a> {
    entries: Vec<(FieldName<'a>, Value<'a>)>,
    /// The position of each field; empty while they are few.
    positions: HashMap<FieldName<'a>, usize>,
}

impl<'a> OrderedFields<'a> {
    /// Sets a field; returns whether it existed.
    pub(super) fn set(&mut self, name: FieldName<'a>, value: Value<'a>) -> bool {
        let position = if self.positions.is_empty() {
            self.entries.iter().position(|(known, _)| *known == name)
        } else {
            self.positions.get(&name).copied()
        };
        if let Some(entry) = position.and_then(|position| self.entries.get_mut(position)) {
            entry.1 = value;
            return true;
        }
        self.entries.push((name, value));
        if self.entries.len() == SMALL {
            self.positions =
                self.entries.iter().enumerate().map(|(position, (name, _))| (*name, position)).collect();
        } else if self.entries.len() > SMALL {
            self.positions.insert(name, self.entries.len() - 1);
        }
        false
    }

    /// Returns the document of these fields.
    pub(super) fn build(&self) -> Builder {
        let mut builder = Builder::new();
        for (name, value) in &self.entries {
            builder.append(*name, *value);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_take_the_first_place() {
        let names: Vec<String> = (0..50).map(|number| format!("f{number}")).collect();
        let mut fields = OrderedFields::default();
        assert!(names.iter().all(|name| !fields.set(FieldName::new(name).unwrap(), Value::Int32(1))));
        assert!(names.iter().all(|name| fields.set(FieldName::new(name).unwrap(), Value::Int32(2))));
        let document = fields.build().finish();
        let found: Vec<_> = document.view().iter().map(|element| element.name().to_string()).collect();
        assert_eq!(found, names);
        assert!(document.view().iter().all(|element| element.value().as_i64() == Some(2)));
    }
}
