//! A mongod that the lab starts: one on the path, or the one of `--mongod`.
//!
//! A shell stands between, as for PostgreSQL: when its standard input closes, however the lab ended, it stops the server
//! and removes its directory.

use super::launch::{Kept, Place, Started, failed};
use super::postgres::{free_port, log_tail, supervised};
use super::{Scratch, Target};
use crate::error::Result;
use crate::options::Given;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long it may take to listen.
const START: Duration = Duration::from_secs(60);

/// What stands for "don't start one".
const NONE: &str = "none";

/// The program to start: that of the options, or `mongod` on the path.
pub(crate) fn program(given: Option<&Path>) -> Option<PathBuf> {
    match given {
        Some(path) if path == Path::new(NONE) => None,
        Some(path) => Some(path.to_path_buf()),
        None => {
            let search = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&search)
                .map(|directory| directory.join("mongod"))
                .find(|path| path.is_file())
        }
    }
}

/// Starts it with data of its own, and waits until it listens.
///
/// # Errors
/// It can't be started, or doesn't listen in time; with the last lines of its log.
pub(crate) async fn start(program: &Path, place: &Place) -> Result<Target> {
    let name = place.name("mongod");
    let wrong = |why: String| failed(&name, format!("{}: {why}", program.display()));
    let scratch = Scratch::below(&place.data)?;
    let (directory, journal) = (scratch.path().to_path_buf(), place.journal()?);
    let data = directory.join("data");
    std::fs::create_dir(&data).map_err(|error| wrong(error.to_string()))?;
    if let Some(journal) = &journal {
        // WiredTiger follows a link to where its journal is to be.
        let linked = std::os::unix::fs::symlink(journal.path(), data.join("journal"));
        linked.map_err(|error| wrong(error.to_string()))?;
    }
    let port = free_port().map_err(|error| wrong(error.to_string()))?;
    let mut command = supervised(&directory);
    command.arg(program).arg("--dbpath").arg(&data).arg("--logpath").arg(directory.join("log"));
    command.args(["--bind_ip", "127.0.0.1", "--nounixsocket", "--port", &port.to_string()]);
    let kept = Kept { _scratch: Some(scratch), data: Some(data), journal, ..Kept::default() };
    let mut started = Started::spawn(&mut command, kept).map_err(|error| wrong(error.to_string()))?;
    let deadline = Instant::now() + START;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if started.has_ended() || Instant::now() > deadline {
            return Err(wrong(format!("it doesn't listen{}", log_tail(&directory))));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let uri = format!("mongodb://127.0.0.1:{port}/");
    Target::reach(&Given { name, uri }, Some(started)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_none_and_a_path_is_that_path() {
        assert_eq!(program(Some(Path::new("none"))), None);
        assert_eq!(program(Some(Path::new("/x/mongod"))), Some(PathBuf::from("/x/mongod")));
    }
    /// A mongod that notes what it was given, and where its journal leads, and ends.
    const NOTES: &str = "#!/bin/sh\n\
        cd \"$(dirname \"$0\")\" || exit 1\n\
        printf '%s\\n' \"$@\" >words\n\
        while [ $# -gt 0 ]; do [ \"$1\" = --dbpath ] && ls -ld \"$2\"/* >data; shift; done\n\
        exit 48\n";

    #[tokio::test(flavor = "multi_thread")]
    async fn its_journal_is_where_it_was_wanted() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::temporary().unwrap();
        let (program, journals) = (scratch.path().join("mongod"), scratch.path().join("journals"));
        std::fs::write(&program, NOTES).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::create_dir(&journals).unwrap();
        let places = super::super::places(&[], Some(&journals), scratch.path());
        let began = Instant::now();
        let failed = start(&program, &places[0]).await.unwrap_err().to_string();
        assert!(began.elapsed() < START / 2, "one that ends isn't waited for");
        assert!(failed.contains("doesn't listen"), "{failed}");
        let note = |name: &str| std::fs::read_to_string(scratch.path().join(name)).unwrap();
        let (words, data) = (note("words"), note("data"));
        let words: Vec<&str> = words.lines().collect();
        let own = format!("{}/vellum-lab-", scratch.path().display());
        assert!(
            words[0] == "--dbpath" && words[1].starts_with(&own) && words[1].ends_with("/data"),
            "{words:?}"
        );
        assert!(
            words[2] == "--logpath" && words[3].starts_with(&own) && words[3].ends_with("/log"),
            "{words:?}"
        );
        assert_eq!(words[4..7], ["--bind_ip", "127.0.0.1", "--nounixsocket"], "{words:?}");
        assert!(words[7] == "--port" && words[8].parse::<u16>().is_ok() && words.len() == 9, "{words:?}");
        let leads_to = format!("/journal -> {}/vellum-lab-", journals.display());
        assert!(data.contains(&leads_to), "{data}");
        // What was made for it is gone with it.
        assert_eq!(std::fs::read_dir(&journals).unwrap().count(), 0);
    }
}
