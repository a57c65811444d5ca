//! The documents of a partition, either in memory or in a temporary file.

use crate::row::RowCodec;
use crate::spill::{Run, RunWriter, SpillFile, SpillFolder};
use crate::{Row, RowView};
use base::bson::DocumentCow;
use base::{Result, bail};
use std::cell::RefCell;

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
