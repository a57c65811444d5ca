//! The bytes between a front and a server: a socket, and what encrypts it.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

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
