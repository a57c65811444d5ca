//! Scripts that initialize a new data directory, run by a fake shell that records its arguments. tests/packages/run
//! --only containers runs some with the real mongosh.

use crate::requests::until;
use crate::server::Scratch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder with scripts, and a shell that records each and pings the server.
struct Folder {
    scratch: Scratch,
}

impl Folder {
    fn new(name: &str, scripts: &[&str]) -> Folder {
        let scratch = Scratch::new(name);
        fs::create_dir_all(scratch.join("scripts")).unwrap();
        let shell = scratch.join("mongosh");
        let program = env!("CARGO_BIN_EXE_vellum");
        let noted = scratch.join("noted");
        let text = format!(
            "#!/bin/sh\n'{program}' ping \"$2\" >/dev/null || exit 9\necho \"${{2##*/}} ${{3##*/}}\" >> '{}'\n\
             case $3 in *bad.js) echo 'no such thing' >&2; exit 3;; *endless.js) sleep 20;; \
             *patient.js) trap 'exit 0' TERM; sleep 20 & wait;; esac\n",
            noted.display()
        );
        fs::write(&shell, text).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        for script in scripts {
            fs::write(scratch.join("scripts").join(script), "").unwrap();
        }
        Folder { scratch }
    }

    fn noted(&self) -> String {
        fs::read_to_string(self.scratch.join("noted")).unwrap_or_default()
    }

    /// Returns a server that ends at once.
    fn command(&self, path: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command
            .args(["--port", "0", "--parent-pipe", "--data"])
            .arg(self.scratch.join("data"))
            .arg("--init-scripts")
            .arg(self.scratch.join("scripts"))
            .env("PATH", format!("{}:/usr/bin:/bin", path.display()))
            .env("MONGO_INITDB_DATABASE", "shop")
            .stdin(Stdio::null());
        command
    }

    /// Starts a server that ends at once. Returns whether it served, and its output.
    fn serve(&self, path: &Path) -> (bool, String) {
        let output = self.command(path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn scripts_fill_a_new_data_directory_once() {
    let folder = Folder::new("init-once", &["2.js", "1.js", "readme.txt"]);
    for _ in 0..2 {
        let (served, printed) = folder.serve(&folder.scratch);
        assert!(served && printed.contains("mongodb://127.0.0.1:"), "{printed}");
    }
    assert_eq!(folder.noted(), "shop 1.js\nshop 2.js\n");
}

#[test]
fn unusable_scripts_are_reported_before_the_server_listens() {
    let failing = Folder::new("init-bad", &["1.js", "2-bad.js", "3.js"]);
    let (served, printed) = failing.serve(&failing.scratch);
    assert!(!served && printed.contains("2-bad.js failed: no such thing (exit status: 3)"), "{printed}");
    assert_eq!(failing.noted(), "shop 1.js\nshop 2-bad.js\n");
    let (served, printed) = failing.serve(&failing.scratch);
    assert!(!served && printed.contains("not finished at an earlier start"), "{printed}");
    fs::remove_file(failing.scratch.join("data/init-scripts.unfinished")).unwrap();
    assert!(failing.serve(&failing.scratch).0, "the partial results are kept");
    let (served, printed) = Folder::new("init-none", &["1.js"]).serve(Path::new("/nowhere"));
    assert!(!served && printed.contains("mongosh"), "{printed}");
    let shell = Folder::new("init-sh", &["1.sh"]);
    let (served, printed) = shell.serve(&shell.scratch);
    assert!(!served && printed.contains("1.sh: shell scripts are not supported"), "{printed}");
}

#[test]
fn a_folder_without_scripts_changes_nothing() {
    let folder = Folder::new("init-empty", &[]);
    assert!(folder.serve(Path::new("/nowhere")).0);
}

#[test]
fn a_signal_stops_the_scripts_and_the_start() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = Folder::new("init-stopped", &["1-endless.js", "2.js"]);
        let mut command = folder.command(&folder.scratch);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the script runs", || !folder.noted().is_empty());
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let (printed, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(printed.is_empty() && errors.contains("a signal stopped the scripts"), "{printed}{errors}");
        assert_eq!((folder.noted().as_str(), output.status.code()), ("shop 1-endless.js\n", Some(2)));
    }
}

#[test]
fn a_stopped_script_is_unfinished_even_if_it_succeeds() {
    let folder = Folder::new("init-patient", &["patient.js"]);
    let child =
        folder.command(&folder.scratch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the script runs", || !folder.noted().is_empty());
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("a signal stopped the scripts"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
    assert!(folder.scratch.join("data/init-scripts.unfinished").exists());
}

#[test]
fn a_program_named_mongod_runs_scripts_in_the_background() {
    let folder = Folder::new("init-mongod", &["1.js"]);
    // A hard link instead of a copy: a file that is still open for writing cannot run.
    let program = folder.scratch.join("mongod");
    fs::hard_link(env!("CARGO_BIN_EXE_vellum"), &program).unwrap();
    fs::create_dir(folder.scratch.join("data")).unwrap();
    let path = |name: &str| folder.scratch.join(name);
    let output = Command::new(&program)
        .args(["--fork", "--port", "0", "--dbpath"])
        .arg(path("data"))
        .arg("--logpath")
        .arg(path("log"))
        .arg("--pidfilepath")
        .arg(path("pid"))
        .env("PATH", format!("{}:/usr/bin:/bin", folder.scratch.display()))
        .env("MONGO_INITDB_DATABASE", "shop")
        .env("VELLUM_INIT_SCRIPTS", path("scripts"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}: {}", fs::read_to_string(path("log")).unwrap_or_default());
    let pid = fs::read_to_string(path("pid")).unwrap();
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGTERM).unwrap();
    until("the server's end", || !path("pid").exists());
    assert_eq!(folder.noted(), "shop 1.js\n");
}
