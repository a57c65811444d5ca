//! Hashes of documents for dbHash and filemd5.

use crate::database::Database;
use crate::exec::RecordStream;
use crate::operation::Operation;
use crate::plan::{Hint, Read};
use base::bson::{Builder, Document, Value};
use base::hash::Md5Sum;
use base::{Namespace, Result, bail};
use query::matcher::Matcher;
use query::{Context, SortPattern};
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
