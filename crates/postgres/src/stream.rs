//! The bytes between a front and a server: a socket, and what encrypts it.
//!
//! Whether and how connections are encrypted: libpq's `sslmode` and the files beside it.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::uri::Encryption;

/// A socket, which others may end while somebody reads from it.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl Socket {
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

    /// Ends it: whoever waits for an answer waits no longer.
    pub(crate) fn end(&self) {
        // One that has ended by itself is as good.
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

/// A socket, encrypted or not.
pub(crate) struct Stream {
    socket: Arc<Socket>,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Connects to a host, or to the socket in a directory.
    pub(crate) fn open(host: &str, port: u16, timeout: Duration) -> io::Result<Stream> {
        Socket::open(host, port, timeout).map(|socket| Stream { socket: Arc::new(socket), tls: None })
    }

    /// The socket, for whoever may have to end it.
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Encrypts what follows.
    ///
    /// Errors: those of the handshake, of a certificate that isn't believed above all.
    pub(crate) fn encrypt(&mut self, config: &Arc<ClientConfig>, host: &str) -> io::Result<()> {
        let told = |why: String| io::Error::new(ErrorKind::InvalidData, why);
        let name = ServerName::try_from(host.to_string())
            .map_err(|_| told(format!("{host} is no name that a certificate can have")))?;
        let connection = ClientConnection::new(config.clone(), name);
        let mut connection = connection.map_err(|error| told(error.to_string()))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut &*self.socket)?;
        }
        self.tls = Some(Box::new(connection));
        Ok(())
    }

    /// How long a read may take.
    pub(crate) fn limit(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &*self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Whether nothing has come that nobody has read; where that can't be known it isn't so.
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

/// What is asked of one attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encrypt {
    /// No encryption.
    No,
    /// Encryption where the server has it.
    IfOffered,
    /// Encryption.
    Yes,
}

/// libpq's modes.
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

/// What a connection string says of encryption.
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

/// The parameters as they were read.
#[derive(Default)]
pub(crate) struct TlsOptions {
    pub(crate) mode: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

impl TlsOptions {
    /// Reads the files; what isn't said comes from the environment, and from libpq's own folder.
    ///
    /// Errors: an unknown mode, files that don't serve, in words.
    pub(crate) fn finish(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Tls, String> {
        let mode = match self.mode.or_else(|| environment("PGSSLMODE")).as_deref() {
            None => Mode::default(),
            Some("disable") => Mode::Disable,
            Some("allow") => Mode::Allow,
            Some("prefer") => Mode::Prefer,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(other) => return Err(format!("sslmode={other} is not known")),
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
            Some(wire::certificates::pair_of(Path::new(certificate), Path::new(key))?)
        }
        (Some(_), None) => return Err("sslcert needs sslkey".to_string()),
        (None, _) => None,
    };
    let encryption = Encryption {
        ca_file: root.filter(|_| !is_system).map(PathBuf::from),
        // As libpq does: who names an authority has certificates checked, whatever the mode.
        any_certificate: root.is_none(),
        any_name: !full,
        ..Encryption::default()
    };
    wire::trust::config_with(&encryption, pair)
}

impl Tls {
    /// How to connect, one way after the other.
    pub(crate) fn attempts(&self, host: &str) -> &'static [Encrypt] {
        match self.mode {
            _ if host.starts_with('/') => &[Encrypt::No],
            Mode::Disable => &[Encrypt::No],
            Mode::Allow => &[Encrypt::No, Encrypt::Yes],
            Mode::Prefer => &[Encrypt::IfOffered, Encrypt::No],
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[Encrypt::Yes],
        }
    }

    /// What connections are encrypted with.
    pub(crate) fn client(&self) -> Option<&Arc<ClientConfig>> {
        self.client.as_ref()
    }
}
