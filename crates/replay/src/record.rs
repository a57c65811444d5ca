//! The recorder: listens, passes everything on, and writes down what passed.

use super::passage::{Shared, pass};
use super::redact::Redactor;
use super::sink::{Sink, Written};
use super::upstream::Upstream;
use base::bson::Builder;
use jiff::Timestamp;
use std::collections::HashSet;
use std::io::{self, Write, stderr};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use wire::trust;
use wire::uri::ConnectionString;

/// What to record.
pub struct Settings {
    /// The file to write, which must not exist.
    pub file: PathBuf,
    /// The size at which recording stops, bytes. The traffic goes on.
    pub max_size: u64,
    /// Fields whose values are replaced by others of the same type and length.
    pub redact: Vec<String>,
    /// The connection string as the file shows it: without user and password.
    pub shown: String,
}

/// A recorder that listens.
pub struct Recorder {
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: AtomicU32,
}

impl Recorder {
    /// Listens at `address` for connections to pass on to a server, and begins the file.
    ///
    /// # Errors
    /// The address is taken, the file exists or cannot be written, or the certificates of `uri` cannot be read.
    pub async fn start(
        address: &str,
        uri: &ConnectionString,
        server: &Upstream,
        settings: &Settings,
    ) -> Result<Recorder, String> {
        let tls = uri.tls.as_ref().map(trust::config).transpose()?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| format!("can't listen on {address}: {error}"))?;
        let sink = sink(settings, &server.server);
        let sink = sink.map_err(|error| format!("{}: {error}", settings.file.display()))?;
        let (redactor, hidden) = (Redactor::new(&settings.redact), Mutex::new(HashSet::new()));
        let host = server.host.clone();
        let shared = Arc::new(Shared { sink, redactor, host, tls: tls.map(Arc::new), hidden });
        Ok(Recorder { listener, shared, connections: AtomicU32::new(0) })
    }

    /// Where applications connect.
    ///
    /// # Errors
    /// The system does not know.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Records until `end` is ready. Returns what was written and the number of connections.
    pub async fn record(&self, end: impl Future<Output = ()>) -> (Written, u32) {
        tokio::select! {
            () = self.serve() => {}
            () = end => {}
        }
        let written = tokio::task::block_in_place(|| self.shared.sink.finish());
        (written, self.connections.load(Relaxed))
    }

    /// Takes connections. A connection that fails is reported and concerns no other.
    async fn serve(&self) {
        loop {
            match self.listener.accept().await {
                Ok((client, _)) => {
                    let shared = Arc::clone(&self.shared);
                    let number = self.connections.fetch_add(1, Relaxed) + 1;
                    tokio::spawn(async move {
                        if let Err(error) = pass(client, number, &shared).await
                            && !is_leave(&error)
                        {
                            let _ = writeln!(stderr(), "connection {number}: {error}");
                        }
                    });
                }
                Err(error) => {
                    let _ = writeln!(stderr(), "a connection can't be taken: {error}");
                    // Out of descriptors: others have to end first.
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }
}

fn sink(settings: &Settings, server: &str) -> io::Result<Sink> {
    let mut header = Builder::new();
    header.append(c"started", Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().as_str());
    header.append(c"lab", env!("CARGO_PKG_VERSION")).append(c"server", server);
    header.append(c"upstream", settings.shown.as_str()).begin_array(c"redacted");
    for path in &settings.redact {
        header.push(path.as_str());
    }
    header.end();
    Sink::create(&settings.file, &header.finish(), settings.max_size)
}

/// Whether this is how clients and servers leave.
fn is_leave(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}
