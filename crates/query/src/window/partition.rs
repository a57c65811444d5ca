//! The documents of a partition, in memory or in a temporary file, and their sort pattern.

use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::spill::{Run, RunWriter, SpillFile, SpillFolder};
use crate::{Arena, Context, Expression, Row, RowView, SortPattern};
use base::bson::{DocumentCow, Path, Value, ValueBuf};
use base::{Result, bail, err};
use std::cell::{Cell, RefCell};

/// The `sortBy` of a stage.
pub(crate) struct SortBy {
    pub(crate) pattern: SortPattern,
}

/// A sorted partition.
pub(crate) struct Partition<'p> {
    pub(crate) documents: &'p PartitionBuffer,
    pub(crate) sort_by: Option<&'p SortBy>,
    pub(crate) context: &'p Context,
    /// Bytes of the values that functions have copied.
    pub(crate) memory_used: Cell<usize>,
}

/// Collects a function's values for the documents of a partition, in order.
pub(crate) struct Results<'p> {
    values: Vec<ValueBuf>,
    bytes: usize,
    context: &'p Context,
}

impl<'p> Results<'p> {
    /// Starts an empty list for about `count` values.
    pub(crate) fn new(count: usize, context: &'p Context) -> Results<'p> {
        Results { values: Vec::with_capacity(count), bytes: 0, context }
    }

    /// Adds the value of the next document.
    ///
    /// Errors: 5414201 beyond the memory limit; interruption.
    pub(crate) fn push(&mut self, value: ValueBuf) -> Result<()> {
        let bytes = value.bytes().len();
        self.bytes += size_of::<ValueBuf>() + bytes;
        self.context.steps(bytes / 1024)?;
        check_memory(self.bytes, self.context.limits.window)?;
        self.values.push(value);
        Ok(())
    }

    /// Repeats the previous document's value.
    ///
    /// Errors: as [`push`](Self::push).
    pub(crate) fn repeat(&mut self) -> Result<bool> {
        match self.values.last().cloned() {
            Some(last) => self.push(last).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns all values.
    pub(crate) fn finish(self) -> Vec<ValueBuf> {
        self.values
    }
}

/// Checks the memory limit. Errors: 5414201 beyond it.
fn check_memory(used: usize, limit: usize) -> Result<()> {
    if used <= limit {
        return Ok(());
    }
    Err(err!(
        5414201,
        "Exceeded memory limit in DocumentSourceSetWindowFields, used {used} bytes but max allowed is {limit} bytes"
    ))
}

impl SortBy {
    /// Returns the path of a single ascending sort field.
    pub(crate) fn single_ascending(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, true)] if !self.pattern.is_by_metadata() => Some(path),
            _ => None,
        }
    }

    /// Returns the path of a single sort field.
    pub(crate) fn single(&self) -> Option<&Path> {
        match self.pattern.fields() {
            [(path, _)] if !self.pattern.is_by_metadata() => Some(path),
            _ => None,
        }
    }
}

impl Partition<'_> {
    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    /// Visits every row in order.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        let mut interrupts = InterruptCheck::new(self.context);
        self.documents.each(&mut |row| {
            interrupts.check()?;
            visit(row)
        })
    }

    /// Adds a copied value to the memory in use.
    ///
    /// Errors: 5414201 beyond the memory limit.
    pub(crate) fn track_value(&self, value: Option<&ValueBuf>) -> Result<()> {
        let bytes = size_of::<ValueBuf>() + value.map_or(0, |value| value.bytes().len());
        self.memory_used.set(self.memory_used.get() + bytes);
        check_memory(self.memory_used.get(), self.context.limits.window)
    }

    /// Returns the values of an expression; `None` if missing.
    pub(crate) fn values(&self, expression: &Expression) -> Result<Vec<Option<ValueBuf>>> {
        let mut arena = Arena::new();
        let mut values = Vec::with_capacity(self.len());
        self.each(&mut |row| {
            arena.reset();
            let value = expression.evaluate(row, self.context, &arena)?;
            let value = value.map(|value| value.to_owned());
            self.track_value(value.as_ref())?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns the values of the sort path; missing values are null.
    pub(crate) fn sort_values(&self, path: &Path) -> Result<Vec<ValueBuf>> {
        let mut values = Vec::with_capacity(self.len());
        self.each(&mut |row| {
            let value = path.get(row.document).unwrap_or(Value::Null).to_owned();
            self.track_value(Some(&value))?;
            values.push(value);
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns, for each document, whether it sorts equal to the previous one.
    pub(crate) fn ties(&self) -> Result<Vec<bool>> {
        let Some(sort_by) = self.sort_by else { return Ok(vec![false; self.len()]) };
        let (mut before, mut key) = (None, Vec::new());
        let mut ties = Vec::with_capacity(self.len());
        self.each(&mut |row| {
            key.clear();
            sort_by.pattern.key_in(row, self.context, &mut key)?;
            ties.push(before.as_deref() == Some(key.as_slice()));
            before = Some(key.clone());
            Ok(())
        })?;
        Ok(ties)
    }
}

/// The documents of one partition, in order. Can be read repeatedly.
#[derive(Default)]
pub(crate) struct PartitionBuffer {
    documents: Vec<DocumentCow>,
    bytes: usize,
    count: usize,
    file: SpillFile,
    writer: Option<RunWriter>,
    run: Option<RefCell<Run>>,
    codec: RowCodec,
}

/// Iterator over the documents of a buffer.
#[derive(Default)]
pub(crate) struct BufferedRows {
    documents: std::vec::IntoIter<DocumentCow>,
    run: Option<RefCell<Run>>,
    codec: RowCodec,
}

impl PartitionBuffer {
    /// Starts an empty list, for documents in the form of this codec and a temporary file in a folder.
    pub(crate) fn new(codec: RowCodec, folder: &SpillFolder) -> PartitionBuffer {
        PartitionBuffer { codec, file: SpillFile::within(folder), ..PartitionBuffer::default() }
    }

    /// The number of documents.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes held in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a document in the codec's form.
    ///
    /// Errors: 5643011 beyond the memory limit if spilling is not allowed; errors of temporary files.
    pub(crate) fn add(&mut self, document: DocumentCow, memory: usize, allow_disk_use: bool) -> Result<()> {
        self.count += 1;
        if let Some(writer) = &mut self.writer {
            return writer.write(&[], 0, document.view().bytes());
        }
        self.bytes += document.view().bytes().len() + size_of::<DocumentCow>();
        self.documents.push(document);
        if self.bytes <= memory {
            return Ok(());
        }
        if !allow_disk_use {
            bail!(
                5643011,
                "Exceeded max memory. Current memory: {} bytes. Max allowed memory: {memory} bytes. Set \
                 'allowDiskUse: true' to spill to disk",
                self.bytes
            );
        }
        self.spill()
    }

    /// Writes the documents in memory to the file.
    pub(crate) fn spill(&mut self) -> Result<()> {
        let mut writer = self.file.begin()?;
        for document in self.documents.drain(..) {
            writer.write(&[], 0, document.view().bytes())?;
        }
        self.bytes = 0;
        self.writer = Some(writer);
        Ok(())
    }

    /// Ends adding.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.run = Some(RefCell::new(self.file.end(writer)?));
        }
        Ok(())
    }

    /// Visits every document in order.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(RowView<'_>) -> Result<()>) -> Result<()> {
        let Some(run) = &self.run else {
            return self
                .documents
                .iter()
                .try_for_each(|document| self.codec.with_row(document.view(), &mut *visit));
        };
        let mut run = run.borrow_mut();
        run.restart();
        while let Some(record) = run.next()? {
            self.codec.with_row(record.document.view(), &mut *visit)?;
        }
        Ok(())
    }

    /// Returns the rows one by one.
    pub(crate) fn into_rows(self) -> BufferedRows {
        if let Some(run) = &self.run {
            run.borrow_mut().restart();
        }
        BufferedRows { documents: self.documents.into_iter(), run: self.run, codec: self.codec }
    }
}

impl BufferedRows {
    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Row>> {
        let next = match &self.run {
            None => self.documents.next(),
            Some(run) => run.borrow_mut().next()?.map(|record| record.document),
        };
        Ok(next.map(|document| self.codec.decode(document)))
    }
}
