//! Natural mistakes of a first start: exit code and message of each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::server::{Scratch, Server};

/// A user without rights, for tests that run as root.
const NOBODY: u32 = 65534;

/// The program's output on both streams, with its exit code in front and `DIR` for the scratch directory.
fn said(command: &mut Command, scratch: &Path) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap().replace(&scratch.display().to_string(), "DIR");
    format!("{}: {}", output.status.code().unwrap_or(-1), text.trim_end())
}

fn vellum(scratch: &Path, arguments: &[&str]) -> String {
    let arguments = arguments.iter().map(|argument| argument.replace("DIR", &scratch.display().to_string()));
    said(Command::new(env!("CARGO_BIN_EXE_vellum")).args(arguments), scratch)
}

/// A directory with empty files of these names.
fn directory(name: &str, files: &[&str]) -> Scratch {
    let scratch = Scratch::new(&format!("mistakes-{name}"));
    fs::create_dir_all(&*scratch).unwrap();
    files.iter().for_each(|file| fs::write(scratch.join(file), "").unwrap());
    scratch
}

/// The names in a directory.
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
    let refused = "DIR holds MongoDB's files (WiredTiger, WiredTiger.lock, _mdb_catalog.wt and 2 more). Vellum cannot \
                   read them, and has changed nothing. Copy the data with mongodump and mongorestore, as \
                   docs/moving.md says, and choose another directory";
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
    // It is Vellum's from now on.
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
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY);
        }
        said(command.args(arguments).arg(&closed), &closed)
    };
    for (mode, what) in [(0o555, "locking DIR"), (0o000, "reading DIR")] {
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        let text = as_nobody(&SERVE);
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
    fs::remove_dir_all(format!("{}.backup", data.display())).unwrap();
}
