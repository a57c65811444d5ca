//! Tests of a server on a real socket: framing across reads, limits, disconnects, shutdown.

use super::*;
use crate::state::settings::Settings;
use base::bson::{Builder as DocumentBuilder, Document};
use database::{Database, SystemClock};
use std::io::{Read, Write};
use std::net::TcpStream as Socket;
use std::sync::mpsc;
use std::thread::JoinHandle;
use wire::header::{self, Opcode};

/// A server that runs until it is dropped.
pub(super) struct Running {
    pub(super) server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(settings: Settings) -> Running {
        Running::on(Arc::new(storage::MemoryEngine::new()), settings)
    }

    pub(super) fn on(engine: Arc<dyn storage::Engine>, settings: Settings) -> Running {
        let database = Database::open(engine, Arc::new(SystemClock), 1).unwrap();
        let server = Arc::new(Server::new(settings, database).unwrap());
        let (send, receive) = mpsc::channel();
        let its_server = server.clone();
        let thread =
            std::thread::spawn(move || serve(&its_server, |address| send.send(address).unwrap()).unwrap());
        let address = receive.recv().unwrap();
        Running { server, address, thread: Some(thread) }
    }

    pub(super) fn connect(&self) -> Socket {
        let socket = Socket::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

fn ping(comment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    header::begin(&mut out, 1, 0, Opcode::Message);
    out.extend_from_slice(&[0; 5]);
    let mut document = DocumentBuilder::with_buffer(out);
    document.append(c"ping", 1).append(c"comment", comment).append(c"$db", "admin");
    let mut out = document.into_buffer();
    header::finish(&mut out, 0);
    out
}

/// Reads one reply. Returns false if the server has closed the connection.
fn is_answered(socket: &mut Socket) -> bool {
    let mut length = [0; 4];
    if socket.read_exact(&mut length).is_err() {
        return false;
    }
    let mut rest = vec![0; u32::from_le_bytes(length) as usize - 4];
    socket.read_exact(&mut rest).unwrap();
    Document::from_valid(&rest[17..]).find("ok").is_some()
}

/// Returns the settings of a server with local data and of a server with a shared store.
fn both_kinds() -> [Settings; 2] {
    [false, true].map(|shared| Settings { shared, ..Settings::default() })
}

#[test]
fn frames_arrive_in_pieces_and_several_at_once() {
    both_kinds().into_iter().for_each(send_in_pieces);
}

fn send_in_pieces(settings: Settings) {
    let running = Running::start(settings);
    let mut socket = running.connect();
    let frame = ping("");
    for piece in frame.chunks(7) {
        socket.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_answered(&mut socket));
    let many = frame.repeat(300);
    socket.write_all(&many[..many.len() - 5]).unwrap();
    (0..299).for_each(|_| assert!(is_answered(&mut socket)));
    socket.write_all(&many[many.len() - 5..]).unwrap();
    assert!(is_answered(&mut socket));
    socket.write_all(&ping(&"x".repeat(5_000_000))).unwrap();
    assert!(is_answered(&mut socket));
    std::thread::sleep(Duration::from_millis(30));
    for pause in [0, 0, 1, 30, 0] {
        socket.write_all(&frame).unwrap();
        assert!(is_answered(&mut socket));
        std::thread::sleep(Duration::from_millis(pause));
    }
}

#[cfg(unix)]
#[test]
fn a_busy_connection_has_a_thread_until_it_pauses() {
    let running = Running::start(Settings { shared: true, ..Settings::default() });
    let threads = || running.server.network.dedicated_threads.count();
    let mut sockets: Vec<Socket> = (0..3).map(|_| running.connect()).collect();
    let ask = |sockets: &mut Vec<Socket>| {
        for socket in sockets {
            socket.write_all(&ping("")).unwrap();
            assert!(is_answered(socket));
        }
    };
    let until = |sockets: &mut Vec<Socket>, expected: usize, asking: bool| {
        let began = Instant::now();
        while threads() != expected {
            assert!(began.elapsed() < Duration::from_secs(20), "{} threads", threads());
            match asking {
                true => ask(sockets),
                false => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    };
    until(&mut sockets, 3, true);
    until(&mut sockets, 0, false);
    // A client that does not read its replies keeps no thread and loses no reply.
    let mut deaf = running.connect();
    let mut reader = deaf.try_clone().unwrap();
    let writes = std::thread::spawn(move || {
        let frame = ping(&"x".repeat(1000));
        (0..60_000).for_each(|_| deaf.write_all(&frame).unwrap());
    });
    std::thread::sleep(Duration::from_millis(300));
    ask(&mut sockets);
    (0..60_000).for_each(|_| assert!(is_answered(&mut reader)));
    writes.join().unwrap();
}

/// With local data at most one client per processor has a thread. No client has a thread while more
/// clients are busy.
#[cfg(unix)]
#[test]
fn many_busy_connections_have_no_threads() {
    let running = Running::start(Settings::default());
    let threads = || running.server.network.dedicated_threads.count();
    let processors = std::thread::available_parallelism().unwrap().get();
    let mut sockets: Vec<Socket> = (0..processors).map(|_| running.connect()).collect();
    let until = |sockets: &mut Vec<Socket>, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{} threads", threads());
            for socket in sockets.iter_mut() {
                socket.write_all(&ping("")).unwrap();
                assert!(is_answered(socket));
            }
        }
    };
    until(&mut sockets, &|| threads() == processors);
    sockets.push(running.connect());
    until(&mut sockets, &|| threads() == 0);
    sockets.pop();
    until(&mut sockets, &|| threads() == processors);
}

#[test]
fn nonsense_closes_its_own_connection_alone() {
    let running = Running::start(Settings::default());
    let mut good = running.connect();
    for nonsense in
        [&b"PRI * HTTP/2.0\r\n\r\n"[..], &[0xFF; 64], &[16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 0, 0]]
    {
        let mut bad = running.connect();
        bad.write_all(nonsense).unwrap();
        assert!(!is_answered(&mut bad));
    }
    good.write_all(&ping("")).unwrap();
    assert!(is_answered(&mut good));
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let running = Running::start(Settings { connections_max: 2, ..Settings::default() });
    let mut sockets = [running.connect(), running.connect()];
    for socket in &mut sockets {
        socket.write_all(&ping("")).unwrap();
        assert!(is_answered(socket));
    }
    let mut third = running.connect();
    let _ = third.write_all(&ping(""));
    assert!(!is_answered(&mut third));
    drop(sockets);
    let began = Instant::now();
    while running.server.activities.counts().0 > 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "closed connections are forgotten");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_client_that_leaves_while_waiting_is_noticed() {
    both_kinds().into_iter().for_each(|settings| leave_while_waiting(settings, &[]));
}

#[test]
fn a_client_that_leaves_after_another_byte_is_noticed() {
    both_kinds().into_iter().for_each(|settings| leave_while_waiting(settings, &[1]));
}

/// Closes a connection whose hello waits, after sending these bytes.
fn leave_while_waiting(settings: Settings, more: &[u8]) {
    let running = Running::start(settings);
    let mut socket = running.connect();
    for _ in 0..20 {
        socket.write_all(&ping("")).unwrap();
        assert!(is_answered(&mut socket));
    }
    let mut out = Vec::new();
    header::begin(&mut out, 1, 0, Opcode::Message);
    out.extend_from_slice(&[0; 5]);
    let mut hello = DocumentBuilder::with_buffer(out);
    hello.append(c"hello", 1).append(c"maxAwaitTimeMS", 600_000).begin_document(c"topologyVersion");
    hello.append(c"processId", running.server.topology.process_id).append(c"counter", 0i64).end();
    hello.append(c"$db", "admin");
    let mut out = hello.into_buffer();
    header::finish(&mut out, 0);
    socket.write_all(&out).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(running.server.activities.counts().0, 1);
    socket.write_all(more).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(socket);
    let began = Instant::now();
    while running.server.activities.counts().0 > 0 {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn stopping_closes_idle_connections_at_once() {
    both_kinds().into_iter().for_each(stop_while_idle);
}

fn stop_while_idle(settings: Settings) {
    let running = Running::start(settings);
    let mut socket = running.connect();
    for _ in 0..20 {
        socket.write_all(&ping("")).unwrap();
        assert!(is_answered(&mut socket));
    }
    let began = Instant::now();
    drop(running);
    assert!(!is_answered(&mut socket));
    assert!(began.elapsed() < Duration::from_secs(5));
}

fn secured() -> Settings {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/tests/fixtures/plain.pem");
    let options = crate::state::tls::TlsOptions {
        mode: TlsMode::Require,
        certificate_key_file: fixture.into(),
        password: None,
        ca_file: None,
        crl_file: None,
        without_certificates: false,
        tls12: true,
        tls13: true,
    };
    let tls = Some(Arc::new(Tls::open(options).unwrap()));
    Settings { tls, handshake_timeout: Duration::from_millis(300), ..Settings::default() }
}

/// Returns true if the server closes the connection soon.
fn is_closed(socket: &mut Socket) -> bool {
    let began = Instant::now();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).is_ok() && began.elapsed() < Duration::from_secs(10)
}

#[test]
fn a_handshake_that_gets_nowhere_is_closed() {
    let running = Running::start(secured());
    let mut silent = running.connect();
    let mut slow = running.connect();
    slow.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]).unwrap();
    let mut slower = running.connect();
    slower.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 7, 7, 7, 7, 7, 7]).unwrap();
    for socket in [&mut silent, &mut slow, &mut slower] {
        assert!(is_closed(socket));
    }
}

#[test]
fn without_tls_silence_does_no_harm() {
    let running = Running::start(Settings { tls: None, ..secured() });
    let mut silent = running.connect();
    std::thread::sleep(Duration::from_millis(600));
    silent.write_all(&ping("")).unwrap();
    assert!(is_answered(&mut silent));
}

#[test]
fn slow_handshakes_delay_no_other_client() {
    let settings = Settings { handshake_timeout: Duration::from_secs(20), ..secured() };
    let running = Running::start(settings);
    let slow: Vec<_> = (0..64)
        .map(|_| {
            let mut socket = running.connect();
            socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 7, 7, 7, 7, 7, 7]).unwrap();
            socket
        })
        .collect();
    let began = Instant::now();
    let mut web = running.connect();
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    web.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("over HTTP on the native driver port"), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(slow);
}

#[test]
fn strangers_may_neither_send_much_nor_wait_long() {
    let handshake_timeout = Duration::from_millis(100);
    let running = Running::start(Settings { auth: true, handshake_timeout, ..Settings::default() });
    let mut large = running.connect();
    large.write_all(&ping(&"x".repeat(16 * 1024))[..64]).unwrap();
    assert!(is_closed(&mut large));
    let mut silent = running.connect();
    assert!(is_closed(&mut silent));
    let mut slow = running.connect();
    slow.write_all(&ping("")).unwrap();
    assert!(is_answered(&mut slow));
    let began = Instant::now();
    for byte in ping("") {
        // Until the server closes the connection.
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_closed(&mut slow) && began.elapsed() > handshake_timeout);
    let mut idle = running.connect();
    idle.write_all(&ping("")).unwrap();
    assert!(is_answered(&mut idle));
    std::thread::sleep(handshake_timeout * 4);
    idle.write_all(&ping("")).unwrap();
    assert!(is_answered(&mut idle));
    assert!(is_closed(&mut idle));
}

/// Thousands of clients may be idle, and each has a task. With the 104 bytes of the runtime it takes 512 bytes.
#[test]
fn the_task_of_a_client_is_small() {
    fn size_of_future<A, F>(_: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }
    let bytes = size_of_future(serve_client);
    assert!(bytes <= 408, "{bytes}");
}
