//! Sockets: the only asynchronous code.
//!
//! One task per connection waits for bytes without holding a buffer, reads a whole frame, has
//! [`connection::handle`](crate::connection::handle) answer it in place on the network thread,
//! and writes the reply, usually with one system call each. Work that may take long leaves the
//! thread through [`in_place`](crate::blocking::in_place).

#[cfg(unix)]
mod brisk;
mod first;
mod stream;
mod tls_stream;
mod web;

use crate::activity::Activity;
use crate::blocking::{STACK_SIZE, in_place, threads_most};
use crate::buffers;
use crate::call::Wait;
use crate::commands::diagnostics::host_name;
use crate::connection::{ConnectionState, Outcome, Peer, handle};
use crate::own_address::dialled;
use crate::server::Server;
use crate::tls::{Tls, TlsMode};
use database::{Awaited, Position, threads};
use first::First;
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};
use stream::{Line, Stream};
use tls_stream::TlsStream;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use wire::busy_poll::BusyPoll;
use wire::header::{Trouble, frame_length};

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4096;

/// The least bound on threads for commands that wait, in case few connections are allowed.
const BLOCKING_MIN: usize = 512;

/// How much longer than for a handshake somebody who hasn't logged in may be silent between messages: drivers'
/// monitors never log in, and ask every ten seconds.
const IDLE_STRANGER: u32 = 20;

/// How long a stopping server waits for replies under way before it interrupts them.
const GRACE: Duration = Duration::from_millis(500);

/// How long it then waits for them to notice.
const GRACE_INTERRUPTED: Duration = Duration::from_secs(2);

/// Listens and serves until [`Server::stop`], SIGINT or SIGTERM; calls `ready` with the address
/// once clients can connect.
///
/// Errors: those of starting, above all an address in use.
pub fn serve(server: &Arc<Server>, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let (runtime, spare) = start_runtime(server)?;
    let background = Arc::downgrade(server);
    threads::spawn("vellum-background", Some(STACK_SIZE), move || crate::background::run(&background))?;
    if let Some(limit) = server.settings.memory_limit.clone() {
        let watched = Arc::downgrade(server);
        server.database.set_memory_room(limit.of_data());
        threads::spawn("vellum-memory", None, move || crate::memory::watch(&watched, limit))?;
    }
    let result = runtime.block_on(listen(server, ready));
    drop(spare);
    // Connections that are idle by now are closed by dropping their tasks.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Starts the network threads, and a spare one that does nothing until its sender is dropped.
///
/// The runtime panics if the system refuses it a thread while it has no spare one, and goes on without the new
/// thread otherwise.
///
/// Errors: those of starting threads.
fn start_runtime(server: &Server) -> io::Result<(Runtime, Sender<()>)> {
    let waiting = server.settings.connections_max.max(BLOCKING_MIN);
    let workers = network_threads();
    if !threads::has_room(STACK_SIZE * (workers + 1)) {
        return Err(io::Error::other("the address space (ulimit -v) has no room for the network's threads"));
    }
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(workers)
        .thread_name("vellum-net")
        // A command that waits (for a transaction's end, for fsyncUnlock) has a thread of its own meanwhile.
        .max_blocking_threads(threads_most().map_or(waiting, |most| most.min(waiting)))
        .thread_stack_size(STACK_SIZE)
        .enable_all();
    let start = || -> io::Result<(Runtime, Sender<()>)> {
        let runtime = builder.build()?;
        let (spare, end) = channel();
        runtime.spawn_blocking(move || _ = end.recv());
        Ok((runtime, spare))
    };
    std::panic::catch_unwind(AssertUnwindSafe(start))
        .unwrap_or_else(|_| Err(io::Error::other("the system refuses the network's threads")))
}

async fn listen(server: &Arc<Server>, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let address = SocketAddr::new(server.settings.bind, server.settings.port);
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let terminated = termination()?;
    let address = listener.local_addr()?;
    server.database.set_host(format!("{}:{}", host_name(), address.port()));
    if let Some(set) = server.set() {
        let config = set.config();
        let known = server.settings.advertise.as_ref().or(config.host.as_ref());
        let host = known.cloned().unwrap_or_else(|| dialled(address));
        if let Err(error) = server.store_set_config(set, &config, &host) {
            log::warn!("storing the configuration of the replica set: {error}");
        }
    }
    server.http.server.get_or_init(|| dialled(address));
    web::listen(server).await?;
    ready(address);
    let mut stop = server.stop.listen(0);
    let stopped = poll_fn(|context| match stop.has_happened(context.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    let signalled = async {
        // Awaited outside of the macro, which evaluates nothing when the level is off.
        let signal = terminated.await;
        log::info!("{signal}: stopping");
    };
    race(accept(&listener, server), race(stopped, signalled)).await;
    drop(listener);
    finish_replies(server).await;
    Ok(())
}

/// Waits for a signal to stop; returns its name. The handlers are in place once this returns.
fn termination() -> io::Result<impl Future<Output = &'static str>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        let interrupted = async {
            match tokio::signal::ctrl_c().await {
                Ok(()) => "SIGINT",
                Err(_) => pending().await,
            }
        };
        #[cfg(unix)]
        let terminated = async {
            terminate.recv().await;
            "SIGTERM"
        };
        #[cfg(not(unix))]
        let terminated = pending();
        race(interrupted, terminated).await
    })
}

/// Lets replies under way be finished, interrupting what takes too long.
async fn finish_replies(server: &Server) {
    server.stopping.store(true, Ordering::Release);
    // Writes that fsync locked out would never be finished.
    while server.database.unlock_writes().is_some() {}
    let idle = async || {
        while server.busy.load(Ordering::Acquire) != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(GRACE, idle()).await.is_err() {
        server.database.stop_operations();
        if tokio::time::timeout(GRACE_INTERRUPTED, idle()).await.is_err() {
            log::warn!("stopping while commands still run");
        }
    }
}

async fn accept(listener: &TcpListener, server: &Arc<Server>) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => admit(stream, client, server),
            Err(error) => {
                // Most likely out of file descriptors: others must close first.
                log::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn admit(stream: TcpStream, client: SocketAddr, server: &Arc<Server>) {
    if server.activities.counts().0 >= server.settings.connections_max {
        server.counters.connections_rejected.add(1);
        log::warn!("connection from {client} refused: there are {} already", server.settings.connections_max);
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    // Replies are written whole, so waiting for more to send would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        log::debug!(c = "NETWORK"; "TCP_NODELAY for {client}: {error}");
    }
    let registered = Registered { activity: server.activities.open(client), server: server.clone() };
    tokio::spawn(async move {
        let mut state = ConnectionState::new(registered.activity.clone(), local);
        state.holds_replies = true;
        let stream = match take_over(stream, &registered) {
            Ok(stream) => stream,
            Err(error) => return log::warn!("connection from {client} can't be watched: {error}"),
        };
        let busy_poll = BusyPoll::new(registered.server.settings.busy_poll);
        let mut connection = Connection { stream, server: registered.server.clone(), state, busy_poll };
        let ended = connection.run().await;
        connection.stream.close();
        if let Err(error) = ended {
            log::debug!(c = "NETWORK"; "connection {} lost: {error}", registered.activity.connection_id);
        }
    });
}

/// A connection's socket, as the server will use it.
fn take_over(stream: TcpStream, registered: &Registered) -> io::Result<Stream> {
    #[cfg(unix)]
    if registered.server.settings.tls.is_none() {
        let stream = Arc::new(stream.into_std()?);
        registered.activity.put_on(Box::new(Line(Arc::downgrade(&stream))));
        return Ok(Stream::Brisk(Box::new(brisk::BriskStream::new(stream))));
    }
    let stream = Arc::new(stream);
    registered.activity.put_on(Box::new(Line(Arc::downgrade(&stream))));
    Ok(Stream::Plain(stream))
}

/// A connection's entry in the registry, which goes with its task however that ends.
struct Registered {
    activity: Arc<Activity>,
    server: Arc<Server>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.activity.hold(0, &self.server.database);
        self.server.activities.close(&self.activity);
    }
}

/// Counts a request under way, from its frame to its reply.
struct Busy<'a>(&'a Server);

impl<'a> Busy<'a> {
    fn new(server: &'a Server) -> Busy<'a> {
        server.busy.fetch_add(1, Ordering::AcqRel);
        Busy(server)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A network thread while it handles a request.
struct Occupied<'a> {
    count: &'a AtomicUsize,
    /// How many were at it before.
    others: usize,
}

impl<'a> Occupied<'a> {
    fn new(count: &'a AtomicUsize) -> Occupied<'a> {
        Occupied { count, others: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Handles a frame on this thread. The last thread that isn't handling one hands its connections
/// on first, so that however long the others take, someone is there for new requests.
fn handle_here(state: &mut ConnectionState, server: &Server, frame: &[u8], out: &mut Vec<u8>) -> Outcome {
    let occupied = Occupied::new(&server.occupied);
    // What a server of another machine has to be asked always takes long.
    if occupied.others + 1 < network_threads() && !server.settings.shared {
        return handle(state, server, frame, out);
    }
    drop(occupied);
    let mut outcome = Outcome::Close;
    in_place(&mut || outcome = handle(state, server, frame, out));
    outcome
}

/// A request that has been handled: its reply, how much of that has been sent, and what becomes of it.
struct Begun {
    out: Vec<u8>,
    sent: usize,
    outcome: Outcome,
}

/// How many threads handle requests: more than cores, so that a long one seldom takes the last.
fn network_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(2, |cores| cores.get()).max(4))
}

/// A connection's task.
struct Connection {
    stream: Stream,
    server: Arc<Server>,
    state: ConnectionState,
    busy_poll: BusyPoll,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        let mut input = Vec::new();
        if !self.begin(&mut input).await? {
            return Ok(());
        }
        let mut complete_by = None;
        loop {
            #[cfg(unix)]
            if self.answer_briskly(&mut input).await?.is_break() {
                return Ok(());
            }
            if self.answer_frames(&mut input).await?.is_break() {
                return Ok(());
            }
            if input.is_empty() {
                buffers::give(std::mem::take(&mut input));
                complete_by = None;
            }
            let goes_on = match self.state.is_stranger(&self.server) {
                false => self.fill(&mut input).await?,
                true => self.fill_in_time(&mut input, &mut complete_by).await?,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// [`fill`](Connection::fill) for those who haven't logged in, who may neither be silent for long nor send a
    /// message bit by bit.
    async fn fill_in_time(
        &mut self,
        input: &mut Vec<u8>,
        complete_by: &mut Option<Instant>,
    ) -> io::Result<bool> {
        let time = self.server.settings.handshake_timeout;
        let until = match input.is_empty() {
            true => Instant::now() + time * IDLE_STRANGER,
            false => *complete_by.get_or_insert_with(|| Instant::now() + time),
        };
        match tokio::time::timeout_at(until.into(), self.fill(input)).await {
            Ok(filled) => filled,
            Err(_) => {
                self.tell("nobody has logged in, and nothing has come for too long");
                Ok(false)
            }
        }
    }

    /// Waits for bytes and reads what is there; `false` at the end of the stream.
    async fn fill(&mut self, input: &mut Vec<u8>) -> io::Result<bool> {
        self.state.activity.hold(input.capacity(), &self.server.database);
        let id = self.state.activity.connection_id;
        self.busy_poll.look(id, &self.server.latest, || self.stream.is_readable());
        let read = self.stream.fill(input).await?;
        self.server.counters.bytes_in.add(read as u64);
        Ok(read > 0)
    }

    /// Reads what the client begins with and, if that is TLS, agrees with it on how to encrypt; `false` where
    /// that was the end.
    async fn begin(&mut self, input: &mut Vec<u8>) -> io::Result<bool> {
        let tls = self.server.settings.tls.clone();
        let time = self.server.settings.handshake_timeout;
        let is_stranger = self.state.is_stranger(&self.server);
        let begins = self.first(input);
        // Where everybody may come in, silence does no harm.
        let first = match tls.is_some() || is_stranger {
            false => begins.await?,
            true => match tokio::time::timeout(time, begins).await {
                Ok(first) => first?,
                Err(_) => {
                    self.tell("it has sent nothing for too long");
                    return Ok(false);
                }
            },
        };
        match (first, tls) {
            (None, _) => Ok(false),
            (Some(First::Tls), Some(tls)) => {
                let raw = std::mem::take(input);
                match tokio::time::timeout(time, Box::pin(self.encrypt(&tls, raw))).await {
                    Ok(Ok(())) => Ok(true),
                    Ok(Err(error)) => {
                        self.tell(&format!("the TLS handshake failed: {error}"));
                        Ok(false)
                    }
                    Err(_) => {
                        self.tell("the TLS handshake took too long");
                        Ok(false)
                    }
                }
            }
            (Some(First::OldTls), Some(_)) => {
                self.tell("SSL handshake failed, as client requested disabled protocol");
                self.stream.send(&first::VERSION_ALERT).await?;
                Ok(false)
            }
            (Some(First::Tls | First::OldTls), None) => {
                self.tell("SSL handshake received but server is started without SSL support");
                Ok(false)
            }
            (Some(First::Message), Some(tls)) if tls.mode() == TlsMode::Require => {
                self.tell("The server is configured to only allow SSL connections");
                Ok(false)
            }
            (Some(First::Message | First::Web), _) => Ok(true),
        }
    }

    /// Reads until it is clear what the client begins with; `None` where it has gone before.
    async fn first(&mut self, input: &mut Vec<u8>) -> io::Result<Option<First>> {
        loop {
            if !self.fill(input).await? {
                return Ok(None);
            }
            if let Some(first) = First::of(input) {
                return Ok(Some(first));
            }
        }
    }

    /// Begins TLS on a connection that was plain until here.
    async fn encrypt(&mut self, tls: &Tls, raw: Vec<u8>) -> io::Result<()> {
        let Stream::Plain(socket) = std::mem::replace(&mut self.stream, Stream::Closed) else {
            return Ok(());
        };
        let mut stream = TlsStream::new(socket, tls.loaded().config.clone(), raw)?;
        stream.shake_hands().await?;
        let peer = Peer::new(stream.protocol(), stream.certificate());
        self.server.counters.count_protocol(peer.protocol);
        let (id, subject) = (self.state.activity.connection_id, peer.subject.as_deref());
        log::debug!(c = "NETWORK"; "connection {id} is encrypted by {:?}, the client is {subject:?}", peer.protocol);
        self.state.peer = Some(Box::new(peer));
        self.stream = Stream::Tls(Box::new(stream));
        Ok(())
    }

    /// Says in the log why the connection is closed: once to everybody for each address and reason.
    fn tell(&self, why: &str) {
        let activity = &self.state.activity;
        let level = match self.server.told.is_new(activity.client.ip(), why) {
            true => log::Level::Warn,
            false => log::Level::Debug,
        };
        let (remote, id) = (activity.client.to_string(), activity.connection_id);
        log::log!(
            level, id = 22988, c = "NETWORK", remote = remote.as_str(), connectionId = id, error = why;
            "Error receiving request from client. Ending connection from remote"
        );
    }

    /// Answers every whole frame in `input` and leaves what follows them.
    async fn answer_frames(&mut self, input: &mut Vec<u8>) -> io::Result<ControlFlow<()>> {
        let mut done = 0;
        while let Some(rest) = input.get(done..) {
            let length = match frame_length(rest) {
                Ok(Some(length)) if length > self.state.largest_message(&self.server) => {
                    self.tell(&format!(
                        "nobody has logged in, and a message of {length} bytes is too large for that"
                    ));
                    return Ok(ControlFlow::Break(()));
                }
                Ok(Some(length)) if length <= rest.len() => length,
                Ok(_) => break,
                Err(Trouble::Malformed(_)) if First::of(rest) == Some(First::Web) => {
                    self.tell("Client sent an HTTP request over a native MongoDB connection");
                    self.stream.send(&first::web_answer()).await?;
                    return Ok(ControlFlow::Break(()));
                }
                Err(Trouble::Malformed(what)) => {
                    self.tell(&what);
                    return Ok(ControlFlow::Break(()));
                }
                Err(Trouble::Refused(_)) => return Ok(ControlFlow::Break(())),
            };
            let frame = rest.get(..length).unwrap_or_default();
            if self.answer(frame, None).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            done += length;
            // A client that sends without pause gives way to others once in a while.
            tokio::task::coop::consume_budget().await;
        }
        input.drain(..done.min(input.len()));
        Ok(ControlFlow::Continue(()))
    }

    /// Answers one frame, however many replies or waits that takes; what has begun already goes on.
    async fn answer(&mut self, frame: &[u8], begun: Option<Begun>) -> io::Result<ControlFlow<()>> {
        let mut begun = begun;
        loop {
            let busy = Busy::new(&self.server);
            let Begun { mut out, sent, mut outcome } = begun.take().unwrap_or_else(|| {
                let mut out = buffers::take();
                let outcome = handle_here(&mut self.state, &self.server, frame, &mut out);
                Begun { out, sent: 0, outcome }
            });
            if let Outcome::Journal(position) = outcome {
                self.await_journal(position).await;
                outcome = handle_here(&mut self.state, &self.server, frame, &mut out);
            }
            if let Some(rest @ [_, ..]) = out.get(sent..) {
                let database = &self.server.database;
                self.state.activity.hold(out.capacity() + frame.len(), database);
                self.stream.send(rest).await?;
                self.state.activity.hold(0, database);
                self.server.counters.bytes_out.add(rest.len() as u64);
            }
            buffers::give(out);
            drop(busy);
            // It has been refused, or was the last that is answered here.
            if self.server.stopping.load(Ordering::Acquire) {
                return Ok(ControlFlow::Break(()));
            }
            match outcome {
                Outcome::Reply | Outcome::NoReply => return Ok(ControlFlow::Continue(())),
                Outcome::Stream => tokio::task::yield_now().await,
                // It has been waited for.
                Outcome::Journal(_) => {}
                Outcome::Close => return Ok(ControlFlow::Break(())),
                // Boxed, since few connections ever wait.
                Outcome::Wait(wait) => {
                    if !Box::pin(pause(&mut self.stream, wait)).await {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
    }

    /// Waits until the journal has a commit, or can't have it, which the reply tells. Who finds nobody syncing does so
    /// on this thread, since waking another one takes longer; who comes meanwhile holds none.
    async fn await_journal(&self, position: Position) {
        let database = &self.server.database;
        let awaited = poll_fn(|context| match database.await_journaled(position, context.waker()) {
            Awaited::Later => Poll::Pending,
            awaited => Poll::Ready(awaited),
        });
        if awaited.await == Awaited::Yours {
            in_place(&mut || _ = database.wait_journaled(position));
        }
    }
}

/// Waits as told; `false` if the client has gone meanwhile.
async fn pause(stream: &mut Stream, mut wait: Wait) -> bool {
    let happened = poll_fn(|context| match (wait.ready)(context.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    let time_is_over = tokio::time::sleep_until(wait.until.into());
    let go_on = async {
        race(happened, time_is_over).await;
        true
    };
    let end = async {
        stream.gone().await;
        false
    };
    race(go_on, end).await
}

/// The result of whichever future is ready first.
async fn race<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Pending => other.as_mut().poll(context),
        ready => ready,
    })
    .await
}

#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod tests;
