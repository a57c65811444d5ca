//! Polling of the sockets while requests run in place.
//!
//! A network thread that wakes with one task runs it and wakes no other thread. Until the task ends, no thread polls
//! the sockets. A look every few milliseconds finds running requests, and wakes a thread with an empty task. That
//! thread polls the sockets before it sleeps again.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::runtime::Handle;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(5);

/// Number of looks without a request before the thread sleeps until the next request.
const IDLE_LOOKS: u32 = 200;

/// Longest sleep, after which the thread sees that the server is gone.
const SLEEP: Duration = Duration::from_secs(1);

/// The thread that wakes network threads.
#[derive(Default)]
pub(crate) struct SocketPoll {
    thread: OnceLock<Thread>,
    sleeps: AtomicBool,
}

impl SocketPoll {
    /// Wakes the thread for a request.
    pub(crate) fn begin_request(&self) {
        if self.sleeps.load(Relaxed)
            && self.sleeps.swap(false, AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Looks until `is_active` returns `None`. It returns true while a request runs on a network thread.
    pub(crate) fn run(&self, network: &Handle, is_active: impl Fn() -> Option<bool>) {
        self.thread.get_or_init(thread::current);
        let mut idle = 0;
        while let Some(active) = is_active() {
            idle = if active { 0 } else { idle + 1 };
            if active {
                network.spawn(async {});
            }
            if idle < IDLE_LOOKS {
                thread::sleep(INTERVAL);
                continue;
            }
            self.sleeps.store(true, SeqCst);
            if is_active() == Some(false) {
                thread::park_timeout(SLEEP);
            }
            // A request has cleared the flag.
            idle = if self.sleeps.swap(false, AcqRel) { IDLE_LOOKS } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// State of a server that answers each byte. The byte `w` waits in place until it may end.
    #[derive(Default)]
    struct Served {
        active: AtomicUsize,
        may_end: AtomicBool,
        is_over: AtomicBool,
    }

    async fn answer(mut socket: tokio::net::TcpStream, served: Arc<Served>) {
        let mut byte = [0];
        while socket.read_exact(&mut byte).await.is_ok() {
            if byte == *b"w" {
                served.active.fetch_add(1, SeqCst);
                while !served.may_end.load(SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                served.active.fetch_sub(1, SeqCst);
            }
            socket.write_all(&byte).await.unwrap();
        }
    }

    #[test]
    fn sockets_are_polled_while_a_request_runs_in_place() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let (served, poll) = (Arc::new(Served::default()), Arc::new(SocketPoll::default()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let accepted = served.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, accepted.clone()));
            }
        });
        let looking = {
            let (poll, served, network) = (poll.clone(), served.clone(), runtime.handle().clone());
            let is_active = move || (!served.is_over.load(SeqCst)).then(|| served.active.load(SeqCst) > 0);
            thread::spawn(move || poll.run(&network, is_active))
        };
        let connect = || {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket
        };
        let (mut waiting, mut other) = (connect(), connect());
        let mut byte = [0];
        for _ in 0..10 {
            served.may_end.store(false, SeqCst);
            waiting.write_all(b"w").unwrap();
            poll.begin_request();
            while served.active.load(SeqCst) == 0 {
                thread::yield_now();
            }
            other.write_all(b"p").unwrap();
            let answer = other.read_exact(&mut byte);
            served.may_end.store(true, SeqCst);
            answer.expect("no thread polls the socket");
            waiting.read_exact(&mut byte).unwrap();
        }
        served.is_over.store(true, SeqCst);
        looking.join().unwrap();
    }
}
