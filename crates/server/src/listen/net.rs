//! Sockets, the only asynchronous code.
//!
//! Each connection has a task that drives its [`Driver`]: it waits for bytes without a buffer,
//! reads them, and writes replies, usually with one system call each. Requests run in place on the
//! network thread. Work that may take long leaves the thread through
//! [`in_place`](crate::process::blocking::in_place).
//!
//! This file accepts connections, detects TLS, and waits for events. `pinned.rs` serves a connection on a dedicated
//! thread, `tls_stream.rs` encrypts, and `web.rs` serves HTTP. Rules about bytes of the protocol belong to the driver.

#[cfg(unix)]
mod pinned;
mod stream;
mod tls_stream;
mod wake;
mod web;

use crate::commands::diagnostics::server_info::host_name;
use crate::listen::background::{self, Background, Deletions};
use crate::listen::driver::{Driver, DriverAction, ThreadKind};
use crate::observe::activity::Activity;
use crate::process::blocking::{IdleProcessors, STACK_SIZE, network_threads, threads_max};
use crate::process::event::Event;
use crate::server::Server;
use crate::state::connection::{ConnectionState, Peer};
use crate::state::replica_set::connect_address;
use crate::state::tls::{Tls, TlsMode};
use database::{Database, threads};
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};
use stream::{Protocol, SocketHandle, Stream};
use tls_stream::TlsStream;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use wire::busy_poll::BusyPoll;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 4096;

/// Minimum number of threads for waiting commands, if the connection limit is low.
const BLOCKING_MIN: usize = 512;

/// Idle limit before authentication, as a multiple of the handshake timeout. Drivers' monitors
/// never authenticate and send a message every ten seconds.
const IDLE_UNAUTHENTICATED: u32 = 20;

/// Time that a shutdown waits for replies before it interrupts operations.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(500);

/// Interval of the checks whether a client with a further request has disconnected.
const DISCONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// Time that a shutdown waits for interrupted operations.
const INTERRUPTED_WAIT: Duration = Duration::from_secs(2);

/// Listens and serves until [`Server::stop`]. Calls `ready` with the address when clients can connect.
///
/// The program handles signals, since they may come before this call. Only Ctrl-C on Windows is handled here.
///
/// Errors: startup errors, usually an address in use.
pub fn serve(server: &Arc<Server>, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let (runtime, spare) = start_runtime(server)?;
    server.helpers.get_or_init(|| Arc::new(IdleProcessors(server.processors.clone())));
    let (mut background, mut deletions) = (Background::default(), Deletions::default());
    let (watched, swept) = (Arc::downgrade(server), Arc::downgrade(server));
    threads::spawn_essential("vellum-background", Some(STACK_SIZE), move || {
        background::run(&watched, |server| background.tick(server))
    })?;
    threads::spawn_essential("vellum-deletions", Some(STACK_SIZE), move || {
        background::run(&swept, |server| deletions.tick(server))
    })?;
    if let Some(limit) = server.settings.memory_limit.clone() {
        let watched = Arc::downgrade(server);
        server.database.set_memory_limit(limit.of_data());
        threads::spawn_essential("vellum-memory", None, move || {
            crate::listen::memory::watch(&watched, limit)
        })?;
    }
    let result = runtime.block_on(listen(server, ready));
    drop(spare);
    // Dropped tasks close the connections, which are idle now.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Starts the network threads and a spare thread that wakes them until its sender is dropped.
///
/// The runtime panics if the system refuses a thread while no spare thread exists. With a spare
/// thread it continues without the new thread.
///
/// Errors: failure to start threads.
fn start_runtime(server: &Arc<Server>) -> io::Result<(Runtime, Sender<()>)> {
    let waiting = server.settings.connections_max.max(BLOCKING_MIN);
    let workers = network_threads();
    if !threads::has_address_space(STACK_SIZE * (workers + 1)) {
        return Err(io::Error::other("the address space (ulimit -v) is too small for the network threads"));
    }
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(workers)
        .thread_name("vellum-net")
        // A waiting command (for a transaction's end, for fsyncUnlock) holds a thread.
        .max_blocking_threads(threads_max().map_or(waiting, |max| max.min(waiting)))
        .thread_stack_size(STACK_SIZE)
        .enable_all();
    let start = || -> io::Result<(Runtime, Sender<()>)> {
        let runtime = builder.build()?;
        let (spare, end) = channel();
        let (network, watched) = (runtime.handle().clone(), Arc::downgrade(server));
        let look = move || {
            let server = watched.upgrade()?;
            let run_in_place = server.network.active_threads.load(Ordering::Relaxed) > 0;
            Some(wake::Requests { begun: server.activities.operations(), run_in_place })
        };
        runtime.spawn_blocking(move || wake::run(&network, &end, look));
        Ok((runtime, spare))
    };
    std::panic::catch_unwind(AssertUnwindSafe(start))
        .unwrap_or_else(|_| Err(io::Error::other("the system cannot start the network threads")))
}

async fn listen(server: &Arc<Server>, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let address = SocketAddr::new(server.settings.bind, server.settings.port);
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    server.database.set_host(format!("{}:{}", host_name(), address.port()));
    if let Some(set) = server.set() {
        let config = set.config();
        let known = server.settings.advertise.as_ref().or(config.host.as_ref());
        let host = known.cloned().unwrap_or_else(|| connect_address(address));
        if let Err(error) = set.store(&config, &host, &server.database) {
            log::warn!("storing the configuration of the replica set: {error}");
        }
    }
    server.http.server.get_or_init(|| connect_address(address));
    web::listen(server).await?;
    ready(address);
    let mut stop = server.network.stop.listen(0);
    let stopped = poll_fn(|context| match stop.has_happened(context.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    let interrupted = async {
        if cfg!(unix) || tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
        log::info!("SIGINT: stopping");
    };
    race(accept(&listener, server), race(stopped, interrupted)).await;
    drop(listener);
    finish_replies(server).await;
    Ok(())
}

/// Waits for current replies and interrupts slow operations.
async fn finish_replies(server: &Server) {
    server.network.refuse_requests();
    // Writes blocked by fsync would never finish.
    while server.database.unlock_writes().is_some() {}
    server.database.clean_up();
    let idle = async || {
        while server.network.active_requests.load(Ordering::Acquire) != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_WAIT, idle()).await.is_err() {
        server.database.stop_operations();
        if tokio::time::timeout(INTERRUPTED_WAIT, idle()).await.is_err() {
            log::warn!("stopping while commands still run");
        }
    }
}

async fn accept(listener: &TcpListener, server: &Arc<Server>) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => admit(stream, client, server),
            Err(error) => {
                // Usually no file descriptor is free. Other connections must close first.
                log::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn admit(stream: TcpStream, client: SocketAddr, server: &Arc<Server>) {
    if server.activities.counts().0 >= server.settings.connections_max {
        server.counters.connections_rejected.add(1);
        log::warn!(
            "connection from {client} refused: {} connections are open",
            server.settings.connections_max
        );
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    // Replies are written as a whole, so Nagle's algorithm would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        log::debug!(c = "NETWORK"; "TCP_NODELAY for {client}: {error}");
    }
    let activity = server.activities.open(client);
    let stream = to_stream(stream, &activity, server);
    let connection = Connection::new(stream, ConnectionState::new(activity, local), server.clone());
    drop(tokio::spawn(serve_client(connection)));
}

/// Serves a client until its connection ends.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async function has room for the connection twice"
)]
fn serve_client(mut connection: Connection) -> impl Future<Output = ()> {
    async move {
        let result = connection.run().await;
        connection.stream.close();
        if let Err(error) = result {
            let id = connection.driver.state.activity.connection_id;
            log::debug!(c = "NETWORK"; "connection {id} lost: {error}");
        }
    }
}

/// Converts an accepted socket to the stream that the server uses. Returns a closed stream if the socket cannot be
/// taken from the runtime.
fn to_stream(stream: TcpStream, activity: &Activity, server: &Server) -> Stream {
    #[cfg(unix)]
    if server.settings.tls.is_none() {
        let stream = match stream.into_std() {
            Ok(stream) => Arc::new(stream),
            Err(error) => {
                log::warn!("cannot poll the connection from {}: {error}", activity.client);
                return Stream::Closed;
            }
        };
        activity.set_handle(Box::new(SocketHandle(Arc::downgrade(&stream))));
        return Stream::Pinned(Box::new(pinned::PinnedStream::new(stream)));
    }
    let stream = Arc::new(stream);
    activity.set_handle(Box::new(SocketHandle(Arc::downgrade(&stream))));
    Stream::Plain(stream)
}

/// A connection's task. Its end, for any reason, removes the connection from the registry.
struct Connection {
    stream: Stream,
    driver: Driver,
    busy_poll: BusyPoll,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Driver { server, state, .. } = &self.driver;
        state.activity.record_buffers(0, &server.database);
        server.activities.close(&state.activity);
    }
}

impl Connection {
    fn new(stream: Stream, state: ConnectionState, server: Arc<Server>) -> Connection {
        let busy_poll = BusyPoll::new(server.settings.busy_poll);
        Connection { stream, driver: Driver::new(server, state), busy_poll }
    }

    async fn run(&mut self) -> io::Result<()> {
        // Boxed, because it runs once.
        if !Box::pin(self.begin()).await? {
            return Ok(());
        }
        let mut complete_by = None;
        loop {
            match self.driver.advance(ThreadKind::Shared) {
                DriverAction::Send => self.send().await?,
                DriverAction::Wait => {
                    // Boxed, because few connections wait.
                    if !Box::pin(self.wait()).await {
                        return Ok(());
                    }
                }
                DriverAction::Read => {
                    // Boxed, because few connections have no user.
                    let is_open = match self.driver.state.is_unauthenticated(&self.driver.server.auth) {
                        true => Box::pin(self.fill_in_time(&mut complete_by)).await?,
                        false => self.fill().await?,
                    };
                    if !is_open {
                        return Ok(());
                    }
                    #[cfg(unix)]
                    self.serve_on_dedicated_thread()?;
                }
                DriverAction::Refuse(_) if Protocol::of(&self.driver.input) == Some(Protocol::Http) => {
                    self.log_close("Client sent an HTTP request over a native MongoDB connection");
                    return Box::pin(self.stream.write_all(&stream::http_response())).await;
                }
                DriverAction::Refuse(reason) => {
                    self.log_close(&reason);
                    return Ok(());
                }
                DriverAction::Close => return Ok(()),
            }
        }
    }

    /// Sends the driver's pending bytes to the client.
    async fn send(&mut self) -> io::Result<()> {
        let Connection { stream, driver, .. } = self;
        driver.state.activity.record_reply(driver.buffered_bytes(), &driver.server.database);
        while !driver.unsent().is_empty() {
            let sent = stream.write(driver.unsent()).await?;
            driver.count_sent(sent);
        }
        driver.state.activity.end_reply(&driver.server.database);
        match driver.streams() {
            true => tokio::task::yield_now().await,
            // A client with many replies must yield to other clients at intervals.
            false => tokio::task::coop::consume_budget().await,
        }
        Ok(())
    }

    /// Waits for the event of the request. Returns false if the client disconnects. A wait for the journal or in the
    /// middle of writes ignores disconnects: writes run to their end.
    async fn wait(&mut self) -> bool {
        let Connection { stream, driver, .. } = self;
        let Some(mut event) = driver.event.take() else { return true };
        let ignores_disconnects = driver.ignores_disconnects(&event);
        if !matches!(event, Event::Journaled { .. }) {
            driver.state.activity.record_buffers(driver.buffered_bytes(), &driver.server.database);
        }
        let server = driver.server.clone();
        let happened = wait_for_event(&mut event, &server.database);
        if ignores_disconnects {
            happened.await;
            return true;
        }
        let event_happened = async {
            happened.await;
            true
        };
        let end = async {
            if !stream.disconnected().await {
                // The next request has come. Its bytes hide the end of the connection from reads.
                while !driver.state.activity.is_disconnected() {
                    tokio::time::sleep(DISCONNECT_INTERVAL).await;
                }
            }
            false
        };
        race(event_happened, end).await
    }

    /// Calls [`fill`](Connection::fill) with a limit for unauthenticated clients, on their silence
    /// and on the time of a whole message.
    async fn fill_in_time(&mut self, complete_by: &mut Option<Instant>) -> io::Result<bool> {
        let (driver, now) = (&self.driver, Instant::now());
        let time = driver.server.settings.handshake_timeout;
        let until = match driver.input.is_empty() {
            true => {
                *complete_by = None;
                now + time * IDLE_UNAUTHENTICATED
            }
            false => *complete_by.get_or_insert(now + time),
        };
        match tokio::time::timeout_at(until.into(), self.fill()).await {
            Ok(filled) => filled,
            Err(_) => {
                self.log_close("no login and no data within the time limit");
                Ok(false)
            }
        }
    }

    /// Waits for bytes and reads them. Returns false at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        let Connection { stream, driver, busy_poll, .. } = self;
        let Driver { state, server, input, .. } = driver;
        state.activity.record_buffers(input.capacity(), &server.database);
        busy_poll
            .poll(state.activity.connection_id, &server.network.latest_connection, || stream.is_readable());
        let read = stream.fill(input).await?;
        server.counters.bytes_in.add(read as u64);
        Ok(read > 0)
    }

    /// Reads the first bytes and runs a TLS handshake if they begin one. Returns false if the
    /// connection ended.
    async fn begin(&mut self) -> io::Result<bool> {
        let Driver { server, state, .. } = &self.driver;
        let tls = server.settings.tls.clone();
        let time = server.settings.handshake_timeout;
        let is_unauthenticated = state.is_unauthenticated(&server.auth);
        let begins = self.protocol();
        // Without TLS and access control a silent client is harmless.
        let protocol = match tls.is_some() || is_unauthenticated {
            false => begins.await?,
            true => match tokio::time::timeout(time, begins).await {
                Ok(protocol) => protocol?,
                Err(_) => {
                    self.log_close("no data within the time limit");
                    return Ok(false);
                }
            },
        };
        match (protocol, tls) {
            (None, _) => Ok(false),
            (Some(Protocol::Tls), Some(tls)) => {
                let raw = std::mem::take(&mut self.driver.input);
                match tokio::time::timeout(time, Box::pin(self.encrypt(&tls, raw))).await {
                    Ok(Ok(())) => Ok(true),
                    Ok(Err(error)) => {
                        self.log_close(&format!("the TLS handshake failed: {error}"));
                        Ok(false)
                    }
                    Err(_) => {
                        self.log_close("the TLS handshake took too long");
                        Ok(false)
                    }
                }
            }
            (Some(Protocol::OldTls), Some(_)) => {
                self.log_close("SSL handshake failed, as client requested disabled protocol");
                self.stream.write_all(&stream::VERSION_ALERT).await?;
                Ok(false)
            }
            (Some(Protocol::Tls | Protocol::OldTls), None) => {
                self.log_close("SSL handshake received but server is started without SSL support");
                Ok(false)
            }
            (Some(Protocol::Message), Some(tls)) if tls.mode() == TlsMode::Require => {
                self.log_close("The server is configured to only allow SSL connections");
                Ok(false)
            }
            (Some(Protocol::Message | Protocol::Http), _) => Ok(true),
        }
    }

    /// Reads until the client's protocol is known; `None` if the client disconnects first.
    async fn protocol(&mut self) -> io::Result<Option<Protocol>> {
        loop {
            if !self.fill().await? {
                return Ok(None);
            }
            if let Some(protocol) = Protocol::of(&self.driver.input) {
                return Ok(Some(protocol));
            }
        }
    }

    /// Begins TLS on a plain connection.
    async fn encrypt(&mut self, tls: &Tls, raw: Vec<u8>) -> io::Result<()> {
        let Stream::Plain(socket) = std::mem::replace(&mut self.stream, Stream::Closed) else {
            return Ok(());
        };
        let mut stream = TlsStream::new(socket, tls.loaded().config.clone(), raw)?;
        stream.shake_hands().await?;
        let peer = Peer::new(stream.protocol(), stream.certificate());
        let Driver { server, state, .. } = &mut self.driver;
        server.counters.count_protocol(peer.protocol);
        let (id, subject) = (state.activity.connection_id, peer.subject.as_deref());
        log::debug!(c = "NETWORK"; "connection {id} is encrypted by {:?}, the client is {subject:?}", peer.protocol);
        state.peer = Some(Box::new(peer));
        self.stream = Stream::Tls(Box::new(stream));
        Ok(())
    }

    /// Logs why the connection is closed: a warning once for each address and reason, later debug records.
    fn log_close(&self, why: &str) {
        let activity = &self.driver.state.activity;
        let level = match self.driver.server.network.reported.is_new(activity.client.ip(), why) {
            true => log::Level::Warn,
            false => log::Level::Debug,
        };
        let (remote, id) = (activity.client.to_string(), activity.connection_id);
        log::log!(
            level, id = 22988, c = "NETWORK", remote = remote.as_str(), connectionId = id, error = why;
            "Error receiving request from client. Ending connection from remote"
        );
    }
}

/// Waits for an event or its deadline.
async fn wait_for_event(event: &mut Event, database: &Database) {
    let until = event.until();
    let happened = poll_fn(|context| match event.has_happened(database, context.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    match until {
        Some(until) => race(happened, tokio::time::sleep_until(until.into())).await,
        None => happened.await,
    }
}

/// Returns the result of the future that is ready first.
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
