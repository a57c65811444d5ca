//! Byte streams between a front and a server: a socket, optionally with TLS.
//!
//! Includes the TLS settings: `sslmode` and the file parameters of libpq.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A socket that another thread may close during a read.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
    /// Opens a TCP or Unix socket with a timeout.
    fn open(host: &str, port: u16, timeout: Duration) -> io::Result<Socket> {
        #[cfg(unix)]
        if host.starts_with('/') {
            let path = std::path::Path::new(host).join(format!(".s.PGSQL.{port}"));
            return std::os::unix::net::UnixStream::connect(path).map(Socket::Unix);
        }
        let mut last = io::Error::new(ErrorKind::NotFound, format!("{host} has no address"));
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Socket::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Closes the socket, which ends a pending read.
    pub(crate) fn end(&self) {
        // The socket may already be closed.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(into),
            #[cfg(unix)]
            Socket::Unix(stream) => (&mut &*stream).read(into),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            #[cfg(unix)]
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket with or without TLS.
pub(crate) struct Stream {
    socket: Arc<Socket>,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects to a host, or to the socket in a directory.
    pub(crate) fn open(host: &str, port: u16, timeout: Duration) -> io::Result<Stream> {
        Socket::open(host, port, timeout).map(|socket| Stream { socket: Arc::new(socket), tls: None })
    }

    /// Returns the socket, for closing it from another thread.
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Starts TLS on the stream.
    ///
    /// Errors: errors of the handshake, mostly of certificate verification.
    pub(crate) fn encrypt(&mut self, config: &Arc<ClientConfig>, host: &str) -> io::Result<()> {
        let tls_error = |why: String| io::Error::new(ErrorKind::InvalidData, why);
        let name = ServerName::try_from(host.to_string())
            .map_err(|_| tls_error(format!("{host} is not a valid name for a certificate")))?;
        let connection = ClientConnection::new(config.clone(), name);
        let mut connection = connection.map_err(|error| tls_error(error.to_string()))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut &*self.socket)?;
        }
        self.tls = Some(Box::new(connection));
        Ok(())
    }

    /// Sets the timeout of a read.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &*self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Returns true if no unread bytes have arrived. Returns false if the socket cannot be tested.
    pub(crate) fn is_quiet(&self) -> bool {
        #[cfg(unix)]
        {
            use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
            use std::os::fd::AsFd;
            let socket = match &*self.socket {
                Socket::Tcp(stream) => stream.as_fd(),
                Socket::Unix(stream) => stream.as_fd(),
            };
            poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(0)
        }
        #[cfg(not(unix))]
        false
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match &*self.socket {
            Socket::Tcp(stream) => stream.set_nonblocking(on),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.set_nonblocking(on),
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&*self.socket).read(into),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut &*self.socket).read(into),
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => (&*self.socket).write_all(bytes),
            Some(tls) => {
                let mut socket = &*self.socket;
                let mut stream = rustls::Stream::new(&mut **tls, &mut socket);
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }
}

/// Use of TLS in one connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encrypt {
    /// No TLS.
    No,
    /// TLS if the server supports it.
    IfOffered,
    /// TLS required.
    Yes,
}

/// Modes of libpq.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    Disable,
    Allow,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// TLS settings of a connection string.
#[derive(Clone, Default)]
pub struct Tls {
    mode: Mode,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    client: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.mode)
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        (self.mode, &self.root, &self.certificate, &self.key)
            == (other.mode, &other.root, &other.certificate, &other.key)
    }
}

impl Eq for Tls {}

/// The parsed parameters.
#[derive(Default)]
pub(crate) struct TlsOptions {
    pub(crate) mode: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

impl TlsOptions {
    /// Reads the files. Defaults come from the environment, and from the directory of libpq.
    ///
    /// Errors: a message about an unknown mode or an unusable file.
    pub(crate) fn finish(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Tls, String> {
        let mode = match self.mode.or_else(|| environment("PGSSLMODE")).as_deref() {
            None => Mode::default(),
            Some("disable") => Mode::Disable,
            Some("allow") => Mode::Allow,
            Some("prefer") => Mode::Prefer,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(other) => return Err(format!("unknown sslmode={other}")),
        };
        let beside = |name: &str| {
            let path = Path::new(&environment("HOME")?).join(".postgresql").join(name);
            path.exists().then(|| path.display().to_string())
        };
        let find = |given: Option<String>, variable: &str, name: &str| {
            given.or_else(|| environment(variable)).or_else(|| beside(name))
        };
        let root = find(self.root, "PGSSLROOTCERT", "root.crt");
        let certificate = find(self.certificate, "PGSSLCERT", "postgresql.crt");
        let key = find(self.key, "PGSSLKEY", "postgresql.key");
        let client = (mode != Mode::Disable)
            .then(|| client(mode, root.as_deref(), certificate.as_deref(), key.as_deref()));
        Ok(Tls { mode, root, certificate, key, client: client.transpose()?.map(Arc::new) })
    }
}

/// Creates the TLS configuration of a mode from files of authorities, certificate and key.
fn client(
    mode: Mode,
    root: Option<&str>,
    certificate: Option<&str>,
    key: Option<&str>,
) -> Result<ClientConfig, String> {
    let (verifies, full) = (matches!(mode, Mode::VerifyCa | Mode::VerifyFull), mode == Mode::VerifyFull);
    let is_system = root == Some("system");
    if verifies && root.is_none() {
        return Err("sslmode=verify-ca and verify-full need sslrootcert: a file, or system".to_string());
    }
    if is_system && !full {
        return Err("sslrootcert=system needs sslmode=verify-full".to_string());
    }
    let pair = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(wire::certificates::key_pair_from(Path::new(certificate), Path::new(key))?)
        }
        (Some(_), None) => return Err("sslcert needs sslkey".to_string()),
        (None, _) => None,
    };
    let tls_options = wire::uri::TlsOptions {
        ca_file: root.filter(|_| !is_system).map(PathBuf::from),
        // As in libpq: a configured authority enables verification in every mode.
        allow_invalid_certificates: root.is_none(),
        allow_invalid_hostnames: !full,
        ..wire::uri::TlsOptions::default()
    };
    wire::tls_client::config_with(&tls_options, pair)
}

impl Tls {
    /// Returns the attempts to connect, in order.
    pub(crate) fn attempts(&self, host: &str) -> &'static [Encrypt] {
        match self.mode {
            _ if host.starts_with('/') => &[Encrypt::No],
            Mode::Disable => &[Encrypt::No],
            Mode::Allow => &[Encrypt::No, Encrypt::Yes],
            Mode::Prefer => &[Encrypt::IfOffered, Encrypt::No],
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[Encrypt::Yes],
        }
    }

    /// Returns the TLS configuration of the client.
    pub(crate) fn client(&self) -> Option<&Arc<ClientConfig>> {
        self.client.as_ref()
    }
}
