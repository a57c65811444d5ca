//! The lab's private data on a target: a database (PostgreSQL: a schema) named after the run's id.
//!
//! The lab drops only data that it created. An existing name is therefore refused. At the end the lab drops this
//! database and databases whose names begin with its name, which experiments create when they fork it.
//!
//! The module also has private directories for the data of servers, created empty and removed with their contents.

use super::{Protocol, Target};
use crate::{Error, Result};
use std::path::Path;
use tempfile::TempDir;

/// Prefix of the lab's database names, before the run's id.
const PREFIX: &str = "vellum_lab_";

/// Maximum length of a name: PostgreSQL's 63 bytes less the suffixes of experiments.
const NAME_MAX: usize = 48;

/// A database of this run on one target. Call [remove](Workspace::remove) in every case.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) target: Target,
    name: String,
}

impl Workspace {
    /// Creates the database. [`Target::database`] returns its name from then on.
    ///
    /// # Errors
    /// The database exists and may belong to another user, or the target refuses.
    pub(crate) async fn open(target: &Target, run: &str) -> Result<Workspace> {
        let name = name_of(run)?;
        let taken = match target.is_null_server {
            true => Vec::new(),
            false => ours(target.databases().await?, &name),
        };
        if let Some(other) = taken.first() {
            let message = format!("already has {other}, which this run did not create: nothing was changed");
            return Err(target.error(message));
        }
        if target.protocol == Protocol::Postgres {
            target.execute(&format!("CREATE SCHEMA {name}")).await?;
        }
        // MongoDB creates a database with its first collection.
        match target.workspace.set(name.clone()) {
            Ok(()) => Ok(Workspace { target: target.clone(), name }),
            Err(_) => Err(target.error("is used by another run of this process")),
        }
    }

    /// Drops the database and the databases made from it.
    ///
    /// # Errors
    /// The target is gone or refuses; the error names the remaining data.
    pub(crate) async fn remove(self) -> Result<()> {
        if self.target.is_null_server {
            return Ok(());
        }
        let target = &self.target;
        let removed = async { target.drop_databases(&ours(target.databases().await?, &self.name)).await };
        removed.await.map_err(|error| {
            let Error::Target { name, message } = error else { return error };
            let message = format!("the lab's database {} could not be removed: {message}", self.name);
            Error::Target { name, message }
        })
    }
}

/// Returns the name for a run, of characters that need no quoting.
fn name_of(run: &str) -> Result<String> {
    let plain: String =
        run.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let name = format!("{PREFIX}{plain}");
    if run.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Input(format!("'{run}' is not the id of a run")));
    }
    Ok(name)
}

/// Returns true for a name of this run: its own, or a name derived from it.
fn is_ours(candidate: &str, name: &str) -> bool {
    candidate.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

fn ours(mut names: Vec<String>, name: &str) -> Vec<String> {
    names.retain(|candidate| is_ours(candidate, name));
    names
}

/// A temporary directory, removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory below `parent`.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn below(parent: &Path) -> Result<Scratch> {
        let made = tempfile::Builder::new().prefix("vellum-lab-").tempdir_in(parent);
        made.map(Scratch)
            .map_err(|error| Error::File(format!("can't make a directory in {}: {error}", parent.display())))
    }

    /// Creates a directory in the folder of temporary files.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn temporary() -> Result<Scratch> {
        Scratch::below(&std::env::temp_dir())
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_run_are_ours() {
        let name = name_of("20261120-1416-AbC").unwrap();
        assert_eq!(name, "vellum_lab_20261120_1416_abc");
        assert!(is_ours(&name, &name) && is_ours("vellum_lab_20261120_1416_abc_fork", &name));
        for other in ["vellum_lab_20261120_1416_abcd", "vellum_lab_20261120_1416_ab", "admin", ""] {
            assert!(!is_ours(other, &name), "{other}");
        }
    }

    #[test]
    fn ids_that_make_no_name_are_refused() {
        assert!(name_of("").is_err() && name_of(&"x".repeat(60)).is_err());
    }
}

#[cfg(test)]
mod scratch_tests {
    use super::*;

    #[test]
    fn a_workspace_is_removed_with_its_contents() {
        let scratch = Scratch::temporary().unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
        assert!(matches!(Scratch::below(&path), Err(Error::File(_))));
    }
}
