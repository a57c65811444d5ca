//! Common mistakes of a first start: exit code and message of each.

use std::fs;
use std::io::{BufRead, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::bson::extended_json::parse;

use crate::server::{Scratch, Server};

/// An unprivileged user, for tests that run as root.
const UNPRIVILEGED_USER: u32 = 65534;

/// Returns the exit code and the output of both streams, with `DIR` for the scratch directory.
fn printed(command: &mut Command, scratch: &Path) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap().replace(&scratch.display().to_string(), "DIR");
    format!("{}: {}", output.status.code().unwrap_or(-1), text.trim_end())
}

fn vellum(scratch: &Path, arguments: &[&str]) -> String {
    let arguments = arguments.iter().map(|argument| argument.replace("DIR", &scratch.display().to_string()));
    printed(Command::new(env!("CARGO_BIN_EXE_vellum")).args(arguments), scratch)
}

/// Creates a directory with empty files of these names.
fn directory(name: &str, files: &[&str]) -> Scratch {
    let scratch = Scratch::new(&format!("mistakes-{name}"));
    fs::create_dir_all(&*scratch).unwrap();
    files.iter().for_each(|file| fs::write(scratch.join(file), "").unwrap());
    scratch
}

/// Returns the names in a directory.
fn names(directory: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

const SERVE: [&str; 4] = ["--port", "0", "--parent-pipe", "--data"];

#[test]
fn mongodbs_directory_is_refused_and_left_as_it_was() {
    let files = ["WiredTiger", "WiredTiger.lock", "_mdb_catalog.wt", "mongod.lock", "storage.bson"];
    let data = directory("mongodb", &files);
    let before = names(&data);
    let refused = "DIR holds MongoDB's files (WiredTiger, WiredTiger.lock, _mdb_catalog.wt and 2 more). \
     Vellum cannot read them, and has changed nothing. Copy the data with mongodump and mongorestore (see docs/moving.md), and choose another directory";
    for arguments in [
        &[&SERVE[..], &["DIR"]].concat()[..],
        &[&SERVE[..], &["DIR", "--allow-other-files"]].concat(),
        &["--repair", "--data", "DIR"],
        &["backup", "mongodb://127.0.0.1:1/", "DIR"],
        &["backup", "--data", "DIR", "DIR/backup"],
        &["restore", "DIR", "--data", "DIR"],
    ] {
        let (code, text) = (1, vellum(&data, arguments));
        if arguments[0] != "restore" && arguments.get(1) != Some(&"--data") {
            assert_eq!(text, format!("{code}: vellum: {refused}"), "{arguments:?}");
        }
        fs::remove_dir_all(data.join("backup")).ok();
        assert_eq!(names(&data), before, "{arguments:?}");
    }
    assert_eq!(vellum(&data, &["verify", "DIR"]), format!("2: vellum: {refused}"));
    let text = vellum(&data, &["mongod", "--port", "0", "--dbpath", "DIR"]);
    assert!(text.starts_with("100: ") && text.contains(refused), "{text}");
    assert_eq!(names(&data), before);
}

#[test]
fn files_of_mongodb_in_a_data_directory_cause_a_warning() {
    let data = directory("both", &[]);
    let mut server = Server::start_on(&data, &[]).unwrap();
    assert!(!server.end().contains("MongoDB's files"));
    for name in ["mongod.lock", "storage.bson", "WiredTiger", "_mdb_catalog.wt"] {
        fs::write(data.join(name), "").unwrap();
    }
    let before = names(&data);
    let mut server = Server::start_on(&data, &[]).unwrap();
    let log = server.end();
    let warning = format!(
        "{} holds MongoDB's files (WiredTiger, _mdb_catalog.wt, mongod.lock and 1 more) beside Vellum's. The server \
         reads only Vellum's. Copy MongoDB's data with mongodump and mongorestore (see docs/moving.md)",
        data.display()
    );
    assert_eq!(log.matches(&warning).count(), 1, "{log}");
    let is_there = |path: &PathBuf| path.exists();
    assert!(before.iter().all(is_there));
}

#[test]
fn advise_without_reads_asks_for_usual_reads() {
    let data = directory("advise", &[]);
    let server = Server::start_on(&data, &["--cache-size", "64M"]).unwrap();
    let uri = format!("mongodb://{}/", server.address());
    let text = vellum(&data, &["advise", &uri]).replace(server.address(), "HOST");
    assert!(text.starts_with("0: HOST: --cache-size 64M\n"), "{text}");
    assert_eq!(
        text.lines().last(),
        Some(
            "No reads yet: run your application's usual reads for some minutes, then run this command again."
        )
    );
}

#[test]
fn a_repair_reports_what_was_read_kept_and_lost() {
    let parent = directory("repair", &[]);
    let data = parent.join("data");
    let mut server = Server::start_on(&data, &[]).unwrap();
    let mut client = server.connect().unwrap();
    let mut run = |command: &str| client.command(&parse(command).unwrap()).unwrap();
    run("{createIndexes: 'people', indexes: [{key: {name: 1}, name: 'name_1'}], $db: 'test'}");
    run("{insert: 'people', documents: [{name: 'Ada'}, {name: 'Grace'}], $db: 'test'}");
    drop(client);
    server.end();
    assert_eq!(
        vellum(&parent, &["--repair", "--data", "DIR/data"]),
        "0: read: DIR/data: 5 trees\nlost: nothing\nkept: test.people: 2 documents, 2 indexes rebuilt\nthe \
         old files \
         are in DIR/data/before-repair.1"
    );
    let empty = parent.join("empty");
    Server::start_on(&empty, &[]).unwrap().end();
    assert_eq!(
        vellum(&parent, &["--repair", "--data", "DIR/empty"]),
        "0: read: DIR/empty: 2 trees\nlost: nothing\nkept: no documents, because no collection was \
         found\nthe old files \
         are in DIR/empty/before-repair.1"
    );
    let none = "vellum: the directory DIR/none does not exist. Check the path";
    for arguments in [
        &["--repair", "--data", "DIR/none"][..],
        &["verify", "DIR/none"],
        &["restore", "DIR/none", "--data", "DIR/x"],
    ] {
        let code = if arguments[0] == "verify" { 2 } else { 1 };
        assert_eq!(vellum(&parent, arguments), format!("{code}: {none}"), "{arguments:?}");
    }
}

#[test]
fn a_missing_journal_names_the_option_for_its_directory() {
    let parent = directory("journal", &[]);
    let (data, journal) = (parent.join("data"), parent.join("journal").display().to_string());
    let server = Server::start_on(&data, &["--journal-dir", &journal]).unwrap();
    let mut client = server.connect().unwrap();
    let reply = client.command(&parse("{getCmdLineOpts: 1, $db: 'admin'}").unwrap()).unwrap();
    let storage = reply.view().get("parsed").and_then(|parsed| parsed.as_document()?.get("storage")).unwrap();
    let path = storage.as_document().and_then(|storage| storage.get("dbPath")?.as_str().map(PathBuf::from));
    assert_eq!(path.as_ref(), Some(&data));
    drop((client, server));
    let remedy = "no journal found in DIR/data/journal; if the journal is in another directory, name it with \
                  --journal-dir";
    for arguments in [
        &["verify", "DIR/data"][..],
        &["backup", "--data", "DIR/data", "DIR/backup"],
        &[&SERVE[..], &["DIR/data"]].concat(),
    ] {
        let text = vellum(&parent, arguments);
        assert!(text.starts_with("1: ") && text.contains(remedy), "{arguments:?}: {text}");
    }
    assert!(vellum(&parent, &["verify", "DIR/data", "--journal-dir", "DIR/journal"]).starts_with("0: "));
}

#[test]
fn a_directory_with_other_files_needs_an_option() {
    let data = directory("other", &["Cargo.toml", "README.md", ".git", "server.log", "x.pid"]);
    let before = names(&data);
    let refused = "DIR isn't empty: it holds Cargo.toml, README.md. Choose a new or empty directory, or allow these \
                   files with";
    let text = vellum(&data, &[&SERVE[..], &["DIR"]].concat());
    assert_eq!(text, format!("1: vellum: {refused} --allow-other-files"));
    let text = vellum(&data, &["mongod", "--port", "0", "--dbpath", "DIR"]);
    assert!(text.starts_with("100: "), "{text}");
    assert!(text.contains(&format!("{refused} VELLUM_ALLOW_OTHER_FILES=true")), "{text}");
    let text = vellum(&data, &["backup", "mongodb://127.0.0.1:1/", "DIR"]);
    let without = refused.trim_end_matches(", or allow these files with");
    assert_eq!(text, format!("1: vellum: {without}"));
    assert_eq!(names(&data), before);
    drop(Server::start_on(&data, &["--allow-other-files"]).unwrap());
    // It belongs to Vellum from now on.
    drop(Server::start_on(&data, &[]).unwrap());
}

#[test]
fn harmless_and_named_files_are_allowed() {
    let data =
        directory("allowed", &[".keep", "mongod.log.2026-11-25T10-00-00", "vellum.pid", "vellum.toml"]);
    fs::create_dir(data.join("lost+found")).unwrap();
    let named = |name: &str| data.join(name).display().to_string();
    let (config, log, journal) = (named("vellum.toml"), named("output"), named("wal"));
    let options = ["--config", &config, "--log-file", &log, "--journal-dir", &journal];
    drop(Server::start_on(&data, &options).unwrap());
    assert!(data.join("wal").is_dir() && !data.join("journal").exists());
}

#[test]
fn a_newer_format_changes_nothing() {
    let data = directory("newer", &[]);
    fs::write(data.join("vellum.format"), "Vellum data directory\nformat 99\nid 0123456789abcdef\n").unwrap();
    let text = vellum(&data, &[&SERVE[..], &["DIR"]].concat());
    assert!(text.starts_with("1: vellum: DIR: the data directory has format 99"), "{text}");
    assert_eq!(names(&data), [data.join("vellum.format")]);
}

#[test]
fn a_path_that_cannot_be_a_data_directory_is_named() {
    let scratch = directory("path", &["file"]);
    for path in ["DIR/file", "DIR/file/below"] {
        let text = vellum(&scratch, &[&SERVE[..], &[path]].concat());
        assert_eq!(text, "1: vellum: DIR/file is a file, and a directory is needed. Choose another path");
    }
    let closed = scratch.join("closed");
    fs::create_dir(&closed).unwrap();
    let as_unprivileged_user = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        if nix::unistd::geteuid().is_root() {
            command.uid(UNPRIVILEGED_USER);
        }
        printed(command.args(arguments).arg(&closed), &closed)
    };
    for (mode, what) in [(0o555, "locking DIR"), (0o000, "reading DIR")] {
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        let text = as_unprivileged_user(&SERVE);
        let user = text.split("user ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        assert_eq!(
            text,
            format!(
                "1: vellum: user {user} may not use DIR ({what}: Permission denied). Give the directory to this user \
                 (chown -R {user} DIR), or choose another directory"
            )
        );
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(names(&closed).is_empty());
}

#[test]
fn a_directory_in_use_names_the_process() {
    let data = directory("in-use", &[]);
    let server = Server::start_on(&data, &[]).unwrap();
    let lock = fs::read_to_string(data.join("vellum.lock")).unwrap();
    let user = format!("another Vellum (process {lock}) uses DIR.");
    let stop = "Stop that process first";
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--port", "0", "--data", "DIR"], 1, "Stop that process first, or choose another directory"),
        (&["--repair", "--data", "DIR"], 1, stop),
        (
            &["verify", "DIR"],
            2,
            "Stop that server first, or make a backup of it (vellum backup URI TO) and verify the backup",
        ),
        (
            &["backup", "--data", "DIR", "DIR.backup"],
            1,
            "Name that server by its connection string instead of --data",
        ),
    ];
    for (arguments, code, remedy) in cases {
        assert_eq!(vellum(&data, arguments), format!("{code}: vellum: {user} {remedy}"));
    }
    drop(server);
    assert!(!fs::exists(format!("{}.backup", data.display())).unwrap(), "the backup's target was created");
}

#[test]
fn help_and_version_are_verbs_too() {
    let scratch = directory("verbs", &[]);
    for (verb, option) in [("help", "--help"), ("version", "--version")] {
        let text = vellum(&scratch, &[verb]);
        assert!(text.starts_with("0: "), "{text}");
        assert_eq!(text, vellum(&scratch, &[option]));
    }
    let (short, all) = (vellum(&scratch, &["--help"]), vellum(&scratch, &["--help-all"]));
    let options = |text: &str| text.lines().filter(|line| line.trim_start().starts_with("--")).count();
    assert!(short.contains("--help-all") && !short.contains("--busy-poll"), "{short}");
    assert!(all.contains("--busy-poll") && options(&all) > options(&short) + 15, "{all}");
    assert_eq!(vellum(&scratch, &["help", "ping"]), vellum(&scratch, &["ping", "--help"]));
}

#[test]
fn a_path_or_an_address_in_the_place_of_a_verb_names_the_option() {
    let scratch = directory("verb", &[]);
    for arguments in [&["./mydata"][..], &["serve", "./mydata"]] {
        assert_eq!(
            vellum(&scratch, arguments),
            "2: vellum: './mydata' looks like a directory. To store data in it: vellum --data './mydata'"
        );
    }
    assert_eq!(
        vellum(&scratch, &["mongodb://localhost/"]),
        "2: vellum: 'mongodb://localhost/' is the address of a server. To check that it responds: vellum \
         ping 'mongodb://localhost/'. To watch its load: vellum top 'mongodb://localhost/'"
    );
    let text = vellum(&scratch, &["pin"]);
    assert!(text.starts_with("2: error: unrecognized subcommand 'pin'"), "{text}");
}

/// A port without a server: nothing may connect.
const NO_SERVER: &str = "mongodb://127.0.0.1:1/";

#[test]
fn an_address_in_the_place_of_a_directory_creates_nothing() {
    let scratch = directory("address", &[]);
    fs::create_dir(scratch.join("data")).unwrap();
    let is_address = format!("2: vellum: '{NO_SERVER}' is the address of a server: give");
    let not_directory = "this is the address of a server, and a directory is needed";
    for (arguments, expected) in [
        (
            &["backup", NO_SERVER][..],
            format!("{is_address} the directory to write to, after the connection string: vellum backup \
                     '{NO_SERVER}' TO"),
        ),
        (
            &["backup", "mongodb://a/", NO_SERVER],
            format!("{is_address} the directory to write to, after the connection string: vellum backup \
                     'mongodb://a/' TO"),
        ),
        (
            &["backup", "B", NO_SERVER],
            format!("{is_address} it before the directory to write to: vellum backup '{NO_SERVER}' 'B'"),
        ),
        (
            &["backup", "--data", "data", NO_SERVER],
            format!("{is_address} the directory to write to: vellum backup --data DIR TO"),
        ),
        (
            &["backup", "data", "B"],
            "2: vellum: 'data' is a directory, not the address of a server. To back up a data directory without a \
             server: vellum backup --data 'data' 'B'"
                .to_string(),
        ),
        (
            &["backup", "--data", "data", "a", "b"],
            "2: vellum: with --data, give only the directory to write the backup to: vellum backup --data DIR TO"
                .to_string(),
        ),
        (
            &["verify", NO_SERVER],
            format!("2: error: invalid value '{NO_SERVER}' for '<PATH>': {not_directory}"),
        ),
        (
            &["restore", NO_SERVER, "--data", "x"],
            format!("2: error: invalid value '{NO_SERVER}' for '<FROM>': {not_directory}"),
        ),
        (
            &["--data", "mongodb+srv://a/"],
            format!("2: error: invalid value 'mongodb+srv://a/' for '--data <DIR>': {not_directory}"),
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        let text = printed(command.args(arguments).current_dir(&*scratch), &scratch);
        assert_eq!(text.lines().next(), Some(&expected[..]), "{arguments:?}");
        assert_eq!(names(&scratch), [scratch.join("data")], "{arguments:?}");
    }
}

#[test]
fn wrong_values_have_exit_code_2() {
    let scratch = directory("values", &[]);
    let missing = "No such file or directory (os error 2)";
    for (arguments, expected) in [
        (
            &["--port", "0", "--log-file", "DIR/no/x"][..],
            format!("2: vellum: --log-file DIR/no/x: cannot open the log: {missing}"),
        ),
        (
            &["--port", "0", "--data", "DIR/data", "--init-scripts", "DIR/no"],
            format!("2: vellum: --init-scripts DIR/no: {missing}"),
        ),
        (&["ping", "mongodb://127.0.0.1/?tls=maybe"], "2: vellum: tls: expected true or false".to_string()),
    ] {
        assert_eq!(vellum(&scratch, arguments), expected, "{arguments:?}");
    }
}

#[test]
fn mongod_prints_a_wrong_value_once() {
    let scratch = directory("mongod", &["scripts"]);
    fs::create_dir(scratch.join("data")).unwrap();
    let missing = "No such file or directory (os error 2)";
    for (arguments, expected) in [
        (&["--setParameter", "foo=1"][..], "--setParameter foo=1: ".to_string()),
        (&["--setParameter", "planCacheSize=5%"], "--setParameter planCacheSize=5%: ".to_string()),
        (&["--setParameter", "syncdelay=abc"], "--setParameter syncdelay=abc: ".to_string()),
        (&["--syncdelay", "-1"], "--setParameter syncdelay=-1: ".to_string()),
        (&["--pidfilepath", "DIR/no/x"], format!("--pidfilepath DIR/no/x: {missing}")),
        (&["--logpath", "DIR/no/x"], format!("--logpath DIR/no/x: cannot open the log: {missing}")),
        (&["--logpath", "DIR/log", "--setParameter", "foo=1"], "--setParameter foo=1: ".to_string()),
    ] {
        let text =
            vellum(&scratch, &[&["mongod", "--port", "0", "--dbpath", "DIR/data"], arguments].concat());
        assert!(text.starts_with("2: "), "{arguments:?}: {text}");
        assert_eq!(text.matches(&expected).count(), 1, "{arguments:?}: {text}");
    }
    for script in ["DIR/no", "DIR/scripts"] {
        let folder = script.replace("DIR", &scratch.display().to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command.args(["mongod", "--port", "0", "--dbpath"]).arg(scratch.join("data"));
        let text = printed(command.env("VELLUM_INIT_SCRIPTS", folder), &scratch);
        assert!(text.starts_with("2: "), "{text}");
        assert_eq!(text.matches(&format!("VELLUM_INIT_SCRIPTS {script}: ")).count(), 1, "{text}");
    }
}

#[test]
fn common_mistakes_get_a_hint() {
    let scratch = directory("hints", &["000001.full"]);
    fs::create_dir(scratch.join("empty")).unwrap();
    for (arguments, expected) in [
        (&["backup", "a", "b", "c"][..], "2: error: unexpected value 'c' for '<PLACES>...' found"),
        (
            &["restore", "DIR/000001.full", "--data", "DIR/x"],
            "2: vellum: DIR/000001.full is a file. Give the directory of the backup: DIR",
        ),
        (
            &["ping", "--port", "5"],
            "2: vellum: ping has no option --port. Give the connection string: vellum ping mongodb://127.0.0.1:5/",
        ),
        (
            &["advise", "--data", "D"],
            "2: vellum: advise has no option --data, because it queries a running server. Give the connection string: \
             vellum advise mongodb://127.0.0.1:27017/",
        ),
        (&["verify", "--data", "D"], "2: vellum: verify has no option --data: vellum verify 'D'"),
        (&["ping", "5"], "2: vellum: 5 is not a host: use mongodb://127.0.0.1:5/"),
        (&["ping", "http://x"], "2: vellum: http:// is not supported: use mongodb://HOST:PORT/"),
        (
            &["--port", "0", "--test-commands", "false"],
            "2: vellum: --test-commands takes its value after an equals sign: --test-commands=false",
        ),
        (
            &["--tls-certificate-key-file", "x"],
            "2: error: x is given, but TLS is off: add --tls-mode require",
        ),
        (&["--auth", "--no-auth"], "2: vellum: --auth and --no-auth contradict each other: give one of them"),
        (
            &["--repair", "--data", "DIR/empty"],
            "1: vellum: DIR/empty contains no data of Vellum, so nothing to repair",
        ),
        (
            &["stop"],
            "2: vellum: 'stop' is not a verb. Ctrl-C, SIGTERM or the command shutdown stops a server",
        ),
        (&["start"], "2: vellum: 'start' is not a verb. vellum without a verb starts a server"),
        (
            &["mongod", "--storageEngine", "inMemory", "--repair"],
            "2: Error parsing command line: --repair does not apply to the memory engine, which stores nothing",
        ),
    ] {
        let text = vellum(&scratch, arguments);
        assert!(text.starts_with(expected), "{arguments:?}: {text}");
    }
    for yaml in ["net:\n  port: 27018\n", "# mongod's\nnet: {port: 27018}\n"] {
        fs::write(scratch.join("mongod.yaml"), yaml).unwrap();
        let text = vellum(&scratch, &["--config", "DIR/mongod.yaml"]);
        assert!(text.starts_with("2: vellum: DIR/mongod.yaml: TOML parse error"), "{text}");
        let hint = "--config takes TOML. For mongod's YAML file: vellum mongod --config 'DIR/mongod.yaml'";
        assert!(text.ends_with(hint), "{text}");
    }
}

#[test]
fn options_of_a_data_directory_are_refused_for_a_backup() {
    let scratch = directory("verify", &[]);
    let data = scratch.join("data");
    Server::start_on(&data, &[]).unwrap().end();
    let made = vellum(&scratch, &["backup", "--data", "DIR/data", "DIR/backup"]);
    assert!(made.starts_with("0: "), "{made}");
    assert_eq!(
        vellum(&scratch, &["verify", "DIR/backup", "--journal-dir", "x"]),
        "2: vellum: --journal-dir is only for a data directory, and DIR/backup is a backup"
    );
    let text = vellum(&scratch, &["verify", "DIR/backup", "--scratch", "DIR/no"]);
    assert!(text.contains("vellum: making a scratch directory in DIR/no: No such file"), "{text}");
    let text =
        vellum(&scratch, &["restore", "DIR/backup", "--data", "DIR/x", "--at", "2100-01-01T00:00:00Z"]);
    assert!(text.starts_with("1: vellum: the backup ends at 20") && text.contains("Z ("), "{text}");
}

#[test]
fn a_wrong_name_in_a_file_has_its_line_and_the_nearest_name() {
    let scratch = directory("config", &[]);
    fs::write(scratch.join("bad.toml"), "# options\nreplset = \"rs0\"\nprot = 27018\n").unwrap();
    assert_eq!(
        vellum(&scratch, &["--config", "DIR/bad.toml"]),
        "2: vellum: DIR/bad.toml:3: unknown option 'prot'. Did you mean 'port'?"
    );
}

#[test]
fn a_ping_without_a_server_says_how_to_start_one() {
    let scratch = directory("ping", &[]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    assert_eq!(
        vellum(&scratch, &["ping", &format!("mongodb://{address}/")]),
        format!(
            "1: vellum: {address}: connection refused, no server listens at this address. Start one with: \
             vellum --port {}",
            address.port()
        )
    );
}

#[test]
fn a_used_http_port_is_reported_like_other_ports() {
    let scratch = directory("http", &[]);
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let text = vellum(&scratch, &["--port", "0", "--log-level", "error", "--http", &address]);
    assert_eq!(
        text,
        format!(
            "1: vellum: cannot listen: --http {address}: Address already in use. Choose another with --http, or --http 0 \
             for a free one."
        )
    );
}

#[test]
fn a_server_without_users_explains_the_first_user() {
    let mut server = Server::start_with(&["--auth"]).unwrap();
    let log = server.end();
    assert!(log.contains("no user exists. Create the first user on this machine"), "{log}");
}

#[test]
fn a_terminal_shows_only_the_banner() {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["--port", "0", "--parent-pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(terminal.slave))
        .spawn()
        .unwrap();
    let mut banner = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(banner.any(|line| line.starts_with("try: ")));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    // The read ends with an error, because the other side is closed.
    let mut log = Vec::new();
    let _ = fs::File::from(terminal.master).read_to_end(&mut log);
    assert_eq!(String::from_utf8_lossy(&log), "");
}
