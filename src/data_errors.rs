//! Errors of a data directory in words for the user: what is wrong, where, and what to do.

use std::io::ErrorKind;
use std::path::Path;
use storage::Error;

/// What the program was about to do with the directory.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Serve it, with Vellum's own options.
    Serve,
    /// Serve it, with mongod's options.
    Mongod,
    /// Repair it.
    Repair,
    /// Verify it.
    Verify,
    /// Back it up.
    Backup,
    /// Write a backup, or restore one.
    Target,
}

/// An error of a data directory, and the remedy.
pub(crate) fn explained(error: &Error, directory: &Path, purpose: Purpose) -> String {
    match error {
        Error::Io { kind: ErrorKind::ResourceBusy, message } => format!("{message}. {}", free(purpose)),
        Error::Io { kind: ErrorKind::DirectoryNotEmpty, message } => match purpose {
            Purpose::Serve => format!("{message}, or allow these files with --allow-other-files"),
            Purpose::Mongod => format!("{message}, or allow these files with VELLUM_ALLOW_OTHER_FILES=true"),
            _ => message.clone(),
        },
        Error::Io { kind: ErrorKind::PermissionDenied, message } => {
            let user = user();
            let what = message.split(" (os error").next().unwrap_or_default();
            format!(
                "user {user} may not use {} ({what}). Give the directory to this user (chown -R {user} {0}), or choose \
                 another directory",
                directory.display()
            )
        }
        Error::Io { kind: ErrorKind::ReadOnlyFilesystem, .. } => {
            format!("{} is on a read-only file system. Choose another directory", directory.display())
        }
        Error::Io { kind: ErrorKind::NotADirectory, .. } => {
            let file = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
            format!("{} is a file, and a directory is needed. Choose another path", file.display())
        }
        Error::Io { kind: ErrorKind::NotFound, message } if message.starts_with("reading ") => {
            let path = message["reading ".len()..].split(": ").next().unwrap_or_default();
            format!("there is no directory {path}. Check the path")
        }
        Error::Unavailable(why) => why.clone(),
        error => error.to_string(),
    }
}

/// How to get at a directory that another process uses.
fn free(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Serve | Purpose::Mongod | Purpose::Target => {
            "Stop that process first, or choose another directory"
        }
        Purpose::Repair => "Stop that process first",
        Purpose::Verify => {
            "Stop that server first, or make a backup of it (vellum backup URI TO) and verify the backup"
        }
        Purpose::Backup => "Name that server by its connection string instead of --data",
    }
}

/// The name of the user that runs this process.
#[cfg(unix)]
fn user() -> String {
    let id = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(id) {
        Ok(Some(user)) => user.name,
        _ => id.to_string(),
    }
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_else(|_| "of this process".to_string())
}
