//! A connection to a PostgreSQL server: the extended query protocol, pipelined.
//!
//! [`Connection::call`] queues a call. [`Connection::flush`] sends the queued calls with one `Sync`, so one reply
//! covers them: a failed call ends the calls after it. Some replies need no wait, as the reply to the end of a
//! read-only transaction. The next use of the connection reads them.

use crate::cancel::{CancelKey, Route, end_statement};
use crate::config::{Config, TargetSessionAttrs};
use crate::failure::{CHECK_INTERVAL, Failure, PgResult, should_continue};
use crate::incarnations::Incarnations;
use crate::stream::{Encrypt, Socket, Stream};
use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use std::collections::{HashSet, VecDeque};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum size of a socket read in bytes, and size of the buffers that rows share.
const READ_SIZE: usize = 32 * 1024;

/// A statement that each connection prepares at its first use.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Name of the prepared statement.
    name: String,
    sql: String,
}

impl Statement {
    /// Creates a statement with a name.
    pub(crate) fn new(name: impl Into<String>, sql: impl Into<String>) -> Arc<Statement> {
        Arc::new(Statement { name: name.into(), sql: sql.into() })
    }
}

/// A parameter of a statement in the binary format of the protocol, of the type in the statement.
#[derive(Debug, Clone)]
pub(crate) enum Param<'a> {
    /// int8
    Int(i64),
    /// bytea
    Bytes(&'a [u8]),
    /// int8[]
    Ints(&'a [i64]),
    /// bytea[]; each element may be null
    Many(&'a [Option<&'a [u8]>]),
}

impl Param<'_> {
    /// Returns the length of the encoded parameter in bytes, or a little more.
    fn encoded_size(&self) -> usize {
        const HEADER: usize = 24;
        HEADER
            + match self {
                Param::Int(_) => 8,
                Param::Bytes(bytes) => bytes.len(),
                Param::Ints(numbers) => numbers.len() * 12,
                Param::Many(values) => values.iter().map(|value| 4 + value.map_or(0, <[u8]>::len)).sum(),
            }
    }
}

/// A row as the server sent it: the number of columns, then each column behind its length. A null has a negative
/// length. Rows of one read share a buffer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row(Bytes);

impl Row {
    /// Checks the body of a row message.
    fn new(body: Bytes) -> PgResult<Row> {
        let row = Row(body);
        let mut end = 2;
        for _ in 0..row.columns() {
            end = row.field_range(end).ok_or_else(broken)?.end;
        }
        if row.0.len() < end {
            return Err(broken());
        }
        Ok(row)
    }

    /// Returns the number of columns.
    fn columns(&self) -> usize {
        self.0.first_chunk().map_or(0, |count| usize::from(u16::from_be_bytes(*count)))
    }

    /// Returns the place of the column whose length is at `at`; empty for null.
    fn field_range(&self, at: usize) -> Option<Range<usize>> {
        let start = at + 4;
        Some(start..start + usize::try_from(self.length(at)?).unwrap_or(0))
    }

    fn length(&self, at: usize) -> Option<i32> {
        self.0.get(at..)?.first_chunk().map(|length| i32::from_be_bytes(*length))
    }

    /// Returns the place of a column; `None` for null.
    fn find(&self, column: usize) -> Option<Range<usize>> {
        let mut at = 2;
        for _ in 0..column.min(self.columns()) {
            at = self.field_range(at)?.end;
        }
        self.field_range(at)
            .filter(|_| column < self.columns() && self.length(at).is_some_and(|length| length >= 0))
    }

    /// Returns the bytes of a column; `None` for null.
    pub(crate) fn bytes(&self, column: usize) -> Option<&[u8]> {
        self.0.get(self.find(column)?)
    }

    /// As [`bytes`](Self::bytes), without a copy. The result keeps the buffer of the row.
    pub(crate) fn shared(&self, column: usize) -> Option<Bytes> {
        Some(self.0.slice(self.find(column)?))
    }

    /// Returns the elements of a column with a one-dimensional array, which are `None` for null. Returns none for null.
    pub(crate) fn elements(&self, column: usize) -> PgResult<Vec<Option<Bytes>>> {
        /// Bytes before the first element: dimensions, flags, type, length, first subscript.
        const HEADER: usize = 20;
        let mut elements = Vec::new();
        let Some(mut rest) = self.shared(column).filter(|array| array.len() > HEADER) else {
            return Ok(elements);
        };
        rest.advance(HEADER);
        while let Some(length) = rest.first_chunk().map(|length| i32::from_be_bytes(*length)) {
            rest.advance(4);
            let length = usize::try_from(length).ok();
            if length.is_some_and(|length| length > rest.len()) {
                return Err(broken());
            }
            elements.push(length.map(|length| rest.split_to(length)));
        }
        Ok(elements)
    }

    /// Returns a column of type int8, int4 or bool; zero for null.
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

/// A reply that has not been read: one for each `Sync` message.
#[derive(Default)]
struct PendingReply {
    /// Number of calls that the reply covers.
    calls: usize,
    /// Names of the statements that the flush parses.
    parsing: VecDeque<String>,
}

/// An authenticated connection.
pub(crate) struct Connection {
    stream: Stream,
    /// Buffer of one socket read.
    received: Box<[u8]>,
    /// Bytes received and not parsed yet.
    input: BytesMut,
    /// Bytes of queued calls.
    output: BytesMut,
    /// Names of the statements that the server has prepared on this connection.
    prepared: HashSet<String>,
    /// Names of the statements queued for parsing since the last flush.
    parsing: VecDeque<String>,
    /// Number of calls queued since the last flush.
    queued: usize,
    /// Expected replies that have not been read yet.
    pending: VecDeque<PendingReply>,
    /// Transaction status (idle, open, failed) as of the last reply read.
    status: u8,
    /// Set by the first error of the connection. The pool discards the connection.
    broken: bool,
    /// True if reads end after a short timeout, for [`ready`](Self::ready).
    polls: bool,
    /// True if reads end after [`CHECK_INTERVAL`] to check for cancellation.
    checks_cancellation: bool,
    /// True if the waiter may abandon a reply: the statement changes nothing permanent.
    pub(crate) is_interruptible: bool,
    /// Incarnation of the server that the connection belongs to; zero if it was not read.
    pub(crate) incarnation: u64,
    /// The last warning of the server.
    warning: Option<String>,
    /// Counts round trips.
    pub(crate) round_trips: Arc<AtomicU64>,
    /// The address for a cancel request.
    route: Route,
    /// `BackendKeyData` of the protocol, for a cancel request.
    cancel_key: Option<CancelKey>,
    /// True if an abandoned statement runs on the connection.
    abandoned: bool,
}

impl Connection {
    /// Connects to the first host with the requested session attributes, and skips a replaced primary.
    ///
    /// Errors: the error of the last member.
    pub(crate) fn open(config: &Config, incarnations: &Incarnations) -> PgResult<Connection> {
        let mut last = Failure::Unavailable("no host is given".to_string());
        for (host, port) in &config.hosts {
            let opened = Connection::open_at(config, host, *port).and_then(|mut connection| {
                connection.check(config, incarnations)?;
                Ok(connection)
            });
            match opened {
                Ok(connection) => return Ok(connection),
                Err(Failure::Unavailable(why)) => {
                    last = Failure::Unavailable(format!("{host}:{port}: {why}"))
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to a member with or without TLS, as configured. Tries both in order if the mode allows both.
    fn open_at(config: &Config, host: &str, port: u16) -> PgResult<Connection> {
        let mut last = None;
        for encrypt in config.tls.attempts(host) {
            match Connection::attempt(config, host, port, *encrypt) {
                Ok(connection) => return Ok(connection),
                // The host is unreachable with or without TLS.
                Err((failure, false)) => return Err(failure),
                Err((failure, true)) => last = Some(failure),
            }
        }
        Err(last.unwrap_or_else(broken))
    }

    /// Makes one attempt. The flag of a failure is true if the server itself refused this kind of connection.
    fn attempt(
        config: &Config,
        host: &str,
        port: u16,
        encrypt: Encrypt,
    ) -> Result<Connection, (Failure, bool)> {
        let unreachable = |failure| (failure, false);
        let (host, timeout, tls) = (host.to_string(), config.connect_timeout, config.tls.clone());
        let route = Route { host, port, encrypt, tls, timeout };
        let mut stream = route.open().map_err(unreachable)?;
        route.encrypt(&mut stream).map_err(|failure| (failure, true))?;
        let mut connection = Connection {
            stream,
            received: vec![0; READ_SIZE].into_boxed_slice(),
            input: BytesMut::with_capacity(READ_SIZE),
            output: BytesMut::with_capacity(1024),
            prepared: HashSet::new(),
            parsing: VecDeque::new(),
            queued: 0,
            pending: VecDeque::new(),
            status: b'I',
            broken: false,
            polls: false,
            checks_cancellation: false,
            is_interruptible: false,
            incarnation: 0,
            warning: None,
            round_trips: Arc::default(),
            route,
            cancel_key: None,
            abandoned: false,
        };
        let refused = |failure: Failure| {
            let is_of_kind = failure.is("28000");
            (failure, is_of_kind)
        };
        connection.start(config).map_err(refused)?;
        Ok(connection)
    }

    /// Checks that the server has the requested session attributes.
    fn check(&mut self, config: &Config, incarnations: &Incarnations) -> PgResult<()> {
        if config.target_session_attrs == TargetSessionAttrs::ReadWrite {
            let none = || Failure::Unavailable("the server is read-only".to_string());
            incarnations.admit(self.timeline()?.ok_or_else(none)?)?;
        }
        self.stream.set_timeout(None)?;
        Ok(())
    }

    /// Returns the timeline of a server that takes writes; `None` for a standby.
    pub(crate) fn timeline(&mut self) -> PgResult<Option<i64>> {
        let writable = Statement::new(
            "writable",
            "select pg_is_in_recovery()::int4, case when pg_is_in_recovery() then 0 else \
             ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int4 end",
        );
        let rows = self.query(&writable, &[])?;
        let row = rows.first().ok_or_else(broken)?;
        Ok((row.int(0) == 0).then(|| row.int(1)))
    }

    /// Returns true if the backend with this process id serves the connection.
    pub(crate) fn is_backend(&self, process: i64) -> bool {
        self.cancel_key.is_some_and(|cancel_key| i64::from(cancel_key.process) == process)
    }

    /// Returns the socket, for closing it from another thread.
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        self.stream.socket()
    }

    /// Sets a timeout for later replies, after which the server counts as lost.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> PgResult<()> {
        self.checks_cancellation = false;
        Ok(self.stream.set_timeout(Some(timeout))?)
    }

    /// Removes the timeout: a reply may take as long as its waiter allows.
    pub(crate) fn clear_timeout(&mut self) -> PgResult<()> {
        self.set_timeout(CHECK_INTERVAL)?;
        self.checks_cancellation = true;
        Ok(())
    }

    /// Sets the timeout of [`ready`](Self::ready).
    pub(crate) fn poll_every(&mut self, pause: Duration) -> PgResult<()> {
        self.polls = true;
        self.set_timeout(pause)
    }

    /// Returns true if a reply has begun to arrive within the time of [`poll_every`](Self::poll_every).
    pub(crate) fn ready(&mut self) -> PgResult<bool> {
        if self.input.is_empty() {
            let filled = self.fill();
            self.broken |= filled.is_err();
            filled?;
        }
        Ok(!self.input.is_empty())
    }

    /// Starts a session. The start-up options forbid plans that scan the table, disable waits at commits, and limit
    /// waits for locks. They also replace defaults of the role: a commit that has waited for the fence must see the
    /// latest state.
    fn start(&mut self, config: &Config) -> PgResult<()> {
        let settings = [
            ("user", config.user.as_str()),
            ("database", &config.database),
            ("application_name", &config.application),
            ("client_encoding", "UTF8"),
            (
                "options",
                "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off \
                 -c enable_hashjoin=off -c enable_mergejoin=off -c enable_memoize=off -c jit=off \
                 -c default_transaction_isolation=read\\ committed \
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
                    self.cancel_key = Some(CancelKey { process: body.get_i32(), key: body.get_i32() });
                }
                _ => {}
            }
        }
    }

    /// Authenticates by clear text, MD5 or SCRAM-SHA-256, as the server requests.
    fn authenticate(&mut self, config: &Config) -> PgResult<()> {
        let password = || {
            let none = || Failure::Unavailable(format!("the server requires a password for {}", config.user));
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
                        return Err(Failure::Unavailable(
                            "the server requires an unsupported password method".to_string(),
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
                    return Err(Failure::Unavailable(
                        "the server requires an unsupported authentication method".to_string(),
                    ));
                }
            }
            self.send()?;
        }
    }

    /// Returns true if the connection is unusable.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns true if the server has closed the idle connection, for example by a restart.
    pub(crate) fn is_closed(&mut self) -> bool {
        if !self.pending.is_empty() {
            return false;
        }
        if self.stream.is_quiet() {
            return false;
        }
        // Pending bytes need not be the end: TLS has messages of its own.
        let mut byte = [0];
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.read(&mut byte));
        let is_quiet = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.broken = !is_quiet || self.stream.set_nonblocking(false).is_err();
        self.broken
    }

    /// Returns true if an abandoned statement runs on the connection.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.abandoned && self.cancel_key.is_some()
    }

    /// Cancels the statement on the connection and waits a limited time for its end. A late cancel request hits only
    /// this connection, which is discarded.
    pub(crate) fn end_statement(mut self) {
        self.abandoned = false;
        let Some(cancel_key) = self.cancel_key else { return };
        if let Err(failure) = end_statement(&self.route, cancel_key, &mut self.stream) {
            log::debug!("an abandoned statement could not be canceled: {failure:?}");
        }
    }

    /// Returns true if a transaction is open, as of the last reply read.
    pub(crate) fn in_transaction(&self) -> bool {
        self.status != b'I'
    }

    /// Marks the transaction as ended before the reply to its end has been read.
    pub(crate) fn leave_transaction(&mut self) {
        self.status = b'I';
    }

    /// Takes the last warning of the server.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Queues a call of a statement.
    pub(crate) fn call(&mut self, statement: &Statement, params: &[Param<'_>]) -> PgResult<()> {
        if !self.prepared.contains(&statement.name) && !self.parsing.contains(&statement.name) {
            frontend::parse(&statement.name, &statement.sql, [], &mut self.output)?;
            self.parsing.push_back(statement.name.clone());
        }
        // A buffer that grows in steps copies a large change several times.
        self.output.reserve(params.iter().map(Param::encoded_size).sum());
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
        bound.map_err(|_| Failure::Unavailable("a statement is too long".to_string()))?;
        frontend::execute("", 0, &mut self.output)?;
        self.queued += 1;
        Ok(())
    }

    /// Returns the number of queued calls.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Sends the queued calls and requests one reply for all of them.
    pub(crate) fn flush(&mut self) -> PgResult<()> {
        frontend::sync(&mut self.output);
        let parsing = std::mem::take(&mut self.parsing);
        self.pending.push_back(PendingReply { calls: std::mem::take(&mut self.queued), parsing });
        self.send()
    }

    /// Returns the rows of each call of the last flush. Skips the replies of earlier flushes.
    pub(crate) fn results(&mut self) -> PgResult<Vec<Vec<Row>>> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let mut last = Ok(Vec::new());
        while let Some(pending) = self.pending.pop_front() {
            last = self.read_results(pending);
            if self.broken {
                break;
            }
        }
        last
    }

    /// Waits for the replies of earlier flushes, and ignores their rows and errors.
    pub(crate) fn read_remaining(&mut self) {
        if !self.broken && !self.pending.is_empty() {
            let _ = self.results();
        }
    }

    /// Calls one statement and waits for its rows.
    pub(crate) fn query(&mut self, statement: &Statement, params: &[Param<'_>]) -> PgResult<Vec<Row>> {
        self.call(statement, params)?;
        self.flush()?;
        Ok(self.results()?.pop().unwrap_or_default())
    }

    /// Runs commands without parameters or rows, several in one transaction.
    pub(crate) fn batch(&mut self, sql: &str) -> PgResult<()> {
        frontend::query(sql, &mut self.output)?;
        self.pending.push_back(PendingReply::default());
        self.send()?;
        self.results().map(drop)
    }

    /// Reads the messages up to the next ReadyForQuery. The first error wins; later calls of the flush did not run.
    fn read_results(&mut self, mut pending: PendingReply) -> PgResult<Vec<Vec<Row>>> {
        let mut results = Vec::with_capacity(pending.calls);
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'D' => rows.push(Row::new(body)?),
                b'C' | b'I' => results.push(std::mem::take(&mut rows)),
                b'N' => self.warning = warning(&body),
                b'1' => self.prepared.extend(pending.parsing.pop_front()),
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

    /// Writes the output buffer. A failed write makes the connection unusable.
    fn send(&mut self) -> PgResult<()> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        sent.map_err(|error| {
            self.broken = true;
            Failure::from(error)
        })
    }

    /// Returns the next message: its kind and its body.
    fn message(&mut self) -> PgResult<(u8, Bytes)> {
        let message = self.read_message();
        self.broken |= message.is_err();
        message
    }

    /// Returns the next complete message of the input buffer, and reads from the socket as necessary.
    fn read_message(&mut self) -> PgResult<(u8, Bytes)> {
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

    /// Reads from the socket once. A timeout is a chance to check for cancellation, not an error.
    fn fill(&mut self) -> PgResult<()> {
        let read = self.stream.read(&mut self.received);
        match read {
            Ok(0) => Err(Failure::Unavailable("the server has closed the connection".to_string())),
            Ok(read) => {
                self.input.extend_from_slice(self.received.get(..read).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error)
                if self.polls && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                Ok(())
            }
            Err(error)
                if self.checks_cancellation
                    && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                let outcome = if self.is_interruptible { should_continue() } else { Ok(()) };
                self.abandoned |= outcome.is_err();
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
        // The connection closes: an error has no reader.
        let _ = self.send();
    }
}

fn broken() -> Failure {
    Failure::Unavailable("the server's reply is invalid".to_string())
}

/// Converts an ErrorResponse into a failure with SQLSTATE and message.
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

/// Returns the text of a notice if it is a warning.
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

/// Writes the header of a one-dimensional array.
fn array(length: usize, oid: u32, has_null: bool, out: &mut BytesMut) {
    out.extend_from_slice(&i32::from(length > 0).to_be_bytes());
    out.extend_from_slice(&i32::from(has_null).to_be_bytes());
    out.extend_from_slice(&oid.to_be_bytes());
    if length > 0 {
        out.extend_from_slice(&(length as i32).to_be_bytes());
        out.extend_from_slice(&1i32.to_be_bytes());
    }
}
