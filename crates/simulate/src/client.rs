//! A simulated client: one session, one request at a time, repeated after a lost reply as by a driver.

use crate::action::{Action, Doc, FIRST_USER, Mix, Outcome, USERS, namespace};
use crate::model::Views;
use base::random::Random;
use server::SimulatedConnection;
use std::time::Duration;

/// What a request asks for.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A statement of its own.
    Single(Action),
    /// A statement of the open transaction.
    Statement(Action),
    /// The next batch of an open cursor.
    More,
    Commit,
    Abort,
}

/// A request until its reply.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) step: Step,
    pub(crate) collection: &'static str,
    /// Number of the operation, which its documents contain.
    pub(crate) w: i64,
    /// The command as extended JSON.
    pub(crate) text: String,
    /// Latest version when the client first sent it.
    pub(crate) from: usize,
    /// True if a reply promises that no crash undoes what it shows.
    pub(crate) is_durable: bool,
    /// True if the client repeats it after a lost reply.
    pub(crate) is_repeated: bool,
    /// Commit of the request, and the answer there.
    pub(crate) applied: Option<(u64, Outcome)>,
    /// True after its first commit.
    pub(crate) has_committed: bool,
    /// True if it ran inside of another request's commit, where it cannot wait.
    pub(crate) is_nested: bool,
}

impl Request {
    /// Returns the statement for the model.
    pub(crate) fn action(&self) -> Option<(&Action, &'static str, i64)> {
        match &self.step {
            Step::Single(action) | Step::Statement(action) => Some((action, self.collection, self.w)),
            Step::More | Step::Commit | Step::Abort => None,
        }
    }

    /// Returns true if the server holds a lock while the request commits.
    pub(crate) fn changes_users(&self) -> bool {
        matches!(self.step, Step::Single(Action::CreateUser(_) | Action::DropUser(_)))
    }
}

/// The transaction of a session.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) number: i64,
    /// Possible read views, after the first reply.
    pub(crate) views: Option<Views>,
    /// Latest version at its start.
    pub(crate) from: usize,
    pub(crate) began: Duration,
    /// Number of the server process that it began in.
    pub(crate) incarnation: u64,
    /// True after a lost reply: the client only aborts it.
    pub(crate) is_lost: bool,
    pub(crate) is_committing: bool,
}

/// An open cursor.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) id: i64,
    pub(crate) collection: &'static str,
    pub(crate) docs: Vec<Doc>,
    /// Latest versions when the client sent the find, and at its reply.
    pub(crate) versions: (usize, usize),
    pub(crate) began: Duration,
}

/// A client.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) connection: Option<SimulatedConnection>,
    /// True if the connection has a user.
    pub(crate) is_logged_in: bool,
    /// True while the thread is inside of its request.
    pub(crate) is_running: bool,
    /// The request in flight, or to be repeated.
    pub(crate) request: Option<Request>,
    /// True if the server has received the request.
    pub(crate) is_sent: bool,
    /// Number of steps since the server has received it.
    pub(crate) waited: u64,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) transaction_number: i64,
    pub(crate) reading: Option<Reading>,
    /// Id of the document of `p` that the client deletes next.
    pub(crate) inserted: Option<i64>,
    /// Cluster time of the latest reply of this server process.
    pub(crate) seen_time: u64,
}

/// Write concerns, and whether their replies promise durability at `relaxed`.
const WRITE_CONCERNS: [(&str, bool); 4] = [
    ("", true),
    (", writeConcern: {w: 1}", false),
    (", writeConcern: {w: 1, j: true}", true),
    (", writeConcern: {w: 'majority'}", true),
];
const READ_CONCERNS: [(&str, bool); 3] =
    [("", false), (", readConcern: {level: 'local'}", false), (", readConcern: {level: 'majority'}", true)];

impl Client {
    fn session(&self) -> String {
        format!("lsid: {{id: {{$uuid: '00000000-0000-4000-8000-{:012}'}}}}", self.number)
    }

    /// Returns a condition of a filter that the client's session meets.
    pub(crate) fn session_filter(&self) -> String {
        format!("'lsid.id': {{$uuid: '00000000-0000-4000-8000-{:012}'}}", self.number)
    }

    /// Draws a change of the users. `has_users` is true after the localhost exception has created the first user.
    fn draw_user(&self, random: &Random, has_users: bool) -> Option<Action> {
        let user = 1 + random.below(2) as i64;
        match random.below(30) {
            _ if !has_users => Some(Action::CreateUser(FIRST_USER + self.number as i64)),
            0..=1 if self.transaction.is_none() => Some(Action::CreateUser(user)),
            2 if self.transaction.is_none() => Some(Action::DropUser(user)),
            _ => None,
        }
    }

    /// Draws the next request. `is_journaled` is true if every write waits for the journal. `has_users` is `None` if
    /// the server needs no logins.
    pub(crate) fn draw(
        &mut self,
        (random, mix): (&Random, &Mix),
        (w, now_millis): (i64, i64),
        (from, now, incarnation): (usize, Duration, u64),
        (is_journaled, has_users): (bool, Option<bool>),
    ) -> Request {
        let session = self.session();
        let (write_concern, write_durable) = WRITE_CONCERNS[random.index(WRITE_CONCERNS.len())];
        let (read_concern, read_durable) = READ_CONCERNS[random.index(READ_CONCERNS.len())];
        let request = |step, collection, text, is_durable, is_repeated| Request {
            step,
            collection,
            w,
            text,
            from,
            is_durable,
            is_repeated,
            applied: None,
            has_committed: false,
            is_nested: false,
        };
        if let Some(action) = has_users.and_then(|has_users| self.draw_user(random, has_users)) {
            let text = format!("{{{}, {session}{write_concern}}}", action.command(USERS, w));
            return request(Step::Single(action), USERS, text, write_durable || is_journaled, false);
        }
        if let Some(Reading { id, collection, .. }) = self.reading
            && random.below(4) < mix.batches
        {
            let (database, name) = namespace(collection);
            let get_more = format!("getMore: {{$numberLong: '{id}'}}, collection: '{name}', batchSize: 2");
            let text = format!("{{{get_more}, $db: '{database}', {session}}}");
            return request(Step::More, collection, text, false, false);
        }
        let returns_keys = mix.returns_keys && self.number % 2 == 1;
        let begins = self.transaction.is_none() && !returns_keys && random.below(mix.begins) == 0;
        if begins {
            self.transaction_number += 1;
            self.transaction = Some(Transaction {
                number: self.transaction_number,
                views: None,
                from,
                began: now,
                incarnation,
                is_lost: false,
                is_committing: false,
            });
        }
        if let Some(transaction) = &mut self.transaction {
            let rest =
                format!("{session}, txnNumber: {{$numberLong: '{}'}}, autocommit: false", transaction.number);
            let ends = !begins && random.below(mix.ends) == 0;
            if transaction.is_lost || ends && random.below(5) == 0 {
                let text = format!("{{abortTransaction: 1, $db: 'admin', {rest}}}");
                return request(Step::Abort, "admin", text, false, false);
            }
            if ends {
                transaction.is_committing = true;
                let text = format!("{{commitTransaction: 1, $db: 'admin', {rest}{write_concern}}}");
                return request(Step::Commit, "admin", text, write_durable || is_journaled, true);
            }
            let (action, collection) = Action::draw((random, mix), true, (w, now_millis));
            let start = if begins { ", startTransaction: true" } else { "" };
            let text = format!("{{{}, {rest}{start}}}", action.command(collection, w));
            return request(Step::Statement(action), collection, text, false, false);
        }
        let (action, collection) = match returns_keys {
            true => (Action::draw_return((random, mix), w, &mut self.inserted), "p"),
            false => Action::draw((random, mix), false, (w, now_millis)),
        };
        let command = action.command(collection, w);
        let takes_read_concern = action.is_read();
        let concern = if takes_read_concern { read_concern } else { write_concern };
        let is_durable = match takes_read_concern {
            true => read_durable && is_journaled,
            false => write_durable || is_journaled,
        };
        let is_repeated = action.is_retryable() && random.below(4) != 0;
        let number = if is_repeated {
            self.transaction_number += 1;
            format!(", txnNumber: {{$numberLong: '{}'}}", self.transaction_number)
        } else {
            String::new()
        };
        let text = format!("{{{command}, {session}{number}{concern}}}");
        request(Step::Single(action), collection, text, is_durable, is_repeated)
    }
}
