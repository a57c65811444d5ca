//! A directory of the lab's own for servers' data: made empty, and removed with everything in it.

use crate::error::{Error, Result};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A temporary directory; removed when this goes.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new directory below this one.
    ///
    /// # Errors
    /// It can't be made.
    pub(crate) fn below(parent: &Path) -> Result<Scratch> {
        loop {
            let path = parent.join(format!("vellum-lab-{:016x}", fresh()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch(path)),
                // So unlikely that it happens once at most.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::File(format!("can't make {}: {error}", path.display()))),
            }
        }
    }

    /// A new one where temporary files go.
    ///
    /// # Errors
    /// It can't be made.
    pub(crate) fn temporary() -> Result<Scratch> {
        Scratch::below(&std::env::temp_dir())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed is left to whoever clears temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A number that nobody can guess: the standard library keys its hashing from the system's.
pub(super) fn fresh() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let scratch = Scratch::temporary().unwrap();
        let path = scratch.path().to_path_buf();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
        assert!(matches!(Scratch::below(&path), Err(Error::File(_))));
    }
}
