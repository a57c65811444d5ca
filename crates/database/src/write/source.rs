//! The records of an update or delete of many documents, with the progress of the statement.
//!
//! A statement that must wait returns its [`Source`] to its caller as [`WriteProgress`]. It continues there with the
//! next record, on its first view.

use super::insert::{BYTES_MAX, OPERATIONS_MAX};
use super::update::UpdateOutcome;
use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::database::Database;
use crate::exec::RecordStream;
use crate::operation::Operation;
use crate::plan::Read;
use crate::scope::Scope;
use base::{Error, ErrorCode, Result};
use query::{Interrupt, Row};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

/// Progress of a suspended statement. The caller passes it again with the same statement and scope.
#[derive(Default)]
pub struct WriteProgress(Option<Box<Source>>);

impl WriteProgress {
    /// Returns true if no statement is suspended.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn take(&mut self) -> Option<Box<Source>> {
        self.0.take()
    }

    /// Keeps the source if `error` suspends the statement. Returns the error.
    pub(super) fn keep(&mut self, source: Box<Source>, error: Error) -> Error {
        if error.code() == ErrorCode::LockBusy {
            self.0 = Some(source);
        }
        error
    }
}

/// Records that a plan found, and the changes so far.
pub(super) struct Source {
    pub(super) collection: Arc<Collection>,
    records: Box<dyn RecordStream>,
    /// Records that were read and are not changed yet.
    group: VecDeque<Row>,
    /// True if more records may follow, or the error after the group.
    more: Result<bool>,
    pub(super) outcome: UpdateOutcome,
}

impl Source {
    /// Opens the plan of a statement; `None` if the collection does not exist.
    pub(super) fn open(database: &Database, scope: &Scope, read: Read) -> Result<Option<Box<Source>>> {
        let Scope { operation, namespace, .. } = scope;
        let view = database.view_for(operation);
        let Some(collection) = view.catalog.get(namespace).cloned() else {
            return database.confirmed(&view, Ok(None));
        };
        Source::over(database, scope, &view, collection, read).map(Some)
    }

    /// Opens the plan of a statement on a collection of a view.
    pub(super) fn over(
        database: &Database,
        scope: &Scope,
        view: &View,
        collection: Arc<Collection>,
        read: Read,
    ) -> Result<Box<Source>> {
        let records = database.read(&scope.operation, view, &collection, read, &scope.context);
        let records = database.confirmed(view, records)?;
        let (group, more, outcome) = (VecDeque::new(), Ok(true), UpdateOutcome::default());
        Ok(Box::new(Source { collection, records, group, more, outcome }))
    }

    /// Changes all records. `group` changes several records in one commit, or returns `None` if one of them has
    /// changed. `one` changes one record.
    ///
    /// Errors: errors of the plan and of the changes; LockBusy for a statement that its caller suspends.
    pub(super) fn change_all(
        &mut self,
        operation: &Operation,
        in_groups: bool,
        group: &dyn Fn(&[Row]) -> Result<Option<UpdateOutcome>>,
        one: &dyn Fn(&Row) -> Result<UpdateOutcome>,
    ) -> Result<()> {
        operation.run(|| {
            loop {
                while let Some(record) = self.group.front() {
                    operation.check()?;
                    let changed = one(record)?;
                    self.outcome.join(changed);
                    self.group.pop_front();
                }
                if !mem::replace(&mut self.more, Ok(false))? {
                    return Ok(());
                }
                self.more = self.read_group(in_groups);
                operation.check()?;
                if self.group.len() > 1
                    && let Some(changed) = group(self.group.make_contiguous())?
                {
                    self.outcome.join(changed);
                    self.group.clear();
                }
            }
        })
    }

    /// Reads the records that one commit changes. Returns true if more records may follow.
    fn read_group(&mut self, in_groups: bool) -> Result<bool> {
        let indexes = self.collection.data.as_ref().map_or(0, |data| data.indexes.len());
        let count_max = if in_groups { (OPERATIONS_MAX / (1 + indexes)).max(1) } else { 1 };
        let mut bytes = 0;
        while self.group.len() < count_max && bytes <= BYTES_MAX {
            let Some(record) = self.records.next()? else { return Ok(false) };
            bytes += record.document.view().bytes().len();
            self.group.push_back(record);
        }
        Ok(true)
    }
}
