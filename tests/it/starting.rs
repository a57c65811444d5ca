//! The first minutes: output and log lines, options from the environment and a file, signals, a data directory in use,
//! `ping`, and a missing lab.

use crate::client::Client;
use crate::requests::until;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::scram::Mechanism;

/// A test's directory, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("start-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Leftovers are in the target directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn vellum(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server whose banner has been read.
struct Started {
    child: Child,
    banner: Vec<String>,
}

impl Started {
    fn new(command: &mut Command) -> Started {
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut banner = Vec::new();
        for line in output.lines().map_while(Result::ok) {
            let last = line.starts_with("try: ");
            banner.push(line);
            if last {
                break;
            }
        }
        assert!(banner.first().is_some_and(|line| line.starts_with("mongodb://")), "{banner:?}");
        Started { child, banner }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Opens a connection.
    fn client(&self) -> Client {
        let address = self.banner[0].trim_start_matches("mongodb://").trim_end_matches('/');
        Client::connect(address, Duration::from_secs(20)).unwrap()
    }

    /// Stops the server as the end of its parent does, and returns its standard error.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

fn output(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

const FREE: &[&str] = &["--port", "0", "--parent-pipe"];

#[test]
fn the_banner_has_address_data_and_durability() {
    let scratch = Scratch::new("banner");
    let data = scratch.path("data");
    let arguments = [FREE, &["--data", &data]].concat();
    let server = Started::new(&mut vellum(&arguments));
    let pid = server.child.id();
    let text = server.banner.join("\n");
    let uri = server.banner[0].clone();
    for part in [
        &format!("disk engine in {data}"),
        &format!("process {pid}"),
        "start: clean",
        &format!("mongosh '{uri}'"),
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, printed) = output(&mut vellum(&["ping", &uri]));
    assert!(code == Some(0) && printed.contains("answers"), "{printed}");
    let (code, printed) = output(&mut vellum(&arguments));
    assert!(code == Some(1) && printed.contains(&format!("(process {pid})")), "{printed}");
    let log = server.end();
    assert!(log.contains("Waiting for connections") && log.contains(&format!("pid={pid}")), "{log}");
    let (code, printed) = output(&mut vellum(&["ping", "--quiet", &uri]));
    assert!(code == Some(1) && printed.is_empty(), "{printed}");
}

#[test]
fn a_killed_server_reports_its_recovery() {
    let scratch = Scratch::new("recovered");
    let data = scratch.path("data");
    let arguments = [FREE, &["--data", &data]].concat();
    let mut server = Started::new(&mut vellum(&arguments));
    let address = server.banner[0].trim_start_matches("mongodb://").trim_end_matches('/').to_string();
    let mut client = crate::client::Client::connect(&address, Duration::from_secs(20)).unwrap();
    let insert = "{insert: 'c', documents: [{a: 1}], writeConcern: {j: true}, $db: 'test'}";
    client.command(&base::bson::extended_json::parse(insert).unwrap()).unwrap();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Started::new(&mut vellum(&arguments));
    assert!(server.banner.iter().any(|line| line.contains("start: recovered")), "{:?}", server.banner);
    server.end();
}

#[test]
fn options_come_from_the_environment_and_a_file() {
    let scratch = Scratch::new("layers");
    let file = scratch.path("vellum.toml");
    fs::write(&file, "port = 1\nreplset = \"rs7\"\nparent-pipe = true\n").unwrap();
    let server = Started::new(vellum(&["--config", &file]).env("VELLUM_PORT", "0"));
    assert!(server.banner[0].ends_with("/?replicaSet=rs7"), "{:?}", server.banner);
    server.end();
    fs::write(&file, "prot = 1\n").unwrap();
    let (code, printed) = output(&mut vellum(&["--config", &file]));
    assert!(code == Some(2) && printed.contains("vellum.toml:1: unknown option 'prot'"), "{printed}");
    let (code, printed) = output(vellum(&[]).env("VELLUM_PORT", "99999"));
    assert!(code == Some(2) && printed.contains("VELLUM_PORT") && printed.contains("99999"), "{printed}");
    let (code, printed) = output(vellum(&[]).env("MONGO_INITDB_ROOT_USERNAME", "me"));
    assert!(code == Some(2) && printed.contains("MONGO_INITDB_ROOT_PASSWORD is missing"), "{printed}");
}

#[test]
fn the_environment_makes_the_first_user() {
    let scratch = Scratch::new("first-user");
    let data = scratch.path("data");
    let password = scratch.path("password");
    fs::write(&password, "secret\n").unwrap();
    let start = |options: &[&str], password: &str| {
        let arguments = [FREE, &["--data", &data], options].concat();
        let mut command = vellum(&arguments);
        command.env("MONGO_INITDB_ROOT_USERNAME", "root").env("MONGO_INITDB_ROOT_PASSWORD_FILE", password);
        Started::new(&mut command)
    };
    let find = parse("{find: 'c', $db: 'test'}").unwrap();
    let code = |reply: &DocumentBuf| reply.view().get("code").and_then(|code| code.as_i64());
    let login = |client: &mut Client| {
        client.login(("root", "admin"), "secret", Mechanism::Sha256).map(|reply| code(&reply)).unwrap()
    };
    let server = start(&[], &password);
    let mut client = server.client();
    assert_eq!(code(&client.command(&find).unwrap()), Some(13));
    assert_eq!(login(&mut client), None);
    assert_eq!(code(&client.command(&find).unwrap()), None);
    server.end();
    // In an existing directory the user stays unchanged.
    fs::write(&password, "another").unwrap();
    let server = start(&[], &password);
    let mut client = server.client();
    assert_eq!(login(&mut client), None);
    let drop = parse("{dropAllUsersFromDatabase: 1, $db: 'admin'}").unwrap();
    assert_eq!(code(&client.command(&drop).unwrap()), None);
    assert_eq!(code(&client.command(&find).unwrap()), Some(13), "whoever is gone is logged out");
    server.end();
    // Without authentication every user of the machine gets in.
    let server = start(&["--no-auth"], &password);
    assert_eq!(code(&server.client().command(&find).unwrap()), None);
    server.end();
}

#[test]
fn signals_reopen_and_rotate_the_log() {
    let scratch = Scratch::new("signals");
    let log = scratch.path("log");
    let arguments = [FREE, &["--log-file", &log, "--log-format", "json"]].concat();
    let server = Started::new(&mut vellum(&arguments));
    let has = |path: &str, part: &str| fs::read_to_string(path).is_ok_and(|text| text.contains(part));
    until("the line that tools wait for", || has(&log, r#""id":23016"#));
    fs::rename(&log, scratch.path("moved")).unwrap();
    server.signal(Signal::SIGHUP);
    until("the log opened again", || has(&log, "SIGHUP"));
    server.signal(Signal::SIGUSR1);
    let files = || fs::read_dir(&scratch.0).unwrap().count();
    until("the new log", || files() == 3 && has(&log, "SIGUSR1"));
    server.signal(Signal::SIGUSR2);
    until("a line for the signal of mongod's stacks", || has(&log, "SIGUSR2"));
    server.signal(Signal::SIGXFSZ);
    assert!(has(&scratch.path("moved"), "Waiting for connections"));
    let (code, printed) = output(&mut vellum(&["ping", &server.banner[0]]));
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(server.end(), "");
}

#[test]
fn slow_queries_are_logged_in_the_format_of_mongod() {
    let scratch = Scratch::new("slow");
    let log = scratch.path("log");
    let server = Started::new(&mut vellum(&[FREE, &["--log-file", &log, "--log-format", "json"]].concat()));
    let mut client = server.client();
    let mut run = |command: &str| client.command(&parse(command).unwrap()).unwrap();
    run("{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}], $db: 'd'}");
    run("{profile: 1, slowms: -1, $db: 'd'}");
    let first = run("{find: 'c', filter: {_id: {$gt: 0}}, batchSize: 2, $db: 'd'}");
    let cursor = first.view().get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
    run(&format!("{{getMore: {}, collection: 'c', $db: 'd'}}", cursor.get("id").unwrap()));
    run("{update: 'c', updates: [{q: {_id: 1}, u: {$set: {a: 1}}}], $db: 'd'}");
    let attributes = |kind: &str, command: &str| {
        let text = fs::read_to_string(&log).unwrap();
        let of_command = |line: &DocumentBuf| {
            let attributes = line.view().get("attr")?.as_document()?;
            let shown = attributes.get("command")?.as_document()?;
            let is_wanted = line.view().get("id")?.as_i64() == Some(51803)
                && attributes.get("type")?.as_str() == Some(kind)
                && shown.find(command).is_some();
            is_wanted.then(|| attributes.to_owned())
        };
        text.lines().filter_map(|line| of_command(&parse(line).ok()?)).next().unwrap_or_default()
    };
    let path = |document: &DocumentBuf, outer: &str, inner: &str| {
        document
            .view()
            .get(outer)
            .and_then(|value| value.as_document()?.get(inner).map(|value| value.to_string()))
    };
    let more = attributes("command", "getMore");
    assert_eq!(path(&more, "originatingCommand", "find").as_deref(), Some("\"c\""), "{more}");
    let number = |name: &str| more.view().get(name).and_then(|number| number.as_i64());
    assert_eq!((number("docsExamined"), number("nreturned")), (Some(1), Some(1)), "{more}");
    assert_eq!(
        more.view().iter().last().map(|field| field.name().to_string()),
        Some("durationMillis".into())
    );
    let find = attributes("command", "find");
    assert!(find.view().find("originatingCommand").is_none(), "{find}");
    let update = attributes("update", "q");
    assert_eq!(update.view().get("nModified").and_then(|number| number.as_i64()), Some(1), "{update}");
    server.end();
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let scratch = Scratch::new("twice");
    let data = scratch.path("data");
    let arguments = [FREE, &["--data", &data]].concat();
    let mut server = Started::new(&mut vellum(&arguments));
    let address = server.banner[0].trim_start_matches("mongodb://").trim_end_matches('/').to_string();
    let mut client = Client::connect(&address, Duration::from_secs(20)).unwrap();
    let mut run = |command: &str| client.command(&parse(command).unwrap());
    run("{insert: 'c', documents: [{_id: 1}], $db: 'test'}").unwrap();
    run("{configureFailPoint: 'failCommand', mode: 'alwaysOn',
        data: {failCommands: ['ping'], blockConnection: true, blockTimeMS: 20000}, $db: 'admin'}")
    .unwrap();
    let mut stays = Client::connect(&address, Duration::from_secs(20)).unwrap();
    let blocked = std::thread::spawn(move || stays.command(&parse("{ping: 1, $db: 'admin'}").unwrap()));
    until("the command that delays the end", || {
        let running = run("{currentOp: 1, 'command.ping': 1, $db: 'admin'}").unwrap();
        let list = running.view().get("inprog").and_then(|list| list.as_array());
        list.is_some_and(|list| list.iter().next().is_some())
    });
    // Two kinds, since a second signal of one kind may be merged with the first.
    server.signal(Signal::SIGTERM);
    server.signal(Signal::SIGINT);
    let code = server.child.wait().unwrap().code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    assert!(blocked.join().unwrap().is_err());
    let again = Started::new(&mut vellum(&arguments));
    assert!(again.banner.iter().any(|line| line.contains("recovered")), "{:?}", again.banner);
    again.end();
}

#[test]
fn paths_need_not_be_utf_8() {
    let scratch = Scratch::new("bytes");
    let data = scratch.0.join(OsStr::from_bytes(b"\xff"));
    let server = Started::new(vellum(&[FREE, &["--data"]].concat()).arg(&data));
    assert!(data.is_dir());
    server.end();
    let (code, printed) = output(vellum(&["mongod", "--dbpath"]).arg(&data));
    assert!(code == Some(2) && printed.contains("is not UTF-8"), "{printed}");
}

#[test]
fn the_first_signal_stops_a_server_that_has_just_started() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut server = Started::new(&mut vellum(FREE));
        server.signal(signal);
        let mut status = None;
        until("its end", || {
            status = server.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(0));
    }
}

#[test]
fn the_lab_is_a_separate_program() {
    let scratch = Scratch::new("lab");
    // A program that this process writes is busy while another thread starts a process.
    let install = |from: &Path, to: &Path| {
        assert!(Command::new("install").args([from, to]).status().unwrap().success());
    };
    // Alone in a folder, without vellum-lab next to it.
    let alone = scratch.0.join("vellum");
    install(Path::new(env!("CARGO_BIN_EXE_vellum")), &alone);
    let run = |path: &Path| output(Command::new(&alone).args(["lab", "clean"]).env("PATH", path));
    let (code, printed) = run(&scratch.0);
    assert!(
        code == Some(2) && printed.contains("vellum-lab") && printed.contains("cargo install"),
        "{printed}"
    );
    let script = scratch.0.join("script");
    fs::write(&script, "#!/bin/sh\necho \"$1 $VELLUM_BINARY\"\nexit 7\n").unwrap();
    install(&script, &scratch.0.join("vellum-lab"));
    let (code, printed) = run(Path::new("/usr/bin:/bin"));
    assert!(code == Some(7) && printed.trim() == format!("clean {}", alone.display()), "{printed}");
}

#[test]
fn hidden_verbs_are_not_suggested() {
    let (code, printed) = output(&mut vellum(&["pin"]));
    assert!(code == Some(2) && printed.contains("ping"), "{printed}");
    let (_, printed) = output(&mut vellum(&["--help"]));
    assert!(!printed.contains("null-server") && printed.lines().count() <= 60, "{printed}");
}
