//! `vellum top`: lines without a terminal, a screen on a terminal, and its output for servers with fewer counters.

use crate::authority::{Authority, Caller, Files};
use crate::requests::until;
use crate::server::Server;
use base::bson::extended_json::parse;
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wire::scram::Mechanism;

fn top(server: &Server, more: &[&str]) -> Command {
    let uri = format!("mongodb://{}/", server.address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(["top", &uri]).args(more);
    command
}

/// Runs an action while documents are inserted and read.
fn under_load<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.connect().unwrap();
            while !done.load(Ordering::Relaxed) {
                client
                    .command(&parse("{insert: 'busy', documents: [{a: 1}], $db: 'shop'}").unwrap())
                    .unwrap();
                client.command(&parse("{find: 'busy', limit: 1, $db: 'shop'}").unwrap()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let result = act();
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn lines_are_printed_without_a_terminal() {
    let Some(server) = Server::start() else { return };
    let output = under_load(&server, || {
        top(&server, &["--count", "2", "--interval", "0.5", "--rows", "3"])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    });
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{printed}");
    let lines: Vec<&str> = printed.lines().filter(|line| !line.starts_with("  shop")).collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert!(head.starts_with(&["insert", "query"]) && lines.len() == 3, "{printed}");
    for line in &lines[1..] {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells.len(), head.len(), "{printed}");
        let rate = |at: usize| cells[at].parse::<f64>().unwrap();
        assert!(rate(0) > 1.0 && rate(1) > 1.0 && rate(2) == 0.0, "{printed}");
        assert!(cells[6].ends_with('s') && cells[7].ends_with('s'), "{printed}");
    }
    assert!(printed.matches("  shop.busy ").count() == 2 && !printed.contains('\u{1b}'), "{printed}");
}

#[test]
fn a_terminal_shows_a_screen_until_q() {
    let Some(server) = Server::start() else { return };
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let pair = openpty(&size, None).unwrap();
    let (shown, status) = under_load(&server, || {
        let mut command = top(&server, &["--interval", "0.3"]);
        command.stdin(pair.slave.try_clone().unwrap()).stdout(pair.slave.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        drop(command);
        drop(pair.slave);
        let mut terminal = File::from(pair.master);
        let mut reader = terminal.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let text = |shown: &Mutex<Vec<u8>>| String::from_utf8_lossy(&shown.lock().unwrap()).to_string();
        let read = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                let mut piece = [0; 4096];
                // The read fails once the other end is closed.
                while let Ok(count) = reader.read(&mut piece)
                    && count > 0
                {
                    shown.lock().unwrap().extend_from_slice(&piece[..count]);
                }
            }
        });
        until("two screens, with the collection", || {
            let shown = text(&shown);
            shown.matches("\u{1b}[H").count() > 1 && shown.contains("shop.busy")
        });
        terminal.write_all(b"q").unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        read.join().unwrap();
        (text(&shown), child.wait().unwrap())
    });
    assert!(status.success(), "{shown}");
    let screens = shown.matches("\u{1b}[H").count();
    assert!(screens > 1 && shown.starts_with("\u{1b}[?1049h"), "{screens}: {shown}");
    assert!(shown.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{shown}");
    for part in ["insert", "collection, ms/s", "shop.busy", "q quits"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn missing_privileges_are_reported() {
    let Some(server) = Server::start_with(&["--auth"]) else { return };
    let output = top(&server, &["--count", "1"]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && printed.contains("not authorized"), "{printed}");
}

#[test]
fn users_connect_over_tls() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let (files, authority) = (Files::new("top"), Authority::new("Tests"));
    let ca = files.write("ca.pem", &authority.pem());
    let own = files.write("server.pem", &authority.certificate("server").pem);
    let Some(server) =
        Server::start_with(&["--auth", "--tls-mode", "require", "--tls-certificate-key-file", &own])
    else {
        return;
    };
    let caller = Caller { trusts: Some(&authority), shows: None, version: None };
    let mut client = caller.connect(server.address()).unwrap();
    // The first user is created from this machine without a login.
    for user in [
        "{createUser: 'admin', pwd: 'secret', roles: ['root'], $db: 'admin'}",
        "{createUser: 'looker', pwd: 'eyes', roles: ['clusterMonitor'], $db: 'admin'}",
    ] {
        client.command(&parse(user).unwrap()).unwrap();
        client.login(("admin", "admin"), "secret", Mechanism::Sha256).unwrap();
    }
    let look = |uri: String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command.args(["top", &uri, "--count", "1", "--interval", "0.3", "--rows", "5"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let at = |user: &str| format!("mongodb://{user}{}/?tls=true&tlsCAFile={ca}", server.address());
    let done = AtomicBool::new(false);
    let (succeeded, printed) = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                client
                    .command(&parse("{insert: 'seen', documents: [{a: 1}], $db: 'shop'}").unwrap())
                    .unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let looked = look(at("looker:eyes@"));
        done.store(true, Ordering::Relaxed);
        looked
    });
    let lines: Vec<&str> = printed.lines().collect();
    assert!(succeeded && lines.len() >= 2 && lines[0].trim_start().starts_with("insert"), "{printed}");
    let cells = |line: &str| line.split_whitespace().count();
    assert_eq!(cells(lines[0]), cells(lines[1]), "{printed}");
    assert!(!printed.contains("not authorized") && printed.contains("shop.seen"), "{printed}");
    let (succeeded, printed) = look(at("looker:wrong@"));
    assert!(!succeeded && printed.contains("Authentication failed"), "{printed}");
    let (succeeded, printed) = look(at(""));
    assert!(!succeeded && printed.contains("requires authentication"), "{printed}");
    let (succeeded, printed) = look(format!("mongodb://looker:eyes@{}/", server.address()));
    assert!(!succeeded, "without TLS: {printed}");
}
