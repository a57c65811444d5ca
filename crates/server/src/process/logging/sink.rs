//! Destinations of log lines, and the reopening and rotation of files.

use super::Destination;
use super::line::format_time;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open destination.
#[derive(Debug)]
pub(super) enum Sink {
    StandardError,
    StandardOutput,
    File(PathBuf, File),
}

impl Sink {
    /// Opens a destination. An existing file is renamed first unless it is appended to, as in
    /// mongod.
    pub(super) fn open(to: &Destination) -> io::Result<Sink> {
        match to {
            Destination::StandardError => Ok(Sink::StandardError),
            Destination::StandardOutput => Ok(Sink::StandardOutput),
            Destination::File { path, append } => {
                if !append && fs::metadata(path).is_ok_and(|file| file.len() > 0) {
                    fs::rename(path, rotated_name(path, super::now_millis()))?;
                }
                Ok(Sink::File(path.clone(), open(path)?))
            }
        }
    }

    /// Returns the path of the file; `None` for a stream.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Sink::File(path, _) => Some(path),
            Sink::StandardError | Sink::StandardOutput => None,
        }
    }

    /// Writes a line with a final newline. Errors are ignored.
    pub(super) fn write(&mut self, mut line: String) {
        line.push('\n');
        // A failure of the log itself cannot be reported anywhere.
        let _ = match self {
            Sink::StandardError => io::stderr().write_all(line.as_bytes()),
            Sink::StandardOutput => {
                let mut out = io::stdout().lock();
                out.write_all(line.as_bytes()).and_then(|()| out.flush())
            }
            Sink::File(_, file) => file.write_all(line.as_bytes()),
        };
    }

    /// Opens the file at the same path again.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Sink::File(path, file) = self {
            *file = open(path)?;
        }
        Ok(())
    }

    /// Renames the file and begins a new file. Returns the new name of the old file.
    pub(super) fn rotate(&mut self, now: i64) -> io::Result<Option<PathBuf>> {
        let Sink::File(path, file) = self else { return Ok(None) };
        let old = rotated_name(path, now);
        fs::rename(&*path, &old)?;
        *file = open(path)?;
        Ok(Some(old))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Returns the name of a rotated log: the path with the time, as in mongod, and a number if that
/// name exists.
fn rotated_name(path: &Path, now: i64) -> PathBuf {
    let time = format_time(now);
    let time = time.split('.').next().unwrap_or_default().replace(':', "-");
    let named = |end: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let first = named(format!(".{time}"));
    if !first.exists() {
        return first;
    }
    let others = (1..).map(|number| named(format!(".{time}.{number}")));
    others.into_iter().find(|name| !name.exists()).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("vellum-log-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn lines(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn to(folder: &Folder, append: bool) -> Sink {
        Sink::open(&Destination::File { path: folder.0.join("log"), append }).unwrap()
    }

    #[test]
    fn a_rotated_log_keeps_its_lines_under_another_name() {
        let folder = Folder::new("rotate");
        let mut sink = to(&folder, true);
        for expected in ["log.1970-01-01T00-00-01", "log.1970-01-01T00-00-01.1"] {
            sink.write(format!("before {expected}"));
            let old = sink.rotate(1000).unwrap().unwrap();
            assert_eq!(old, folder.0.join(expected));
            assert_eq!(folder.lines(expected), format!("before {expected}\n"));
        }
        sink.write("after".to_string());
        assert_eq!(folder.lines("log"), "after\n");
        assert_eq!(Sink::StandardError.rotate(0).unwrap(), None);
    }

    #[test]
    fn a_log_moved_away_is_opened_again() {
        let folder = Folder::new("reopen");
        let mut sink = to(&folder, true);
        fs::rename(folder.0.join("log"), folder.0.join("moved")).unwrap();
        sink.write("still".to_string());
        sink.reopen().unwrap();
        sink.write("new".to_string());
        assert_eq!(
            (folder.lines("moved"), folder.lines("log")),
            ("still\n".to_string(), "new\n".to_string())
        );
    }

    #[test]
    fn an_earlier_log_is_appended_to_or_kept() {
        let folder = Folder::new("append");
        to(&folder, true).write("one".to_string());
        to(&folder, true).write("two".to_string());
        assert_eq!(folder.lines("log"), "one\ntwo\n");
        to(&folder, false).write("three".to_string());
        assert_eq!(folder.lines("log"), "three\n");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    }
}
