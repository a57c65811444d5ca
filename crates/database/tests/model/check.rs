//! Checks that results and stored data conform to snapshot isolation.
//!
//! The recorded batches show the order of all commits, so the check needs no search. Each
//! transaction must have read the state of its time with its own changes on top. No other commit
//! between that time and its own commit may have changed one of its documents. A single statement
//! must have had its effect on the state just before its commit. A single read must show one state
//! from its running time. Write skew is allowed: other commits may change documents that a
//! transaction only reads.

use super::documents::{Doc, Docs, Field};
use super::history::{Event, Failure, Kind, NAMESPACES, Reported, Statement};
use super::replay::{Diff, Replay};
use super::statements::{Ddl, Effects, Stmt, collides};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const INTERNAL_ERROR: i32 = 1;
const NAMESPACE_NOT_FOUND: i32 = 26;
const INDEX_NOT_FOUND: i32 = 27;
const NAMESPACE_EXISTS: i32 = 48;
const ILLEGAL_OPERATION: i32 = 20;
const INVALID_OPTIONS: i32 = 72;
const INDEX_OPTIONS_CONFLICT: i32 = 85;
const INDEX_KEY_SPECS_CONFLICT: i32 = 86;
pub(crate) const WRITE_CONFLICT: i32 = 112;
const QUERY_PLAN_KILLED: i32 = 175;
const SNAPSHOT_UNAVAILABLE: i32 = 246;
const INDEX_BUILD_ABORTED: i32 = 276;
const CANNOT_CONVERT: i32 = 359;
const DUPLICATE_KEY: i32 = 11000;

/// Error of a statement that would wait, in a history without waits.
const WOULD_WAIT: &str = "ran no work";
/// Error of all operations after the file system has stopped.
const STOPPED: &str = "the machine has stopped";

type Check = Result<(), String>;

/// A transaction, as derived from the events.
struct Transaction<'a> {
    number: usize,
    begin: &'a Event,
    statements: Vec<(&'a Event, &'a Statement)>,
    /// Its end, and the time of its commit.
    end: u64,
    committed: Option<u64>,
    /// Number of commits that it sees.
    sees: usize,
    /// The places that it has touched, and the step of the first touch.
    touched: Vec<(u64, Touched)>,
    /// True if its changes were committed.
    has_stored: bool,
    /// Steps of failed statements with an unknown effect.
    unclear: Vec<u64>,
}

/// A document, or a unique key.
type Touched = (usize, Option<Field>, i64);

pub(crate) struct Checker<'a> {
    replay: &'a Replay,
    /// Number of commits before the history.
    before: usize,
    events: &'a [Event],
    transactions: Vec<Transaction<'a>>,
    /// The event that returned a commit with this time.
    reported: HashMap<u64, &'a Event>,
}

/// Checks a history that began after this number of commits. Returns violations as errors.
pub(crate) fn check(replay: &Replay, before: usize, events: &[Event]) -> Check {
    if let Some(violation) = replay.broken.first() {
        return Err(violation.clone());
    }
    let mut checker = Checker { replay, before, events, transactions: Vec::new(), reported: HashMap::new() };
    checker.collect()?;
    for at in 0..checker.transactions.len() {
        let violation = |violation| format!("transaction {}: {violation}", checker.transactions[at].number);
        let mut unclear = Vec::new();
        let (touched, net) = checker.within(&checker.transactions[at], &mut unclear).map_err(violation)?;
        let has_stored = checker.committed(&checker.transactions[at], &net).map_err(violation)?;
        checker.transactions[at].has_stored = has_stored;
        checker.transactions[at].touched = touched;
        checker.transactions[at].unclear = unclear;
    }
    checker.conflicts()?;
    for event in events {
        checker.single(event).map_err(|violation| format!("{event:?}: {violation}"))?;
    }
    checker.attribute()
}

impl<'a> Checker<'a> {
    fn collect(&mut self) -> Check {
        let mut numbers = HashMap::new();
        for event in self.events {
            match &event.kind {
                Kind::Begin { transaction, time, at_earlier } => {
                    let sees = self.replay.up_to(*time);
                    if sees > event.most || sees < event.least && !at_earlier {
                        return Err(format!(
                            "transaction {transaction} began between commits {} and {}, and sees {sees}",
                            event.least, event.most
                        ));
                    }
                    numbers.insert(*transaction, self.transactions.len());
                    self.transactions.push(Transaction {
                        number: *transaction,
                        begin: event,
                        statements: Vec::new(),
                        end: u64::MAX,
                        committed: None,
                        sees,
                        touched: Vec::new(),
                        unclear: Vec::new(),
                        has_stored: false,
                    });
                }
                Kind::Statement(statement) => {
                    let found = statement.transaction.and_then(|number| numbers.get(&number));
                    if let Some(transaction) = found.and_then(|at| self.transactions.get_mut(*at)) {
                        transaction.statements.push((event, statement));
                    } else if let Ok(Reported { time: Some(time), .. }) = &statement.outcome {
                        self.record_time(*time, event)?;
                    }
                }
                Kind::Commit { transaction, outcome } => {
                    let found = numbers.get(transaction).and_then(|at| self.transactions.get_mut(*at));
                    let Some(found) = found else { return Err("a commit out of nowhere".to_string()) };
                    found.end = event.end;
                    match outcome {
                        Ok(time) => found.committed = Some(*time),
                        Err(failure) => self.commit_failure(failure)?,
                    }
                }
                Kind::Abort { transaction } => {
                    if let Some(found) =
                        numbers.get(transaction).and_then(|at| self.transactions.get_mut(*at))
                    {
                        found.end = event.end;
                    }
                }
                Kind::Ddl { outcome: Ok(Some(time)), .. } => self.record_time(*time, event)?,
                Kind::Ddl { .. } => {}
            }
        }
        Ok(())
    }

    fn record_time(&mut self, time: u64, event: &'a Event) -> Check {
        match self.reported.insert(time, event) {
            Some(other) => Err(format!("{event:?} and {other:?} report one commit")),
            None => Ok(()),
        }
    }

    fn commit_failure(&self, failure: &Failure) -> Check {
        match failure.code {
            INTERNAL_ERROR if failure.message.contains(WOULD_WAIT) => Ok(()),
            INTERNAL_ERROR if failure.message.contains(STOPPED) => Ok(()),
            _ => Err(format!("the commit failed: {}", failure.message)),
        }
    }

    /// Checks the results of a transaction's statements. Returns the places that it touched, and
    /// its changes.
    fn within(
        &self,
        own: &Transaction<'_>,
        unclear: &mut Vec<u64>,
    ) -> Result<(Vec<(u64, Touched)>, BTreeMap<usize, Docs>), String> {
        let mut views: BTreeMap<usize, Docs> = BTreeMap::new();
        let mut touched = Vec::new();
        for (event, statement) in &own.statements {
            let name = NAMESPACES[statement.namespace];
            let view = views.entry(statement.namespace);
            let view = view.or_insert_with(|| Docs::clone(&self.replay.docs(own.sees, name)));
            let before = view.clone();
            let unique = self.replay.unique(own.sees, name);
            let expected = statement.stmt.run(view, statement.number, &unique);
            let mut touches = touches(statement.namespace, &before, view);
            match (&expected, &statement.outcome) {
                (Ok(expected), Ok(reported)) => same(expected, reported, &statement.stmt)
                    .map_err(|violation| format!("{statement:?}: {violation}; it sees {before:?}"))?,
                (Err(_), Ok(reported)) => {
                    return Err(format!("{statement:?} returned {reported:?} in spite of {before:?}"));
                }
                // Write intents were acquired before the duplicate was detected.
                (Err(_), Err(failure)) if failure.code == DUPLICATE_KEY => {
                    let aims = statement.stmt.aims(&before, statement.number);
                    touches.extend(aims.iter().flat_map(|(before, after)| {
                        of_change(statement.namespace, after.id, before.as_ref(), Some(after))
                    }));
                }
                (expected, Err(failure)) => {
                    let touches = if expected.is_ok() { Some(&touches) } else { None };
                    unclear.extend(touches.is_none().then_some(event.start));
                    self.justified(own, event, statement, failure, touches)?;
                }
            }
            touched.extend(touches.into_iter().map(|touched| (event.start, touched)));
        }
        Ok((touched, views))
    }

    /// Checks that a statement of a transaction may fail with this error. Conflicts are checked
    /// once the places touched by all transactions are known.
    fn justified(
        &self,
        own: &Transaction<'_>,
        event: &Event,
        statement: &Statement,
        failure: &Failure,
        touches: Option<&Vec<Touched>>,
    ) -> Check {
        let name = NAMESPACES[statement.namespace];
        let mut since = self.replay.catalog[own.sees..event.most].iter();
        match failure.code {
            WRITE_CONFLICT if touches.is_some_and(Vec::is_empty) => {
                Err(format!("{statement:?} changes nothing, and conflicts"))
            }
            WRITE_CONFLICT => Ok(()),
            INTERNAL_ERROR if failure.message.contains(STOPPED) => Ok(()),
            SNAPSHOT_UNAVAILABLE if since.any(|names| names.contains(name)) => Ok(()),
            _ => Err(format!("{statement:?} must not fail like that")),
        }
    }

    /// Each conflict must have a cause: another open transaction, or a commit since the view.
    fn conflicts(&self) -> Check {
        for own in &self.transactions {
            for (event, statement) in &own.statements {
                let Err(failure) = &statement.outcome else { continue };
                if failure.code != WRITE_CONFLICT || own.unclear.contains(&event.start) {
                    continue;
                }
                let touches: BTreeSet<Touched> =
                    own.touched.iter().filter(|(start, _)| *start == event.start).map(|(_, t)| *t).collect();
                let name = NAMESPACES[statement.namespace];
                let created = self.replay.states[own.sees].get(name).is_none();
                let by_other =
                    self.transactions.iter().filter(|other| other.number != own.number).any(|other| {
                        // An ended transaction may have touched places that it left unchanged.
                        let overlaps = other.begin.start < event.end && other.end > own.begin.start;
                        let touched = other.touched.iter();
                        let mut touched = touched.filter(|(start, _)| *start < event.end);
                        overlaps
                            && touched.any(|(_, touched)| {
                                touches.contains(touched) || created && touched.0 == statement.namespace
                            })
                    });
                let mut since = own.sees..event.most;
                let by_commit = since.any(|number| {
                    let mut diffs = self.replay.diffs[number].iter().filter(|diff| diff.namespace == name);
                    self.replay.catalog[number].contains(name)
                        || diffs
                            .any(|diff| touched_by(statement.namespace, diff).any(|t| touches.contains(&t)))
                });
                // Entries of an index build have intents like other entries, and are loaded at the
                // same time.
                let by_build = self.events.iter().any(|other| {
                    let builds = matches!(
                        other.kind,
                        Kind::Ddl { namespace, ddl: Ddl::Ensure | Ddl::Build { .. } | Ddl::Convert, .. }
                            if namespace == statement.namespace
                    );
                    builds && other.start < event.end && other.end > own.begin.start
                });
                if !by_other && !by_commit && !by_build {
                    return Err(format!("transaction {}: nothing conflicts with {event:?}", own.number));
                }
            }
        }
        Ok(())
    }

    /// Checks that a transaction's changes were committed in one batch at its time, or not at all,
    /// and that no other commit has changed the same documents since its view.
    fn committed(&self, own: &Transaction<'_>, views: &BTreeMap<usize, Docs>) -> Result<bool, String> {
        let Some(time) = own.committed else { return Ok(false) };
        let mut net = Vec::new();
        for (namespace, view) in views {
            let name = NAMESPACES[*namespace];
            let base = self.replay.docs(own.sees, name);
            let ids: BTreeSet<i64> = base.keys().chain(view.keys()).copied().collect();
            let changes: Vec<_> = ids
                .into_iter()
                .map(|id| (id, base.get(&id).cloned(), view.get(&id).cloned()))
                .filter(|(_, before, after)| before != after)
                .collect();
            if !changes.is_empty() {
                net.push(Diff { namespace: name.to_string(), changes });
            }
        }
        let found = self.replay.at(time);
        let Some(number) = found else {
            return match net.is_empty() {
                true => Ok(false),
                false => Err(format!("nothing was stored of {net:?}")),
            };
        };
        if net.is_empty() {
            // Without changes, it returns the time of the latest commit.
            return Ok(false);
        }
        let stored = &self.replay.diffs[number];
        for expected in &net {
            let found = stored.iter().find(|diff| diff.namespace == expected.namespace);
            let Some(found) = found else { return Err(format!("of {net:?} it has stored only {stored:?}")) };
            if found.changes != expected.changes {
                return Err(format!("instead of {net:?} it has stored {stored:?}"));
            }
            let ids: BTreeSet<i64> = expected.changes.iter().map(|change| change.0).collect();
            // A transaction that began at an earlier time is only compared with the state at its
            // begin.
            for other in own.sees.max(own.begin.least)..number {
                let diffs = self.replay.diffs[other].iter();
                let mut diffs = diffs.filter(|diff| diff.namespace == expected.namespace);
                if let Some(lost) =
                    diffs.find(|diff| diff.changes.iter().any(|change| ids.contains(&change.0)))
                {
                    return Err(format!("it has overwritten commit {other}, {lost:?}, unseen: {net:?}"));
                }
            }
        }
        match stored.len() == net.len() {
            true => Ok(true),
            false => Err(format!("it has stored {stored:?}, more than {net:?}")),
        }
    }

    /// Checks results outside of transactions.
    fn single(&self, event: &Event) -> Check {
        match &event.kind {
            Kind::Statement(statement) if statement.transaction.is_none() => match &statement.outcome {
                Ok(reported) if statement.stmt.is_read() => self.read(event, statement, reported),
                Ok(reported) => self.write(event, statement, reported),
                Err(failure) => self.failed(event, statement, failure),
            },
            Kind::Ddl { namespace, ddl, outcome } => self.ddl(event, *namespace, ddl, outcome),
            _ => Ok(()),
        }
    }

    /// A read shows a state from its running time, or the state of its time.
    fn read(&self, event: &Event, statement: &Statement, reported: &Reported) -> Check {
        let name = NAMESPACES[statement.namespace];
        let states = match statement.at {
            Some(time) => {
                let sees = self.replay.up_to(time);
                if sees < event.least || sees > event.most {
                    return Err("its time is not among those of while it ran".to_string());
                }
                sees..=sees
            }
            None => event.least..=event.most,
        };
        let shows = |commits: usize| {
            let mut docs = Docs::clone(&self.replay.docs(commits, name));
            let effects = statement.stmt.run(&mut docs, statement.number, &BTreeSet::new());
            effects.is_ok_and(|effects| same(&effects, reported, &statement.stmt).is_ok())
        };
        match states.clone().any(shows) {
            true => Ok(()),
            // The collection may have been dropped under the cursor.
            false => Err(format!(
                "it shows none of the states {states:?}: {:?}",
                self.replay.docs(event.least, name)
            )),
        }
    }

    fn write(&self, event: &Event, statement: &Statement, reported: &Reported) -> Check {
        if statement.stmt.is_multi() {
            // Each document is a separate commit. They are counted when commits are attributed.
            return Ok(());
        }
        let name = NAMESPACES[statement.namespace];
        let Some(time) = reported.time else {
            let filter = statement.stmt.filter();
            let matches =
                |commits: usize| self.replay.docs(commits, name).values().any(|doc| filter.matches(doc));
            return match reported.n == 0 && (event.least..=event.most).any(|commits| !matches(commits)) {
                true => Ok(()),
                false => Err("it has found nothing, and there always was something".to_string()),
            };
        };
        let number = self.replay.at(time).ok_or("nothing was committed at its time")?;
        if number < event.least || number >= event.most {
            return Err(format!("it was commit {number}, which was not while it ran"));
        }
        let [Diff { namespace, changes }] = &*self.replay.diffs[number] else {
            return Err(format!("it has changed {:?}", self.replay.diffs[number]));
        };
        let [(_, before, after)] = &**changes else { return Err(format!("it has changed {changes:?}")) };
        if namespace != name {
            return Err(format!("it has changed {namespace}"));
        }
        let expected = match (&statement.stmt, before) {
            (Stmt::Insert(doc) | Stmt::Upsert(doc), None) if reported.inserted => Some(doc.clone()),
            (Stmt::Insert(_), _) | (_, None) => return Err(format!("it made of {before:?} {after:?}")),
            (stmt, Some(before)) if stmt.filter().matches(before) => stmt.transform(before, statement.number),
            (_, Some(before)) => return Err(format!("it doesn't match {before:?}")),
        };
        if *after != expected {
            return Err(format!("of {before:?} it made {after:?}, not {expected:?}"));
        }
        if let Stmt::FindAndModify { change, new, .. } = &statement.stmt {
            let shown = if *new && change.is_some() { after } else { before };
            if reported.docs.first() != shown.as_ref() {
                return Err(format!("it has changed {before:?} to {after:?}"));
            }
        }
        Ok(())
    }

    fn failed(&self, event: &Event, statement: &Statement, failure: &Failure) -> Check {
        let name = NAMESPACES[statement.namespace];
        match failure.code {
            DUPLICATE_KEY => {
                let there = |commits: usize| {
                    let docs = self.replay.docs(commits, name);
                    let unique = self.replay.unique(commits, name);
                    match &statement.stmt {
                        Stmt::Insert(doc) | Stmt::Upsert(doc) => collides(&docs, None, doc, &unique),
                        // Two of the documents may conflict.
                        Stmt::InsertMany(several) => several.iter().enumerate().any(|(at, doc)| {
                            let mut docs = Docs::clone(&docs);
                            docs.extend(several[..at].iter().map(|doc| (doc.id, doc.clone())));
                            collides(&docs, None, doc, &unique)
                        }),
                        stmt => docs.values().filter(|doc| stmt.filter().matches(doc)).any(|doc| {
                            let after = stmt.transform(doc, statement.number);
                            after.is_some_and(|after| collides(&docs, Some(doc), &after, &unique))
                        }),
                    }
                };
                match (event.least..=event.most).any(there) {
                    true => Ok(()),
                    false => {
                        Err(format!("no document has that key: {:?}", self.replay.docs(event.most, name)))
                    }
                }
            }
            QUERY_PLAN_KILLED => self.catalog_changed(event, name),
            INTERNAL_ERROR if failure.message.contains(WOULD_WAIT) => self.other_client_in_the_way(event),
            INTERNAL_ERROR if failure.message.contains(STOPPED) => Ok(()),
            _ => Err("it must not fail like that".to_string()),
        }
    }

    fn catalog_changed(&self, event: &Event, name: &str) -> Check {
        match self.replay.catalog[event.least..event.most].iter().any(|names| names.contains(name)) {
            true => Ok(()),
            false => Err("the catalog has not changed".to_string()),
        }
    }

    /// Checks that a statement had a reason to wait: an open transaction with changes, or another
    /// statement at the same time.
    fn other_client_in_the_way(&self, event: &Event) -> Check {
        let overlaps = |start: u64, end: u64| start < event.end && end > event.start;
        let mut transactions = self.transactions.iter();
        let open = transactions.any(|other| {
            overlaps(other.begin.start, other.end)
                && other.touched.iter().any(|(start, _)| *start < event.end)
        });
        let mut others = self.events.iter().filter(|other| other.start != event.start);
        match open || others.any(|other| other.start < event.start && other.end > event.end) {
            true => Ok(()),
            false => Err("there was nobody to wait for".to_string()),
        }
    }

    fn ddl(
        &self,
        event: &Event,
        namespace: usize,
        ddl: &Ddl,
        outcome: &Result<Option<u64>, Failure>,
    ) -> Check {
        let name = NAMESPACES[namespace];
        let failure = match outcome {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        let fields: &[Field] = match ddl {
            Ddl::Ensure => &[Field::U],
            Ddl::Build { .. } => &[Field::Q],
            _ => &[Field::P],
        };
        match (failure.code, ddl) {
            (DUPLICATE_KEY, Ddl::Ensure | Ddl::Build { unique: true } | Ddl::Convert)
            | (CANNOT_CONVERT, Ddl::Convert) => {
                let shared = |commits: usize| {
                    let docs = self.replay.docs(commits, name);
                    fields.iter().any(|field| {
                        let values: BTreeSet<i64> = docs.values().map(|doc| field.of(doc)).collect();
                        values.len() < docs.len()
                    })
                };
                // Changes of a transaction count even without a commit.
                let overlaps = |own: &&Transaction<'_>| own.begin.start < event.end && own.end > event.start;
                let within = self.transactions.iter().filter(overlaps).any(|own| {
                    let mut keys = own.touched.iter().map(|(_, touched)| touched);
                    keys.any(|(of, field, _)| {
                        *of == namespace && field.is_some_and(|field| fields.contains(&field))
                    })
                });
                // Changes that are about to be committed count too: they end the build first.
                let meanwhile =
                    self.events.iter().filter(|other| other.start < event.end && other.end > event.start);
                let most = meanwhile.clone().map(|other| other.most).max().unwrap_or(event.most);
                // The conflicting document may be gone at the time of the commit.
                let about = meanwhile.filter_map(|other| match &other.kind {
                    Kind::Statement(statement) if statement.namespace == namespace => Some(statement),
                    _ => None,
                });
                let mut about = about.flat_map(|statement| {
                    (event.least..=most).map(move |commits| (statement, self.replay.docs(commits, name)))
                });
                let aimed = about.any(|(statement, docs)| {
                    let aims = statement.stmt.aims(&docs, statement.number);
                    aims.iter().any(|(_, after)| {
                        let mut others = docs.values().filter(|other| other.id != after.id);
                        others.any(|other| fields.iter().any(|field| field.of(other) == field.of(after)))
                    })
                });
                match within || aimed || (event.least..=most).any(shared) {
                    true => Ok(()),
                    false => Err("no two documents share a key".to_string()),
                }
            }
            (INDEX_BUILD_ABORTED, _) => self.catalog_changed(event, name),
            (INDEX_OPTIONS_CONFLICT | INDEX_KEY_SPECS_CONFLICT, Ddl::Build { .. } | Ddl::Ensure) => Ok(()),
            (INDEX_NOT_FOUND | NAMESPACE_NOT_FOUND, Ddl::DropIndex | Ddl::Convert) => Ok(()),
            (INVALID_OPTIONS, Ddl::Convert) => Ok(()),
            (NAMESPACE_NOT_FOUND | NAMESPACE_EXISTS | ILLEGAL_OPERATION, Ddl::Rename { .. }) => Ok(()),
            (INTERNAL_ERROR, _) if failure.message.contains(WOULD_WAIT) => {
                self.other_client_in_the_way(event)
            }
            (INTERNAL_ERROR, _) if failure.message.contains(STOPPED) => Ok(()),
            _ => Err("it must not fail like that".to_string()),
        }
    }

    /// Every stored change has an owner with a matching result: a committed transaction, a
    /// statement, or an operation that empties collections.
    fn attribute(&self) -> Check {
        let mut statements = HashMap::new();
        for event in self.events {
            if let Kind::Statement(statement) = &event.kind {
                statements.insert(statement.number, (event, statement));
            }
        }
        let stored = self.transactions.iter().filter(|own| own.has_stored);
        let committed: BTreeSet<u64> = stored.filter_map(|own| own.committed).collect();
        let mut written: HashMap<i64, BTreeSet<i64>> = HashMap::new();
        let mut gone: Vec<(usize, String, Vec<Doc>)> = Vec::new();
        let mut multiple: HashMap<i64, u64> = HashMap::new();
        for (number, diffs) in self.replay.diffs.iter().enumerate().skip(self.before) {
            let time = self.replay.entries[number].time;
            if diffs.is_empty() || committed.contains(&time) {
                continue;
            }
            let clears = self.replay.entries[number].ops.iter().any(|op| matches!(op, storage::Op::Clear(_)));
            if clears {
                continue;
            }
            if self.inserted(&statements, number, diffs)? {
                continue;
            }
            let single = self.reported.get(&time).and_then(|event| match &event.kind {
                Kind::Statement(statement) => Some(statement),
                _ => None,
            });
            if single.is_some_and(|statement| !statement.stmt.is_multi()) {
                continue;
            }
            let [Diff { namespace, changes }] = &**diffs else {
                return Err(format!("nobody has made commit {number}: {diffs:?}"));
            };
            // A multiple delete commits several documents at once.
            if changes.iter().all(|(_, before, after)| before.is_some() && after.is_none()) {
                let docs = changes.iter().filter_map(|(_, before, _)| before.clone()).collect();
                gone.push((number, namespace.clone(), docs));
                continue;
            }
            // A multiple update of a remote store also commits several documents at once.
            for (id, before, after) in changes {
                let Some(after) = after else {
                    return Err(format!("nobody has made commit {number}: {diffs:?}"));
                };
                let Some(before) = before else { return Err(format!("nobody has inserted {after:?}")) };
                // It writes its number into each document, or toggles it.
                let owner = self.multiple_update(&statements, number, namespace, before, after);
                let Some(owner) = owner else {
                    return Err(format!("nobody has made of {before:?} {after:?} in commit {number}"));
                };
                if after.w == owner && !written.entry(owner).or_default().insert(*id) {
                    return Err(format!("statement {owner} has changed document {id} twice"));
                }
                *multiple.entry(owner).or_default() += 1;
            }
        }
        for (number, (event, statement)) in &statements {
            if let (Stmt::InsertMany(several), None, Ok(reported)) =
                (&statement.stmt, statement.transaction, &statement.outcome)
            {
                let stored = |number: usize| {
                    let diffs = self.replay.diffs[number].iter().flat_map(|diff| &diff.changes);
                    diffs
                        .filter(|(_, _, after)| after.as_ref().is_some_and(|doc| several.contains(doc)))
                        .count()
                };
                let stored: usize = (event.least..event.most).map(stored).sum();
                if stored != several.len() || reported.n != stored as u64 {
                    return Err(format!("{event:?} has stored {stored} documents"));
                }
            }
            let Stmt::Update { change, multi: true, .. } = &statement.stmt else { continue };
            let (None, Ok(reported), true) = (statement.transaction, &statement.outcome, change.signs())
            else {
                continue;
            };
            if reported.n != multiple.get(number).copied().unwrap_or(0) {
                return Err(format!("{event:?} has changed {:?} documents", multiple.get(number)));
            }
        }
        self.deleted(&gone)
    }

    /// Returns true if a commit inserts the documents that one statement had to insert.
    fn inserted(
        &self,
        statements: &HashMap<i64, (&Event, &Statement)>,
        number: usize,
        diffs: &[Diff],
    ) -> Result<bool, String> {
        let [Diff { namespace, changes }] = diffs else { return Ok(false) };
        let Some((_, None, Some(first))) = changes.first() else { return Ok(false) };
        let Some((event, statement)) = statements.get(&first.w) else { return Ok(false) };
        let Stmt::InsertMany(several) = &statement.stmt else { return Ok(false) };
        let own = |(_, before, after): &(i64, Option<Doc>, Option<Doc>)| {
            before.is_none() && after.as_ref().is_some_and(|after| several.contains(after))
        };
        let ran = statement.transaction.is_none() && (event.least..event.most).contains(&number);
        match ran && NAMESPACES[statement.namespace] == namespace && changes.iter().all(own) {
            true => Ok(true),
            false => Err(format!("{event:?} has stored {changes:?} in commit {number}")),
        }
    }

    fn multiple_update(
        &self,
        statements: &HashMap<i64, (&Event, &Statement)>,
        number: usize,
        namespace: &str,
        before: &Doc,
        after: &Doc,
    ) -> Option<i64> {
        let made = |(event, statement): &(&Event, &Statement)| {
            statement.transaction.is_none()
                && matches!(statement.stmt, Stmt::Update { multi: true, .. })
                && NAMESPACES[statement.namespace] == namespace
                && (event.least..event.most).contains(&number)
                && statement.stmt.filter().matches(before)
                && statement.stmt.transform(before, statement.number).as_ref() == Some(after)
        };
        match statements.get(&after.w).filter(|statement| made(statement)) {
            Some((_, statement)) => Some(statement.number),
            None => {
                statements.values().find(|statement| made(statement)).map(|(_, statement)| statement.number)
            }
        }
    }

    /// Checks that the number of removed documents matches the results of multiple deletes.
    fn deleted(&self, gone: &[(usize, String, Vec<Doc>)]) -> Check {
        let multiple: Vec<(&Event, &Statement)> = self
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                Kind::Statement(statement) if statement.transaction.is_none() => Some((event, statement)),
                _ => None,
            })
            .filter(|(_, statement)| matches!(statement.stmt, Stmt::Delete { multi: true, .. }))
            .collect();
        for (number, namespace, docs) in gone {
            let could = |(event, statement): &&(&Event, &Statement)| {
                NAMESPACES[statement.namespace] == namespace
                    && (event.least..event.most).contains(number)
                    && docs.iter().all(|doc| statement.stmt.filter().matches(doc))
            };
            if !multiple.iter().any(|statement| could(&statement)) {
                return Err(format!("nobody has deleted {docs:?} in commit {number}"));
            }
        }
        let certain = multiple.iter().all(|(_, statement)| statement.outcome.is_ok());
        let cleared = |(_, statement): &&(&Event, &Statement)| {
            let time = statement.outcome.as_ref().ok().and_then(|reported| reported.time);
            let number = time.and_then(|time| self.replay.at(time));
            number.is_some_and(|number| {
                self.replay.entries[number].ops.iter().any(|op| matches!(op, storage::Op::Clear(_)))
            })
        };
        let one_by_one = multiple.iter().filter(|statement| !cleared(statement));
        let reported: u64 =
            one_by_one.filter_map(|(_, statement)| Some(statement.outcome.as_ref().ok()?.n)).sum();
        let gone: usize = gone.iter().map(|(_, _, docs)| docs.len()).sum();
        match !certain || reported == gone as u64 {
            true => Ok(()),
            false => Err(format!("{reported} documents were reported as deleted, and {gone} are gone")),
        }
    }
}

/// Returns the places that a statement of a transaction has touched, from its view before and
/// after.
fn touches(namespace: usize, before: &Docs, after: &Docs) -> Vec<Touched> {
    let ids: BTreeSet<i64> = before.keys().chain(after.keys()).copied().collect();
    let changed = ids.into_iter().filter(|id| before.get(id) != after.get(id));
    changed.flat_map(|id| of_change(namespace, id, before.get(&id), after.get(&id))).collect()
}

fn touched_by(namespace: usize, diff: &Diff) -> impl Iterator<Item = Touched> {
    diff.changes
        .iter()
        .flat_map(move |(id, before, after)| of_change(namespace, *id, before.as_ref(), after.as_ref()))
}

fn of_change(namespace: usize, id: i64, before: Option<&Doc>, after: Option<&Doc>) -> Vec<Touched> {
    let keys = |doc: &Doc| Field::ALL.map(|field| (namespace, Some(field), field.of(doc)));
    let docs = before.into_iter().chain(after);
    std::iter::once((namespace, None, id)).chain(docs.flat_map(keys)).collect()
}

/// Checks that a statement's result matches the expected one.
fn same(expected: &Effects, reported: &Reported, stmt: &Stmt) -> Check {
    let sorted = |docs: &[Doc]| {
        let mut docs = docs.to_vec();
        docs.sort_by_key(|doc| doc.id);
        docs
    };
    let counts =
        expected.n == reported.n && expected.inserted == reported.inserted && expected.sum == reported.sum;
    let counts =
        counts || matches!(stmt, Stmt::FindAndModify { .. }) && expected.docs.len() == reported.docs.len();
    match counts && sorted(&expected.docs) == sorted(&reported.docs) {
        true => Ok(()),
        false => Err(format!("returned {reported:?}, expected {expected:?}")),
    }
}
