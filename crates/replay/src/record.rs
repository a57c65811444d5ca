//! The recorder: the listener, and the thread that writes the file. [`super::proxy`] forwards the traffic.
//!
//! A separate thread writes the events, so that a slow disk does not delay the traffic.
//!
//! Recording ends at the size limit, at a write error, and when the disk falls too far behind: the write queue is
//! bounded. Each reason is reported once, and the traffic continues.

use super::format::{Event, EventKind, encode, encode_start};
use super::proxy::{Shared, Upstream, serve_connection};
use super::redact::Redactor;
use base::bson::{Builder, DocumentBuf};
use jiff::Timestamp;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::net::TcpListener;
use wire::tls_client;
use wire::uri::ConnectionString;

/// Settings of a recorder.
pub struct Settings {
    /// The file to write. It must not exist.
    pub file: PathBuf,
    /// Size limit of the file in bytes. The traffic continues beyond it.
    pub max_size: u64,
    /// Fields whose values are replaced by values of the same type and length.
    pub redact: Vec<String>,
    /// The connection string as stored in the file, without user and password.
    pub redacted_uri: String,
}

/// A listening recorder.
pub struct Recorder {
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: AtomicU32,
}

impl Recorder {
    /// Listens at `address`, forwards connections to a server, and begins the file.
    ///
    /// # Errors
    /// The address is taken, the file exists or cannot be written, or the certificates of `uri` cannot be read.
    pub async fn start(
        address: &str,
        uri: &ConnectionString,
        server: &Upstream,
        settings: &Settings,
    ) -> Result<Recorder, String> {
        let tls = uri.tls.as_ref().map(tls_client::config).transpose()?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| format!("can't listen on {address}: {error}"))?;
        let sink = sink(settings, &server.server);
        let sink = sink.map_err(|error| format!("{}: {error}", settings.file.display()))?;
        let (redactor, withheld_cursors) = (Redactor::new(&settings.redact), Mutex::new(HashSet::new()));
        let host = server.host.clone();
        let shared = Arc::new(Shared { sink, redactor, host, tls: tls.map(Arc::new), withheld_cursors });
        Ok(Recorder { listener, shared, connections: AtomicU32::new(0) })
    }

    /// Returns the address for applications.
    ///
    /// # Errors
    /// The system cannot report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Records until `end` is ready. Returns a summary and the number of connections.
    pub async fn record(&self, end: impl Future<Output = ()>) -> (RecordingSummary, u32) {
        tokio::select! {
            () = self.serve() => {}
            () = end => {}
        }
        let written = tokio::task::block_in_place(|| self.shared.sink.finish());
        (written, self.connections.load(Relaxed))
    }

    /// Accepts connections. A failed connection is reported and affects no other.
    async fn serve(&self) {
        loop {
            match self.listener.accept().await {
                Ok((client, _)) => {
                    let shared = Arc::clone(&self.shared);
                    let number = self.connections.fetch_add(1, Relaxed) + 1;
                    tokio::spawn(async move {
                        if let Err(error) = serve_connection(client, number, &shared).await
                            && !is_disconnect(&error)
                        {
                            let _ = writeln!(stderr(), "connection {number}: {error}");
                        }
                    });
                }
                Err(error) => {
                    let _ = writeln!(stderr(), "cannot accept a connection: {error}");
                    // Out of file descriptors: wait until connections close.
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Creates the file, with a header that describes the recorded server.
fn sink(settings: &Settings, server: &str) -> io::Result<Sink> {
    let mut header = Builder::new();
    header.append(c"started", Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().as_str());
    header.append(c"lab", env!("CARGO_PKG_VERSION")).append(c"server", server);
    header.append(c"upstream", settings.redacted_uri.as_str()).begin_array(c"redacted");
    for path in &settings.redact {
        header.push(path.as_str());
    }
    header.end();
    Sink::create(&settings.file, &header.finish(), settings.max_size)
}

/// Returns true for the usual errors of a closed connection.
fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}

/// Limit of the write queue in bytes.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Reserved bytes for the last event, which contains the reason of the end.
const END_EVENT_SIZE: u64 = 256;

/// Destination of the events.
pub(super) struct Sink {
    sender: Mutex<Option<Sender<Vec<u8>>>>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
    start: Instant,
}

/// State shared by the writing thread and the connections.
#[derive(Default)]
struct State {
    queued_bytes: AtomicUsize,
    stopped: AtomicBool,
    /// True if the write queue has exceeded its limit.
    overflowed: AtomicBool,
    /// Summary, available at the end.
    summary: Mutex<RecordingSummary>,
}

/// Summary of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordingSummary {
    /// Size of the file.
    pub bytes: u64,
    /// Number of events.
    pub events: u64,
    /// Reason of an early end.
    pub why: Option<String>,
}

impl Sink {
    /// Creates the file with its header.
    ///
    /// # Errors
    /// The file exists or cannot be created.
    pub(super) fn create(path: &Path, header: &DocumentBuf, size_max: u64) -> io::Result<Sink> {
        let mut options = File::options();
        options.write(true).create_new(true);
        // Recorded data is private to its owner.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let head = encode_start(header);
        file.write_all(&head)?;
        let state = Arc::new(State::default());
        let (sender, events) = channel();
        let start = Instant::now();
        let out = BufWriter::with_capacity(1 << 20, file);
        let writer = Writer {
            out,
            path: path.to_path_buf(),
            state: Arc::clone(&state),
            size_max,
            size: head.len() as u64,
            start,
        };
        let thread =
            std::thread::Builder::new().name("recording".to_string()).spawn(move || writer.run(&events))?;
        Ok(Sink { sender: Mutex::new(Some(sender)), state, thread: Mutex::new(Some(thread)), start })
    }

    /// Returns true if recording has ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.stopped.load(Relaxed)
    }

    /// Records an event with the present time.
    pub(super) fn record(&self, connection: u32, kind: EventKind) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_ref().filter(|_| !self.is_stopped()) else { return };
        // Under the lock, so that times in the file never decrease.
        let event = Event { connection, at: elapsed(self.start), kind };
        let mut bytes = Vec::new();
        encode(&event, &mut bytes);
        if self.state.queued_bytes.fetch_add(bytes.len(), Relaxed) + bytes.len() > QUEUE_BYTES_MAX {
            self.state.overflowed.store(true, Relaxed);
            self.state.stopped.store(true, Relaxed);
            return;
        }
        // Fails only if the thread has ended, which has reported the reason.
        let _ = sender.send(bytes);
    }

    /// Writes the queue and the end event.
    pub(super) fn finish(&self) -> RecordingSummary {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panicked thread has reported its panic.
            let _ = thread.join();
        }
        self.state.summary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the microseconds since the start of the recording.
fn elapsed(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// State of the writing thread.
struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    state: Arc<State>,
    size_max: u64,
    size: u64,
    start: Instant,
}

impl Writer {
    /// Writes events until the end of the recording, the size limit or an error.
    fn run(mut self, events: &Receiver<Vec<u8>>) {
        let mut count = 0;
        let why = loop {
            let Ok(event) = events.recv() else { break None };
            if self.size + event.len() as u64 + END_EVENT_SIZE > self.size_max {
                break Some(format!("the file has reached its maximum size, {} bytes", self.size_max));
            }
            if let Err(error) = self.out.write_all(&event) {
                break Some(format!("cannot write the file: {error}"));
            }
            self.size += event.len() as u64;
            count += 1;
            self.state.queued_bytes.fetch_sub(event.len(), Relaxed);
            if self.state.overflowed.load(Relaxed) {
                break Some("the disk is slower than the traffic".to_string());
            }
        };
        self.state.stopped.store(true, Relaxed);
        let mut last = Vec::new();
        let kind = EventKind::End(why.clone().unwrap_or_default());
        encode(&Event { connection: 0, at: elapsed(self.start), kind }, &mut last);
        let ended = self.out.write_all(&last).and_then(|()| self.out.flush());
        let why = why.or(ended.err().map(|error| format!("cannot write the file: {error}")));
        if let Some(why) = &why {
            // Reported now and again at the end.
            let _ = writeln!(
                io::stderr(),
                "recording into {} stopped: {why}; traffic is still forwarded",
                self.path.display()
            );
        }
        let mut summary = self.state.summary.lock().unwrap_or_else(PoisonError::into_inner);
        *summary = RecordingSummary { bytes: self.size + last.len() as u64, events: count, why };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Reader;
    use crate::tests::Scratch;

    fn kinds(path: &Path) -> Vec<EventKind> {
        let mut reader = Reader::open(File::open(path).unwrap()).unwrap();
        std::iter::from_fn(|| reader.next_event().unwrap()).map(|event| event.kind).collect()
    }

    #[test]
    fn events_are_written_in_order_with_an_end() {
        let scratch = Scratch::new("sink-order");
        let path = scratch.path().join("r");
        let sink = Sink::create(&path, &DocumentBuf::empty(), 10_000).unwrap();
        sink.record(1, EventKind::Opened);
        sink.record(1, EventKind::Closed);
        let written = sink.finish();
        assert_eq!((written.events, written.why), (2, None));
        assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(kinds(&path), [EventKind::Opened, EventKind::Closed, EventKind::End(String::new())]);
        assert!(Sink::create(&path, &DocumentBuf::empty(), 10_000).is_err(), "the file exists");
    }

    #[test]
    fn a_full_file_ends_with_a_reason() {
        let scratch = Scratch::new("sink-full");
        let path = scratch.path().join("r");
        let sink = Sink::create(&path, &DocumentBuf::empty(), 2000).unwrap();
        for _ in 0..100 {
            sink.record(1, EventKind::Withheld("x".repeat(100)));
        }
        let written = sink.finish();
        assert!(written.bytes <= 2000 && written.why.unwrap().contains("size"));
        let kinds = kinds(&path);
        assert!(
            kinds.len() > 10 && matches!(kinds.last(), Some(EventKind::End(why)) if why.contains("2000")),
            "{kinds:?}"
        );
    }
}
