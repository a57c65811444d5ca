//! Size of the documents within a range of an index, for dataSize.

use crate::database::Database;
use crate::operation::Operation;
use crate::plan::{Hint, Read};
use base::bson::{Document, compare};
use base::{Namespace, Result};
use query::Context;
use query::matcher::Matcher;
use std::cmp::Ordering;
use std::sync::Arc;

/// A range of an index's keys.
pub struct MeasuredRange<'a> {
    /// The index's key pattern.
    pub key: Document<'a>,
    /// The lower bound, inclusive.
    pub min: Document<'a>,
    /// The upper bound, exclusive.
    pub max: Document<'a>,
}

impl MeasuredRange<'_> {
    fn is_empty(&self) -> bool {
        let order = self.key.iter().zip(self.min.iter().zip(self.max)).map(|(field, (min, max))| {
            let order = compare(min.value(), max.value());
            let descends = field.value().as_number().is_some_and(|direction| direction.to_f64() < 0.0);
            if descends { order.reverse() } else { order }
        });
        order.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal).is_ge()
    }
}

impl Database {
    /// Returns the size in bytes and the number of the documents in a range.
    ///
    /// Errors: bounds that fit no index, interruption of the operation.
    pub fn measure_range(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        range: &MeasuredRange<'_>,
        context: &Arc<Context>,
    ) -> Result<(i64, i64)> {
        if range.is_empty() {
            return Ok((0, 0));
        }
        let read = Read {
            hint: Some(Hint::Key(range.key.to_owned())),
            min: Some(range.min.to_owned()),
            max: Some(range.max.to_owned()),
            ..Read::new(Arc::new(Matcher::parse(Document::EMPTY, context)?))
        };
        let (mut size, mut count) = (0, 0);
        self.each(operation, namespace, read, context, &mut |document| {
            size += document.bytes().len() as i64;
            count += 1;
            Ok(())
        })?;
        Ok((size, count))
    }
}
