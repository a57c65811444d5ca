//! The connection to the server, encrypted where its connection string says so.

use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// A connection of either kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// Connects to `host`, which has a port.
///
/// # Errors
/// Nobody answers, or not as the certificate has to say.
pub(super) async fn connect(host: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<Box<dyn Duplex>> {
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let Some(config) = tls else { return Ok(Box::new(stream)) };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_string();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?))
}
