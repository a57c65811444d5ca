//! Sums over the documents of a collection: hashes for dbHash and filemd5, and the size of a range for dataSize.

use crate::database::Database;
use crate::exec::RecordStream;
use crate::operation::Operation;
use crate::plan::{Hint, Read};
use base::bson::{Builder, Document, Value, compare};
use base::hash::Md5Sum;
use base::{Namespace, Result, bail};
use query::matcher::Matcher;
use query::{Context, SortPattern};
use std::cmp::Ordering;
use std::sync::Arc;

impl Database {
    /// Returns the MD5 of a collection's documents in `_id` order, in hexadecimal digits.
    ///
    /// Errors: interruption of the operation.
    pub fn hash_documents(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        context: &Arc<Context>,
    ) -> Result<String> {
        let all = Read::new(Arc::new(Matcher::parse(Document::EMPTY, context)?));
        let has_id = self.collection(namespace).and_then(|found| found.data.as_ref()?.id_index().cloned());
        let hint = has_id.map(|index| Hint::Name(index.spec.name.clone()));
        let mut sum = Md5Sum::default();
        self.each(operation, namespace, Read { hint, ..all }, context, &mut |document| {
            sum.update(document.bytes());
            Ok(())
        })?;
        Ok(sum.hex())
    }

    /// Returns the number of chunks of a GridFS file and the MD5 of its data in hexadecimal digits.
    ///
    /// Errors: 10040 for a missing chunk, 50849 for a chunk without data, interruption of the
    /// operation.
    pub fn hash_file(
        &self,
        operation: &Arc<Operation>,
        chunks: &Namespace,
        file: Value<'_>,
        context: &Arc<Context>,
    ) -> Result<(i32, String)> {
        let mut filter = Builder::new();
        filter.append(c"files_id", file);
        let mut order = Builder::new();
        order.append(c"files_id", 1i32).append(c"n", 1i32);
        let read = Read {
            sort: Some(Arc::new(SortPattern::parse(order.finish().view())?)),
            ..Read::new(Arc::new(Matcher::parse(filter.finish().view(), context)?))
        };
        let (mut sum, mut count) = (Md5Sum::default(), 0i32);
        self.each(operation, chunks, read, context, &mut |chunk| {
            let number = chunk.get("n").and_then(|number| number.as_i64());
            if number != Some(i64::from(count)) {
                bail!(10040, "chunks out of order");
            }
            let Some(Value::Binary { bytes, .. }) = chunk.get("data") else {
                bail!(50849, "The element that calls binDataClean() must be type of BinData");
            };
            sum.update(bytes);
            count += 1;
            Ok(())
        })?;
        Ok((count, sum.hex()))
    }

    pub(super) fn each(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        read: Read,
        context: &Arc<Context>,
        visit: &mut dyn FnMut(Document<'_>) -> Result<()>,
    ) -> Result<()> {
        let view = self.confirmed_view();
        let Some(collection) = view.catalog.get(namespace).cloned() else { return Ok(()) };
        let mut records: Box<dyn RecordStream> = self.read(operation, &view, &collection, read, context)?;
        operation.run(|| {
            while let Some(record) = records.next()? {
                visit(record.document.view())?;
            }
            Ok(())
        })
    }
}

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
