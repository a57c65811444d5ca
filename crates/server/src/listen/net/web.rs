//! Sockets of the HTTP server: few connections (`connection_limit.rs`), each with limits on memory and time.

use super::stream::Stream;
use super::tls_stream::TlsStream;
use super::{race, stream};
use crate::listen::http::{self, Answer, Malformed, Peer, Request, Response};
use crate::process::blocking::in_place;
use crate::process::connection_limit::Permit;
use crate::server::Server;
use crate::state::http as http_state;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{MissedTickBehavior, timeout};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// Maximum silence between requests.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Timeout of a request's arrival, of a handshake and of a response's transmission.
const STEP_MAX: Duration = Duration::from_secs(10);

/// First byte of a TLS client.
const TLS_RECORD: u8 = 0x16;

/// Listens and serves until the runtime ends. `/readyz` therefore reports a shutdown.
///
/// Errors: the port cannot be opened, usually because it is in use.
pub(super) async fn listen(server: &Arc<Server>) -> io::Result<()> {
    let Some(options) = &server.settings.http else { return Ok(()) };
    let explained = |error: io::Error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "Address already in use. Choose another with --http, or --http 0 for a free one.".to_string()
            }
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("--http {}: {why}", options.address))
    };
    let socket = if options.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(options.address).map_err(explained)?;
    let listener = socket.listen(BACKLOG).map_err(explained)?;
    server.http.address.get_or_init(|| listener.local_addr().unwrap_or(options.address));
    tokio::spawn(sample(Arc::downgrade(server)));
    tokio::spawn(accept(listener, server.clone()));
    Ok(())
}

/// Samples the operations while the server exists.
async fn sample(server: Weak<Server>) {
    let mut ticks = tokio::time::interval(http_state::INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let Some(server) = server.upgrade() else { return };
        http::sample(&server);
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => admit(stream, client, &server),
            Err(error) => {
                log::warn!("cannot accept an HTTP connection: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn admit(socket: TcpStream, client: SocketAddr, server: &Arc<Server>) {
    let Some(permit) = server.http.connection_limit.acquire(client.ip()) else {
        server.http.rejected.add(1);
        return;
    };
    let guard = PermitGuard { permit, server: server.clone() };
    let Ok(local) = socket.local_addr() else { return };
    if let Err(error) = socket.set_nodelay(true) {
        log::debug!("TCP_NODELAY for {client}: {error}");
    }
    tokio::spawn(async move {
        let peer = Peer { client, local, is_encrypted: false, has_waited: false };
        let (permit, server) = (&*guard.permit, &*guard.server);
        let stream = Stream::Plain(Arc::new(socket));
        let mut connection = HttpConnection { stream, peer, server, permit, input: Vec::new() };
        let lost = async {
            permit.evicted().await;
            server.http.rejected.add(1);
            Err(io::Error::other("too many HTTP connections"))
        };
        if let Err(error) = race(connection.run(), lost).await {
            log::debug!("HTTP from {client}: {error}");
        }
        connection.stream.close();
    });
}

/// A connection's place, released when dropped.
struct PermitGuard {
    permit: Arc<Permit>,
    server: Arc<Server>,
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        self.server.http.connection_limit.release(&self.permit);
    }
}

/// A connection.
struct HttpConnection<'a> {
    stream: Stream,
    peer: Peer,
    server: &'a Server,
    permit: &'a Permit,
    /// Received bytes without a response.
    input: Vec<u8>,
}

impl HttpConnection<'_> {
    async fn run(&mut self) -> io::Result<()> {
        if !self.begin().await? {
            return Ok(());
        }
        while self.answer().await? {}
        Ok(())
    }

    /// Reads the first bytes and runs a TLS handshake if TLS is on. Returns false if the connection
    /// ended.
    async fn begin(&mut self) -> io::Result<bool> {
        let Some(tls) = &self.server.settings.tls else { return Ok(true) };
        let Stream::Plain(socket) = &mut self.stream else { return Ok(false) };
        let filled =
            timeout(STEP_MAX, poll_fn(|context| stream::poll_fill(socket, context, &mut self.input))).await;
        if !matches!(filled, Ok(Ok(1..))) {
            return Ok(false);
        }
        if self.input.first() != Some(&TLS_RECORD) {
            let refused = Malformed(400, "this server uses HTTPS: use https://");
            self.refuse(refused).await?;
            return Ok(false);
        }
        let Stream::Plain(socket) = std::mem::replace(&mut self.stream, Stream::Closed) else {
            return Ok(false);
        };
        let mut encrypted =
            TlsStream::new(socket, tls.loaded().config.clone(), std::mem::take(&mut self.input))?;
        timeout(STEP_MAX, encrypted.shake_hands()).await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.peer.is_encrypted = true;
        self.stream = Stream::Tls(Box::new(encrypted));
        Ok(true)
    }

    /// Reads a request and sends the response. Returns false after the last request.
    async fn answer(&mut self) -> io::Result<bool> {
        let length = match self.read().await? {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(false),
            Err(malformed) => {
                self.refuse(malformed).await?;
                return Ok(false);
            }
        };
        if !self.permit.begin_request() {
            return Ok(false);
        }
        let bytes: Vec<u8> = self.input.drain(..length).collect();
        let Ok(Some((request, _))) = Request::read(&bytes) else { return Ok(false) };
        let mut peer = self.peer;
        let response = loop {
            match in_place(|| http::answer(self.server, &request, peer)) {
                Answer::Now(response) => break response,
                Answer::Later(_) if peer.has_waited => return Ok(false),
                // Failed logins must not hold all places.
                Answer::Later(wait) if self.permit.begin_delay() => tokio::time::sleep(wait).await,
                Answer::Later(_) => return Ok(false),
            }
            if !self.permit.begin_request() {
                return Ok(false);
            }
            peer.has_waited = true;
        };
        let stays = request.stays && response.status < 500;
        let head_alone = request.method == "HEAD";
        self.send(&response.bytes(head_alone, stays)).await?;
        Ok(stays)
    }

    /// Waits for a whole request. Returns its length; `None` at the end of the stream.
    async fn read(&mut self) -> io::Result<Result<Option<usize>, Malformed>> {
        let mut started: Option<Instant> = None;
        loop {
            if !self.input.is_empty() {
                match Request::read(&self.input) {
                    Ok(Some((_, length))) => return Ok(Ok(Some(length))),
                    Ok(None) => {}
                    Err(malformed) => return Ok(Err(malformed)),
                }
                started = started.or_else(|| Some(Instant::now()));
            }
            let left = started.map_or(IDLE_MAX, |started| STEP_MAX.saturating_sub(started.elapsed()));
            match timeout(left, self.stream.fill(&mut self.input)).await {
                Ok(Ok(0)) => return Ok(Ok(None)),
                Ok(filled) => _ = filled?,
                Err(_) if started.is_none() => return Ok(Ok(None)),
                Err(_) => return Ok(Err(Malformed(408, "the request was not received in time"))),
            }
        }
    }

    async fn refuse(&mut self, Malformed(status, why): Malformed) -> io::Result<()> {
        self.server.http.count("", status, Duration::ZERO);
        self.send(&Response::text(status, why).bytes(false, false)).await
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.permit.begin_wait() {
            return Ok(());
        }
        timeout(STEP_MAX, self.stream.write_all(bytes)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}
