//! One connection to a PostgreSQL server: prepared statements, several of them in one round trip.
//!
//! Calls are queued with [`Connection::call`] and sent together by [`Connection::flush`], which asks the server
//! for one answer to all: what fails ends the calls behind it. An answer that nobody waits for, as that to the
//! end of a transaction that only read, is taken from the connection when it is next used.

use crate::cancel::{Secret, Way, end_statement};
use crate::config::{Config, Wanted};
use crate::failure::{Answer, Failure, LOOK, go_on};
use crate::lives::Lives;
use crate::stream::{Encrypt, Socket, Stream};
use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use std::collections::{HashSet, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much is read from the socket at a time, at least.
const READ: usize = 16 * 1024;

/// A statement that connections prepare when they first use it.
#[derive(Debug)]
pub(crate) struct Statement {
    /// What connections know it as.
    name: String,
    sql: String,
}

impl Statement {
    /// A statement under a name of its own.
    pub(crate) fn new(name: impl Into<String>, sql: impl Into<String>) -> Arc<Statement> {
        Arc::new(Statement { name: name.into(), sql: sql.into() })
    }
}

/// A parameter of a statement, as it goes over the wire: binary, of the type in the statement.
#[derive(Debug, Clone)]
pub(crate) enum Param<'a> {
    /// int8
    Int(i64),
    /// bytea
    Bytes(&'a [u8]),
    /// int8[]
    Ints(&'a [i64]),
    /// bytea[], each perhaps null
    Many(&'a [Option<&'a [u8]>]),
}

/// The columns of a row; `None` is null.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row(Vec<Option<Bytes>>);

impl Row {
    /// A column's bytes; none where it is null.
    pub(crate) fn bytes(&self, column: usize) -> Option<&[u8]> {
        self.0.get(column)?.as_deref()
    }

    /// A column of type int8, int4 or bool; zero where it is null.
    pub(crate) fn int(&self, column: usize) -> i64 {
        let Some(bytes) = self.bytes(column) else { return 0 };
        match (<[u8; 8]>::try_from(bytes), <[u8; 4]>::try_from(bytes), bytes) {
            (Ok(eight), _, _) => i64::from_be_bytes(eight),
            (_, Ok(four), _) => i64::from(i32::from_be_bytes(four)),
            (_, _, [one]) => i64::from(*one),
            _ => 0,
        }
    }
}

/// What one answer is to.
#[derive(Default)]
struct Awaited {
    calls: usize,
    /// The statements that are parsed.
    parsing: VecDeque<String>,
}

/// A connection that somebody has been let in on.
pub(crate) struct Connection {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    /// The statements that the server has parsed on it.
    prepared: HashSet<String>,
    /// Those queued to be parsed since the last flush.
    parsing: VecDeque<String>,
    /// How many calls have been queued since the last flush.
    queued: usize,
    /// What answers that have not been read yet are to.
    awaited: VecDeque<Awaited>,
    /// Whether a transaction is open, or has failed, as of the last answer read.
    status: u8,
    broken: bool,
    /// Whether reads end after a moment, for whoever looks around meanwhile.
    polls: bool,
    /// Whether reads end after a moment to look whether somebody still waits.
    looks: bool,
    /// Whether whoever waits may leave an answer to nobody: what is asked changes nothing that stays.
    pub(crate) may_be_given_up: bool,
    /// The life of the server that it belongs to; zero where nobody has asked.
    pub(crate) life: u64,
    /// What the server warned of last.
    warning: Option<String>,
    /// Counts the answers waited for.
    pub(crate) trips: Arc<AtomicU64>,
    /// How another is made that tells the server to end what runs on this one, and what that one has to know.
    way: Way,
    secret: Option<Secret>,
    /// Whether a statement runs on it that nobody waits for any longer.
    given_up: bool,
}

impl Connection {
    /// Connects to the first member that is as wanted, and is no primary that has been replaced.
    ///
    /// Errors: the last member's.
    pub(crate) fn open(config: &Config, lives: &Lives) -> Answer<Connection> {
        let mut last = Failure::Lost("no host is given".to_string());
        for (host, port) in &config.hosts {
            let opened = Connection::open_at(config, host, *port).and_then(|mut connection| {
                connection.check(config, lives)?;
                Ok(connection)
            });
            match opened {
                Ok(connection) => return Ok(connection),
                Err(Failure::Lost(why)) => last = Failure::Lost(format!("{host}:{port}: {why}")),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to a member, encrypted or not as is wished; both, one after the other, where either will do.
    fn open_at(config: &Config, host: &str, port: u16) -> Answer<Connection> {
        let mut last = None;
        for encrypt in config.tls.attempts(host) {
            match Connection::attempt(config, host, port, *encrypt) {
                Ok(connection) => return Ok(connection),
                // Nobody is there, with encryption or without.
                Err((failure, false)) => return Err(failure),
                Err((failure, true)) => last = Some(failure),
            }
        }
        Err(last.unwrap_or_else(broken))
    }

    /// One attempt. Says with a failure whether it was the server's word on connections of this kind.
    fn attempt(
        config: &Config,
        host: &str,
        port: u16,
        encrypt: Encrypt,
    ) -> Result<Connection, (Failure, bool)> {
        let gone = |failure| (failure, false);
        let (host, timeout, tls) = (host.to_string(), config.connect_timeout, config.tls.clone());
        let way = Way { host, port, encrypt, tls, timeout };
        let mut stream = way.open().map_err(gone)?;
        way.encrypt(&mut stream).map_err(|failure| (failure, true))?;
        let mut connection = Connection {
            stream,
            input: BytesMut::with_capacity(READ),
            output: BytesMut::with_capacity(1024),
            prepared: HashSet::new(),
            parsing: VecDeque::new(),
            queued: 0,
            awaited: VecDeque::new(),
            status: b'I',
            broken: false,
            polls: false,
            looks: false,
            may_be_given_up: false,
            life: 0,
            warning: None,
            trips: Arc::default(),
            way,
            secret: None,
            given_up: false,
        };
        let refused = |failure: Failure| {
            let is_of_kind = failure.is("28000");
            (failure, is_of_kind)
        };
        connection.start(config).map_err(refused)?;
        Ok(connection)
    }

    /// Whether the server is the one that is wanted.
    fn check(&mut self, config: &Config, lives: &Lives) -> Answer<()> {
        if config.wanted == Wanted::ReadWrite {
            let none = || Failure::Lost("the server takes no writes".to_string());
            lives.admit(self.timeline()?.ok_or_else(none)?)?;
        }
        self.stream.limit(None)?;
        Ok(())
    }

    /// The timeline of a server that takes writes; `None` for a standby.
    pub(crate) fn timeline(&mut self) -> Answer<Option<i64>> {
        let writable = Statement::new(
            "writable",
            "select pg_is_in_recovery()::int4, case when pg_is_in_recovery() then 0 else \
             ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int4 end",
        );
        let rows = self.one(&writable, &[])?;
        let row = rows.first().ok_or_else(broken)?;
        Ok((row.int(0) == 0).then(|| row.int(1)))
    }

    /// Whether it was the backend of this process that let it in.
    pub(crate) fn is_to(&self, process: i64) -> bool {
        self.secret.is_some_and(|secret| i64::from(secret.process) == process)
    }

    /// The socket, for whoever may have to end it.
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        self.stream.socket()
    }

    /// How long the server may take from now on before it counts as gone.
    pub(crate) fn limit(&mut self, at_most: Duration) -> Answer<()> {
        self.looks = false;
        Ok(self.stream.limit(Some(at_most))?)
    }

    /// Takes that back: it may take as long as somebody waits.
    pub(crate) fn unlimited(&mut self) -> Answer<()> {
        self.limit(LOOK)?;
        self.looks = true;
        Ok(())
    }

    /// Has [`ready`](Self::ready) wait no longer than this.
    pub(crate) fn poll_every(&mut self, pause: Duration) -> Answer<()> {
        self.polls = true;
        self.limit(pause)
    }

    /// Whether an answer has begun to come, within the time of [`poll_every`](Self::poll_every).
    pub(crate) fn ready(&mut self) -> Answer<bool> {
        if self.input.is_empty() {
            let filled = self.fill();
            self.broken |= filled.is_err();
            filled?;
        }
        Ok(!self.input.is_empty())
    }

    fn start(&mut self, config: &Config) -> Answer<()> {
        let settings = [
            ("user", config.user.as_str()),
            ("database", &config.database),
            ("application_name", &config.application),
            ("client_encoding", "UTF8"),
            (
                "options",
                "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off \
                 -c enable_hashjoin=off -c enable_mergejoin=off -c enable_memoize=off -c jit=off \
                 -c synchronous_commit=off -c lock_timeout=50 -c statement_timeout=0 \
                 -c idle_in_transaction_session_timeout=90000 -c client_min_messages=warning",
            ),
        ];
        frontend::startup_message(settings, &mut self.output)?;
        self.send()?;
        self.authenticate(config)?;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'Z' => return Ok(()),
                b'E' => return Err(server_failure(&body)),
                b'K' if body.len() >= 8 => {
                    let mut body = body;
                    self.secret = Some(Secret { process: body.get_i32(), key: body.get_i32() });
                }
                _ => {}
            }
        }
    }

    fn authenticate(&mut self, config: &Config) -> Answer<()> {
        let password = || {
            let none = || Failure::Lost(format!("the server asks for the password of {}", config.user));
            config.password.as_deref().map(str::as_bytes).ok_or_else(none)
        };
        let mut scram = None;
        loop {
            let (kind, mut body) = self.message()?;
            match kind {
                b'E' => return Err(server_failure(&body)),
                b'R' if body.len() >= 4 => {}
                _ => continue,
            }
            match body.get_i32() {
                0 => return Ok(()),
                3 => frontend::password_message(password()?, &mut self.output)?,
                5 => {
                    let salt = body.as_ref().try_into().map_err(|_| broken())?;
                    let hash = md5_hash(config.user.as_bytes(), password()?, salt);
                    frontend::password_message(hash.as_bytes(), &mut self.output)?;
                }
                10 => {
                    if !body.split(|byte| *byte == 0).any(|name| name == sasl::SCRAM_SHA_256.as_bytes()) {
                        return Err(Failure::Lost(
                            "the server asks for an unknown kind of password".to_string(),
                        ));
                    }
                    let state = sasl::ScramSha256::new(password()?, sasl::ChannelBinding::unsupported());
                    frontend::sasl_initial_response(sasl::SCRAM_SHA_256, state.message(), &mut self.output)?;
                    scram = Some(state);
                }
                11 => {
                    let state = scram.as_mut().ok_or_else(broken)?;
                    state.update(&body)?;
                    frontend::sasl_response(state.message(), &mut self.output)?;
                }
                12 => {
                    scram.as_mut().ok_or_else(broken)?.finish(&body)?;
                    continue;
                }
                _ => {
                    return Err(Failure::Lost(
                        "the server asks for an unknown kind of authentication".to_string(),
                    ));
                }
            }
            self.send()?;
        }
    }

    /// Whether it is of no more use.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it has been closed while nobody used it, as by a server that was restarted: it says so, or ends.
    pub(crate) fn is_closed(&mut self) -> bool {
        if !self.awaited.is_empty() {
            return false;
        }
        if self.stream.is_quiet() {
            return false;
        }
        // Something has come, which need not be its end: TLS has messages of its own.
        let mut byte = [0];
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.read(&mut byte));
        let is_quiet = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.broken = !is_quiet || self.stream.set_nonblocking(false).is_err();
        self.broken
    }

    /// Whether a statement runs on it that nobody waits for any longer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up && self.secret.is_some()
    }

    /// Has the server end the statement that runs on it, and waits for that for a while: whoever is told of it later is
    /// told of this connection alone, which is of no more use.
    pub(crate) fn end_statement(mut self) {
        self.given_up = false;
        let Some(secret) = self.secret else { return };
        if let Err(failure) = end_statement(&self.way, secret, &mut self.stream) {
            log::debug!("a statement that nobody waits for is not ended: {failure:?}");
        }
    }

    /// Whether a transaction is open on it, as of the last answer read.
    pub(crate) fn in_transaction(&self) -> bool {
        self.status != b'I'
    }

    /// Notes that what has been sent ends the transaction, before the answer has been read.
    pub(crate) fn leave_transaction(&mut self) {
        self.status = b'I';
    }

    /// What the server has warned of, once.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Queues a call of a statement.
    pub(crate) fn call(&mut self, statement: &Statement, params: &[Param<'_>]) -> Answer<()> {
        if !self.prepared.contains(&statement.name) && !self.parsing.contains(&statement.name) {
            frontend::parse(&statement.name, &statement.sql, [], &mut self.output)?;
            self.parsing.push_back(statement.name.clone());
        }
        let bound = frontend::bind(
            "",
            &statement.name,
            [1],
            params,
            |param, out| {
                encode(param, out);
                Ok(postgres_protocol::IsNull::No)
            },
            [1],
            &mut self.output,
        );
        bound.map_err(|_| Failure::Lost("a statement is too long".to_string()))?;
        frontend::execute("", 0, &mut self.output)?;
        self.queued += 1;
        Ok(())
    }

    /// How many calls are queued.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Sends what is queued, and asks for one answer to all of it.
    pub(crate) fn flush(&mut self) -> Answer<()> {
        frontend::sync(&mut self.output);
        let parsing = std::mem::take(&mut self.parsing);
        self.awaited.push_back(Awaited { calls: std::mem::take(&mut self.queued), parsing });
        self.send()
    }

    /// The rows of each call of the last flush; answers to earlier ones, which nobody waits for, are passed
    /// over.
    pub(crate) fn answer(&mut self) -> Answer<Vec<Vec<Row>>> {
        self.trips.fetch_add(1, Ordering::Relaxed);
        let mut last = Ok(Vec::new());
        while let Some(awaited) = self.awaited.pop_front() {
            last = self.one_answer(awaited);
            if self.broken {
                break;
            }
        }
        last
    }

    /// Calls one statement and waits for its rows.
    pub(crate) fn one(&mut self, statement: &Statement, params: &[Param<'_>]) -> Answer<Vec<Row>> {
        self.call(statement, params)?;
        self.flush()?;
        Ok(self.answer()?.pop().unwrap_or_default())
    }

    /// Runs commands that have neither parameters nor rows, several in one transaction.
    pub(crate) fn batch(&mut self, sql: &str) -> Answer<()> {
        frontend::query(sql, &mut self.output)?;
        self.awaited.push_back(Awaited::default());
        self.send()?;
        self.answer().map(drop)
    }

    fn one_answer(&mut self, mut awaited: Awaited) -> Answer<Vec<Vec<Row>>> {
        let mut results = Vec::with_capacity(awaited.calls);
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'D' => rows.push(row(body)?),
                b'C' | b'I' => results.push(std::mem::take(&mut rows)),
                b'N' => self.warning = warning(&body),
                b'1' => self.prepared.extend(awaited.parsing.pop_front()),
                b'E' => {
                    let failure = server_failure(&body);
                    self.broken |= failure.ends_connection();
                    failed = failed.or(Some(failure));
                    if self.broken {
                        break;
                    }
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    break;
                }
                _ => {}
            }
        }
        match failed {
            Some(failure) => Err(failure),
            None => Ok(results),
        }
    }

    fn send(&mut self) -> Answer<()> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        sent.map_err(|error| {
            self.broken = true;
            Failure::from(error)
        })
    }

    /// The next message: its kind and its body.
    fn message(&mut self) -> Answer<(u8, Bytes)> {
        let message = self.read_message();
        self.broken |= message.is_err();
        message
    }

    fn read_message(&mut self) -> Answer<(u8, Bytes)> {
        loop {
            if let Some((kind, rest)) = self.input.split_first()
                && let Some((length, _)) = rest.split_first_chunk::<4>()
            {
                let (kind, length) = (*kind, u32::from_be_bytes(*length) as usize);
                if length < 4 {
                    return Err(broken());
                }
                if self.input.len() > length {
                    let mut message = self.input.split_to(1 + length);
                    message.advance(5);
                    return Ok((kind, message.freeze()));
                }
                self.input.reserve(1 + length - self.input.len());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Answer<()> {
        let filled = self.input.len();
        let room = (self.input.capacity() - filled).max(READ);
        self.input.resize(filled + room, 0);
        let read = match self.input.get_mut(filled..) {
            Some(into) => self.stream.read(into),
            None => Ok(0),
        };
        self.input.truncate(filled + read.as_ref().map_or(0, |read| *read));
        match read {
            Ok(0) => Err(Failure::Lost("the server has closed the connection".to_string())),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error)
                if self.polls && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                Ok(())
            }
            Err(error)
                if self.looks && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                let outcome = if self.may_be_given_up { go_on() } else { Ok(()) };
                self.given_up |= outcome.is_err();
                outcome
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.output.clear();
        frontend::terminate(&mut self.output);
        // Nobody is left to tell.
        let _ = self.send();
    }
}

fn broken() -> Failure {
    Failure::Lost("the server's answer can't be read".to_string())
}

fn row(mut body: Bytes) -> Answer<Row> {
    if body.len() < 2 {
        return Err(broken());
    }
    let columns = usize::from(body.get_u16());
    let mut row = Vec::with_capacity(columns);
    for _ in 0..columns {
        if body.len() < 4 {
            return Err(broken());
        }
        row.push(match usize::try_from(body.get_i32()) {
            Err(_) => None,
            Ok(length) if length <= body.len() => Some(body.split_to(length)),
            Ok(_) => return Err(broken()),
        });
    }
    Ok(Row(row))
}

fn server_failure(body: &[u8]) -> Failure {
    let (mut state, mut message) = (String::new(), String::new());
    for field in body.split(|byte| *byte == 0) {
        let text = || String::from_utf8_lossy(field.get(1..).unwrap_or_default()).to_string();
        match field.first() {
            Some(b'C') => state = text(),
            Some(b'M') => message = text(),
            Some(b'D') => message = format!("{message}: {}", text()),
            _ => {}
        }
    }
    Failure::Server { state, message }
}

/// The text of a notice, if it is a warning.
fn warning(body: &[u8]) -> Option<String> {
    let is_warning = body.split(|byte| *byte == 0).any(|field| field == b"VWARNING");
    let Failure::Server { message, .. } = server_failure(body) else { return None };
    is_warning.then_some(message)
}

/// Writes a parameter in binary.
fn encode(param: &Param<'_>, out: &mut BytesMut) {
    match param {
        Param::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
        Param::Bytes(bytes) => out.extend_from_slice(bytes),
        Param::Ints(numbers) => {
            array(numbers.len(), 20, false, out);
            for number in *numbers {
                out.extend_from_slice(&8i32.to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        Param::Many(values) => {
            array(values.len(), 17, values.iter().any(Option::is_none), out);
            for value in *values {
                match value {
                    Some(bytes) => {
                        out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
                        out.extend_from_slice(bytes);
                    }
                    None => out.extend_from_slice(&(-1i32).to_be_bytes()),
                }
            }
        }
    }
}

/// What an array of one dimension begins with.
fn array(length: usize, oid: u32, has_null: bool, out: &mut BytesMut) {
    out.extend_from_slice(&i32::from(length > 0).to_be_bytes());
    out.extend_from_slice(&i32::from(has_null).to_be_bytes());
    out.extend_from_slice(&oid.to_be_bytes());
    if length > 0 {
        out.extend_from_slice(&(length as i32).to_be_bytes());
        out.extend_from_slice(&1i32.to_be_bytes());
    }
}
