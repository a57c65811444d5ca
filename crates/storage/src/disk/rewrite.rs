//! Writing the base anew when little of its file is still needed.
//!
//! Freed pages are used again, but a few pages in use behind them keep the file as long as it ever was. So what there
//! is is copied to a new file, which then takes the base's name; whoever still reads the old one keeps it open,
//! nameless. A crash leaves the one or the other.

use std::sync::Arc;

use super::base::{self, Base};
use super::control::Control;
use super::directory::NEW_BASE_FILE;
use super::journal::during;
use crate::Result;

/// The cache for the file being written.
const CACHE_BYTES: u64 = 4 << 20;

impl Base {
    /// Writes the base anew from its latest state, and goes on with that; `Closed` if it is told not to go on.
    pub(super) fn rewrite(&mut self, go_on: &dyn Fn() -> bool) -> Result<()> {
        let new = self.path.with_file_name(NEW_BASE_FILE);
        let files = Arc::clone(&self.files);
        let copy = || {
            base::make(&*files, &new)?;
            // Where there is no room for it, it isn't waited for.
            let control = Arc::new(Control::impatient());
            let mut copy =
                Base::open(Arc::clone(&files), new.clone(), CACHE_BYTES, self.compression, control)?;
            self.copy_to(&mut copy, go_on)?;
            let view = self.open_view(&new)?;
            files.rename(&new, &self.path).map_err(|error| during("renaming", &new, error))?;
            Ok(view)
        };
        match copy() {
            Ok(view) => self.go_on_in(view),
            Err(error) => {
                // If it stays it will be overwritten.
                let _ = files.remove(&new);
                return Err(error);
            }
        }
        self.settle()
    }
}
