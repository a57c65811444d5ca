//! Network threads woken while requests run in place.
//!
//! A network thread that wakes with one task runs it and wakes no other thread. Until the task ends, no thread polls
//! the sockets. A look every few milliseconds finds that a request runs and none has begun since the last look. It then
//! wakes a thread with an empty task. That thread polls the sockets before it sleeps again.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::runtime::Handle;

/// Interval of the looks.
const INTERVAL: Duration = Duration::from_millis(5);

/// Interval after [`IDLE_LOOKS`] looks without requests.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);
const IDLE_LOOKS: u32 = 200;

/// What a look finds.
pub(super) struct Requests {
    /// Number of requests so far.
    pub(super) begun: u64,
    /// True if a network thread runs one in place.
    pub(super) run_in_place: bool,
}

/// Wakes network threads until the sender of `end` is dropped or `look` returns `None`.
pub(super) fn run(network: &Handle, end: &Receiver<()>, look: impl Fn() -> Option<Requests>) {
    let (mut begun, mut idle) = (0, 0);
    loop {
        let interval = if idle < IDLE_LOOKS { INTERVAL } else { IDLE_INTERVAL };
        if end.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let Some(now) = look() else { return };
        let has_begun = now.begun != begun;
        if now.run_in_place && !has_begun {
            network.spawn(async {});
        }
        idle = if now.run_in_place || has_begun { 0 } else { idle.saturating_add(1) };
        begun = now.begun;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::mpsc::channel;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A server that answers each byte. The byte `w` waits in place until it may end.
    #[derive(Default)]
    struct Echo {
        begun: AtomicU64,
        waits: AtomicBool,
        may_end: AtomicBool,
    }

    async fn answer(mut socket: tokio::net::TcpStream, echo: Arc<Echo>) {
        let mut byte = [0];
        while socket.read_exact(&mut byte).await.is_ok() {
            echo.begun.fetch_add(1, SeqCst);
            if byte == *b"w" {
                echo.waits.store(true, SeqCst);
                while !echo.may_end.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                echo.waits.store(false, SeqCst);
            }
            socket.write_all(&byte).await.unwrap();
        }
    }

    #[test]
    fn sockets_are_polled_while_a_request_runs_in_place() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let echo = Arc::new(Echo::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = echo.clone();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, accepting.clone()));
            }
        });
        let (looks, end) = channel();
        let (looked, network) = (echo.clone(), runtime.handle().clone());
        let look = move || {
            Some(Requests { begun: looked.begun.load(SeqCst), run_in_place: looked.waits.load(SeqCst) })
        };
        runtime.spawn_blocking(move || run(&network, &end, look));
        let connect = || {
            let socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket
        };
        let (mut waiting, mut other) = (connect(), connect());
        let mut byte = [0];
        for _ in 0..10 {
            echo.may_end.store(false, SeqCst);
            waiting.write_all(b"w").unwrap();
            while !echo.waits.load(SeqCst) {
                std::thread::yield_now();
            }
            other.write_all(b"p").unwrap();
            let answer = other.read_exact(&mut byte);
            echo.may_end.store(true, SeqCst);
            answer.expect("no thread polls the socket");
            waiting.read_exact(&mut byte).unwrap();
        }
        drop(looks);
    }
}
