//! The recorder: listens, passes everything on, and writes down what passed.
//!
//! Where events go: a thread of its own writes them, so that no disk holds up the traffic.
//!
//! The file ends where its size would pass what was allowed, where it can't be written, and where the disk falls too
//! far behind: what waits to be written is bounded, too. Each time that is said once, and the traffic goes on.

use super::format::{Event, What, begin, encode};
use super::passage::{Shared, pass};
use super::redact::Redactor;
use super::upstream::Upstream;
use base::bson::{Builder, DocumentBuf};
use jiff::Timestamp;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
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

/// What may wait to be written, bytes.
const WAITING_MAX: usize = 64 << 20;

/// Room for the last event, which says why there are no more.
const LAST: u64 = 256;

/// Takes events.
pub(super) struct Sink {
    sender: Mutex<Option<Sender<Vec<u8>>>>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
    began: Instant,
}

#[derive(Default)]
struct State {
    waiting: AtomicUsize,
    stopped: AtomicBool,
    /// More waits than may.
    behind: AtomicBool,
    /// What was written, in the end.
    told: Mutex<Written>,
}

/// What a recording came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// Size of the file.
    pub bytes: u64,
    /// Events in it.
    pub events: u64,
    /// Why it ended before it was ended.
    pub why: Option<String>,
}

impl Sink {
    /// Makes the file, which must not be there, with what is known before the first event.
    ///
    /// # Errors
    /// It is there, or can't be made.
    pub(super) fn create(path: &Path, header: &DocumentBuf, size_max: u64) -> io::Result<Sink> {
        let mut options = File::options();
        options.write(true).create_new(true);
        // What people send to their databases is nobody else's business.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let start = begin(header);
        file.write_all(&start)?;
        let state = Arc::new(State::default());
        let (sender, events) = channel();
        let began = Instant::now();
        let out = BufWriter::with_capacity(1 << 20, file);
        let writer = Writer {
            out,
            path: path.to_path_buf(),
            state: Arc::clone(&state),
            size_max,
            size: start.len() as u64,
            began,
        };
        let thread =
            std::thread::Builder::new().name("recording".to_string()).spawn(move || writer.run(&events))?;
        Ok(Sink { sender: Mutex::new(Some(sender)), state, thread: Mutex::new(Some(thread)), began })
    }

    /// Whether nothing is recorded any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.stopped.load(Relaxed)
    }

    /// Takes an event that happens now.
    pub(super) fn take(&self, connection: u32, what: What) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_ref().filter(|_| !self.is_stopped()) else { return };
        // Under the lock, so that times in the file never go back.
        let event = Event { connection, at: elapsed(self.began), what };
        let mut bytes = Vec::new();
        encode(&event, &mut bytes);
        if self.state.waiting.fetch_add(bytes.len(), Relaxed) + bytes.len() > WAITING_MAX {
            self.state.behind.store(true, Relaxed);
            self.state.stopped.store(true, Relaxed);
            return;
        }
        // Fails only if the thread has ended, which has said why.
        let _ = sender.send(bytes);
    }

    /// Writes what waits, and the end.
    pub(super) fn finish(&self) -> Written {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.state.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn elapsed(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The thread's side.
struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    state: Arc<State>,
    size_max: u64,
    size: u64,
    began: Instant,
}

impl Writer {
    fn run(mut self, events: &Receiver<Vec<u8>>) {
        let mut count = 0;
        let why = loop {
            let Ok(event) = events.recv() else { break None };
            if self.size + event.len() as u64 + LAST > self.size_max {
                break Some(format!("the file has reached its size, {} bytes", self.size_max));
            }
            if let Err(error) = self.out.write_all(&event) {
                break Some(format!("it can't be written: {error}"));
            }
            self.size += event.len() as u64;
            count += 1;
            self.state.waiting.fetch_sub(event.len(), Relaxed);
            if self.state.behind.load(Relaxed) {
                break Some("the disk doesn't keep up with the traffic".to_string());
            }
        };
        self.state.stopped.store(true, Relaxed);
        let mut last = Vec::new();
        let what = What::End(why.clone().unwrap_or_default());
        encode(&Event { connection: 0, at: elapsed(self.began), what }, &mut last);
        let ended = self.out.write_all(&last).and_then(|()| self.out.flush());
        let why = why.or(ended.err().map(|error| format!("it can't be written: {error}")));
        if let Some(why) = &why {
            // Whoever runs this sees it now, and in the end.
            let _ = writeln!(
                io::stderr(),
                "recording into {} stopped: {why}; the traffic goes on",
                self.path.display()
            );
        }
        let mut told = self.state.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Written { bytes: self.size + last.len() as u64, events: count, why };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Reader;
    use crate::tests::Scratch;

    fn whats(path: &Path) -> Vec<What> {
        let mut reader = Reader::open(File::open(path).unwrap()).unwrap();
        std::iter::from_fn(|| reader.next_event().unwrap()).map(|event| event.what).collect()
    }

    #[test]
    fn events_are_written_in_order_with_an_end() {
        let scratch = Scratch::new("sink-order");
        let path = scratch.path().join("r");
        let sink = Sink::create(&path, &DocumentBuf::empty(), 10_000).unwrap();
        sink.take(1, What::Opened);
        sink.take(1, What::Closed);
        let written = sink.finish();
        assert_eq!((written.events, written.why), (2, None));
        assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(whats(&path), [What::Opened, What::Closed, What::End(String::new())]);
        assert!(Sink::create(&path, &DocumentBuf::empty(), 10_000).is_err(), "what is there stays");
    }

    #[test]
    fn a_full_file_ends_and_says_so() {
        let scratch = Scratch::new("sink-full");
        let path = scratch.path().join("r");
        let sink = Sink::create(&path, &DocumentBuf::empty(), 2000).unwrap();
        for _ in 0..100 {
            sink.take(1, What::Withheld("x".repeat(100)));
        }
        let written = sink.finish();
        assert!(written.bytes <= 2000 && written.why.unwrap().contains("size"));
        let whats = whats(&path);
        assert!(
            whats.len() > 10 && matches!(whats.last(), Some(What::End(why)) if why.contains("2000")),
            "{whats:?}"
        );
    }
}
