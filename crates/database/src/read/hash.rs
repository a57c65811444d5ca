//! Hashes of documents, as dbHash and filemd5 tell them.

use crate::database::Database;
use crate::exec::RecordStream;
use crate::operation::Operation;
use crate::plan::{Hint, Read};
use base::bson::{Builder, Document, Value};
use base::hash::Md5Sum;
use base::{Namespace, Result, err};
use query::matcher::Matcher;
use query::{Context, SortPattern};
use std::sync::Arc;

impl Database {
    /// The MD5 sum of a collection's documents in the order of their `_id`s, in hexadecimal digits.
    ///
    /// Errors: what interrupts the operation.
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

    /// How many chunks a file of GridFS has, and the MD5 sum of its data in hexadecimal digits.
    ///
    /// Errors: 10040 where a chunk is missing, 50849 for one without data, what interrupts the operation.
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
                return Err(err!(10040, "chunks out of order"));
            }
            let Some(Value::Binary { bytes, .. }) = chunk.get("data") else {
                return Err(err!(50849, "The element that calls binDataClean() must be type of BinData"));
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
