//! What a server that the lab started does to the file system: files made and removed below its data, counted by inotify.
//! Elsewhere than on Linux nothing is counted, and nothing is told.

use std::path::Path;

/// So many since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Files {
    pub(crate) created: u64,
    pub(crate) removed: u64,
}

#[cfg(target_os = "linux")]
pub(super) use linux::Watch;

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Watch;

#[cfg(not(target_os = "linux"))]
impl Watch {
    pub(super) fn new(_: &Path) -> Option<Watch> {
        None
    }

    pub(super) fn count(&self) -> Option<Files> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Files, Path};
    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    /// How often the kernel's queue is emptied, which holds 16,384 events.
    const STEP: Duration = Duration::from_millis(50);

    /// Counts from when it was made.
    #[derive(Debug)]
    pub(crate) struct Watch(Arc<Mutex<State>>);

    #[derive(Debug)]
    struct State {
        inotify: Inotify,
        directories: HashMap<WatchDescriptor, PathBuf>,
        files: Files,
        /// The kernel's queue has overflowed: then nobody knows.
        lost: bool,
    }

    impl Watch {
        /// Watches a directory and all below it; `None` if the system has no more watches to give.
        pub(crate) fn new(directory: &Path) -> Option<Watch> {
            let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
            let mut state =
                State { inotify, directories: HashMap::new(), files: Files::default(), lost: false };
            state.add(directory)?;
            let state = Arc::new(Mutex::new(state));
            let weak = Arc::downgrade(&state);
            std::thread::spawn(move || {
                while let Some(state) = weak.upgrade() {
                    state.lock().unwrap_or_else(PoisonError::into_inner).drain();
                    drop(state);
                    std::thread::sleep(STEP);
                }
            });
            Some(Watch(state))
        }

        /// How many until now.
        pub(crate) fn count(&self) -> Option<Files> {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.drain();
            (!state.lost).then_some(state.files)
        }
    }

    impl State {
        fn add(&mut self, directory: &Path) -> Option<()> {
            let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
            let watch = self.inotify.add_watch(directory, events).ok()?;
            self.directories.insert(watch, directory.to_path_buf());
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // One that is gone again has nothing to count.
                    let _ = self.add(&entry.path());
                }
            }
            Some(())
        }

        fn drain(&mut self) {
            loop {
                let events = match self.inotify.read_events() {
                    Ok(events) => events,
                    Err(Errno::EINTR) => continue,
                    Err(_) => return,
                };
                for event in events {
                    self.lost |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                    let created = event.mask.contains(AddWatchFlags::IN_CREATE);
                    if event.mask.contains(AddWatchFlags::IN_ISDIR) {
                        let parent = self.directories.get(&event.wd);
                        let path = parent.zip(event.name.as_ref()).map(|(parent, name)| parent.join(name));
                        if let Some(path) = path.filter(|_| created) {
                            let _ = self.add(&path);
                        }
                    } else if created {
                        self.files.created += 1;
                    } else if event.mask.contains(AddWatchFlags::IN_DELETE) {
                        self.files.removed += 1;
                    }
                }
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::target::Scratch;

    #[test]
    fn files_made_and_removed_are_counted_below_too() {
        let scratch = Scratch::temporary().unwrap();
        std::fs::create_dir(scratch.path().join("a")).unwrap();
        let watch = Watch::new(scratch.path()).unwrap();
        for name in ["x", "a/y", "a/z"] {
            std::fs::write(scratch.path().join(name), "1").unwrap();
        }
        std::fs::remove_file(scratch.path().join("a/y")).unwrap();
        assert_eq!(watch.count(), Some(Files { created: 3, removed: 1 }));
    }
}
