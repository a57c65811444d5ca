//! A change stream: the selection of events, the resume point, and the end.

use super::entry::{Action, Entry, EntryPosition, Operation};
use super::event::{Event, EventContext, EventSource, PendingEvent, invalidation};
use super::spec::{Scope, Spec};
use super::token::ResumeToken;
use base::namespace::is_internal_database;
use base::{Result, bail, err};
use std::collections::VecDeque;

/// The events that streams show without `showExpandedEvents`.
const CLASSIC: &[&str] =
    &["insert", "update", "replace", "delete", "drop", "rename", "dropDatabase", "invalidate"];

/// A change stream, which takes the log's entries in order.
#[derive(Clone, Debug)]
pub struct ChangeStream {
    spec: Spec,
    scope: Scope,
    resume: Resume,
    /// Whether events that are too large are split into fragments.
    splits: bool,
    /// The resume token after all entries so far.
    reached: ResumeToken,
    invalidated: bool,
}

/// Progress of a stream towards its resume point.
#[derive(Clone, Debug)]
enum Resume {
    /// Events up to this token are skipped.
    Before {
        token: ResumeToken,
        /// The token must occur in the log.
        is_event: bool,
        found: bool,
    },
    /// The resume point has been passed.
    Passed,
}

impl ChangeStream {
    /// Builds a stream from a checked specification and a scope. `now` is the current cluster time. Without a starting
    /// point the stream begins after it. `splits` means that the pipeline splits large events.
    ///
    /// Errors: errors of unchecked resume tokens.
    pub fn new(spec: Spec, scope: Scope, now: u64, splits: bool) -> Result<ChangeStream> {
        let (token, is_event) = match (spec.token(), spec.start_at) {
            (Some(token), _) => (token.clone(), token.parts()?.is_event),
            (None, Some(time)) => (ResumeToken::before(time), false),
            (None, None) => (ResumeToken::before(now + 1), false),
        };
        let resume = Resume::Before { token: token.clone(), is_event, found: false };
        Ok(ChangeStream { spec, scope, resume, splits, reached: token, invalidated: false })
    }

    /// Returns the cluster time of the first entry to read. The stream cannot be opened if the log no longer has all
    /// entries from there: see [`history_lost`].
    pub fn start(&self) -> u64 {
        match &self.resume {
            Resume::Before { token, .. } => token.parts().map_or(0, |parts| parts.time),
            Resume::Passed => 0,
        }
    }

    /// Whether the stream has sent an invalidation, which ends it.
    pub fn is_invalidated(&self) -> bool {
        self.invalidated
    }

    /// The resume point after all events so far: the `postBatchResumeToken`.
    pub fn reached(&self) -> &ResumeToken {
        &self.reached
    }

    /// Records that all entries up to this cluster time have been read.
    pub fn pass(&mut self, time: u64) {
        let mark = ResumeToken::before(time);
        if !self.invalidated && mark > self.reached {
            self.reached = mark;
        }
    }

    /// Builds the events of the next entry or piece of an entry from operation `from` on, up to about this number of
    /// bytes. Returns the position of the next operation; `None` at the end of the entry.
    ///
    /// Errors: ChangeStreamFatalError if the event to resume after is not in the stream; NoMatchingDocument for a
    /// missing required image; errors of the lookup.
    pub fn take(
        &mut self,
        entry: &Entry<'_>,
        (from, bytes_max): (usize, usize),
        context: &EventContext<'_>,
        out: &mut VecDeque<Event>,
    ) -> Result<Option<EntryPosition>> {
        let (mut tick, mut index, mut bytes) = (0, 0, 0);
        for (number, operation) in entry.operations.iter().enumerate() {
            if bytes >= bytes_max {
                return Ok(Some(EntryPosition { operation: number, value: operation.value }));
            }
            if operation.begins && !entry.transaction {
                index = 0;
            }
            tick += u32::from(operation.begins);
            let time = if entry.transaction { entry.time } else { entry.tick(tick.saturating_sub(1)) };
            let source = EventSource { entry, operation, time, index };
            index += 1;
            if number >= from && !self.invalidated {
                let before = out.len();
                self.take_operation(source, context, out)?;
                bytes += out.iter().skip(before).map(|event| event.document.bytes().len()).sum::<usize>();
            }
        }
        if let Some(value) = entry.rest {
            return Ok(Some(EntryPosition { operation: entry.operations.len(), value }));
        }
        self.pass(entry.time);
        Ok(None)
    }

    /// Builds the event of one operation, and the invalidation if the operation removes the stream's namespace.
    fn take_operation(
        &mut self,
        source: EventSource<'_>,
        context: &EventContext<'_>,
        out: &mut VecDeque<Event>,
    ) -> Result<()> {
        let event = match self.shows(source.operation) {
            Visibility::No => None,
            Visibility::Yes => PendingEvent::of(source),
            Visibility::AsView => PendingEvent::of_view(source),
        };
        let Some(event) = event else { return Ok(()) };
        let (kind, token) = (event.kind, event.token.clone());
        let invalidates = match self.scope {
            Scope::Collection(_) => matches!(kind, "drop" | "rename" | "dropDatabase"),
            Scope::Database(_) => kind == "dropDatabase",
            Scope::Deployment => false,
        };
        if self.passes_resume_point(&token)? && (self.spec.expanded || CLASSIC.contains(&kind)) {
            out.push_back(event.event(&self.spec, context)?);
            self.reached = token.clone();
        }
        if invalidates {
            let event = invalidation(&token, source);
            if self.passes_resume_point(&event.token)? {
                self.reached = event.token.clone();
                self.invalidated = true;
                out.push_back(event);
            }
        }
        Ok(())
    }

    /// Whether an event is after the resume point.
    ///
    /// Errors: ChangeStreamFatalError if the resume point was an event that did not occur.
    fn passes_resume_point(&mut self, event: &ResumeToken) -> Result<bool> {
        let Resume::Before { token, is_event, found } = &mut self.resume else { return Ok(true) };
        if event == token {
            *found = true;
            return Ok(false);
        }
        if self.splits && token.is_fragment_of(event) {
            // The stage that splits events skips the fragments up to the token.
            *found = true;
            return Ok(true);
        }
        if event < token {
            return Ok(false);
        }
        if *is_event && !*found {
            bail!(
                ChangeStreamFatalError,
                "cannot resume stream; the resume token was not found. {{_data: \"{}\"}}",
                event.hex()
            );
        }
        self.resume = Resume::Passed;
        Ok(true)
    }

    /// Whether and how an operation is shown. Notes have no events. Changes of `system.views` appear as events of views
    /// with `showExpandedEvents`.
    fn shows(&self, operation: &Operation<'_>) -> Visibility {
        let Some((database, collection)) = operation.namespace.split_once('.') else { return Visibility::No };
        let watched = match &self.scope {
            Scope::Collection(namespace) => namespace.database() == database,
            Scope::Database(watched) => watched == database,
            Scope::Deployment => !is_internal_database(database),
        };
        let of_collection = matches!(self.scope, Scope::Collection(_));
        let shows_views = self.spec.expanded && !of_collection;
        let shown = match operation.action {
            Action::Command { object, .. } => {
                let Some(first) = object.first() else { return Visibility::No };
                let name = first.value().as_str().unwrap_or("");
                match first.name() {
                    // The new name may be in another database.
                    "renameCollection" => {
                        let to = object.get("to").and_then(|to| to.as_str()).unwrap_or("");
                        self.shows_namespace(name) || self.shows_namespace(to)
                    }
                    "dropDatabase" => watched && !of_collection,
                    // Views have no UUID.
                    _ if operation.uuid.is_none() && !shows_views => false,
                    _ => watched && self.shows_collection(name),
                }
            }
            Action::Noop(_) => false,
            _ if watched && collection == "system.views" && shows_views => return Visibility::AsView,
            _ => watched && self.shows_collection(collection),
        };
        if shown { Visibility::Yes } else { Visibility::No }
    }

    fn shows_namespace(&self, namespace: &str) -> bool {
        let Some((database, collection)) = namespace.split_once('.') else { return false };
        match &self.scope {
            Scope::Collection(watched) => watched.as_str() == namespace,
            Scope::Database(watched) => watched == database && self.shows_collection(collection),
            Scope::Deployment => !is_internal_database(database) && self.shows_collection(collection),
        }
    }

    /// Whether events of a collection in a watched database are shown.
    fn shows_collection(&self, collection: &str) -> bool {
        if let Scope::Collection(watched) = &self.scope {
            return watched.collection() == collection;
        }
        match collection.strip_prefix("system.") {
            None => !collection.starts_with('$'),
            Some(name) if self.spec.show_system => {
                matches!(name, "js" | "views")
                    || name.starts_with("resharding.")
                    || name.starts_with("buckets.")
            }
            Some(_) => false,
        }
    }
}

/// Whether a stream shows an operation.
enum Visibility {
    No,
    Yes,
    /// The event of a view, which a document of `system.views` defines.
    AsView,
}

/// Returns the error for a stream that begins before the log.
pub fn history_lost() -> base::Error {
    err!(
        ChangeStreamHistoryLost,
        "Resume of change stream was not possible, as the resume point may no longer be in the oplog."
    )
}
