//! Watches names while calls live: what is masked, and the scripts that calls run.
//!
//! Editors save by renaming a new file over the old one. The mask lies on the old one, so for calls
//! that are running the new one is not covered. Nothing inside can bring this about: what is masked
//! there can be neither moved nor replaced. One inotify for all calls, because taking one down makes
//! the kernel wait; what cannot be watched is not run.
//!
//! The copy of a script is lost in the same way. By then its interpreter has most likely read it, and
//! ending the call would leave half of its work: it goes on, and the record says so.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use crate::ground::policy::{Guard, Hold};
use crate::ground::root::Root;
use crate::ground::spot::Spot;
use crate::sys;

/// The lookout of a sandbox; there is none before the first call that needs it.
#[derive(Default)]
pub(crate) struct Lookout(OnceLock<Arc<Shared>>);

struct Shared {
    inotify: OwnedFd,
    /// Who is told about which folder.
    watched: Mutex<HashMap<i32, Vec<Watcher>>>,
}

struct Watcher {
    name: Vec<u8>,
    what: Watched,
    call: Arc<Lost>,
}

/// Why a name is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Mask,
    Code,
}

/// What became of a call's masks and copies.
struct Lost {
    which: OnceLock<Spot>,
    code: OnceLock<Spot>,
    folder: HashMap<i32, Spot>,
    end: CancellationToken,
}

/// A call that is watched over, until this is dropped.
pub(crate) struct Watching {
    shared: Option<Arc<Shared>>,
    call: Arc<Lost>,
}

impl Lookout {
    /// Watches what is masked, and the files that run; `end` is cancelled when a mask is lost.
    pub(crate) fn watch(
        &self,
        root: &Root,
        guards: &[Guard],
        code: &[Spot],
        end: CancellationToken,
    ) -> io::Result<Watching> {
        let masked = guards.iter().filter(|guard| guard.hold == Hold::Masked);
        let masked = masked.map(|guard| (&guard.at, Watched::Mask));
        let mut names: HashMap<Spot, Vec<(Vec<u8>, Watched)>> = HashMap::new();
        for (at, what) in masked.chain(code.iter().map(|at| (at, Watched::Code))) {
            let folder = at.parent().unwrap_or_default();
            let name = (at.name().to_vec(), what);
            names.entry(folder).or_default().push(name);
        }
        let nothing = Lost {
            which: OnceLock::new(),
            code: OnceLock::new(),
            folder: HashMap::new(),
            end,
        };
        if names.is_empty() {
            let (shared, call) = (None, Arc::new(nothing));
            return Ok(Watching { shared, call });
        }
        let shared = self.shared()?;
        let mut watched = shared.lock();
        let (mut folder, mut told) = (HashMap::new(), Vec::new());
        for (at, names) in names {
            // By handle: whatever is renamed meanwhile, it is this folder.
            let handle = match root.open(&at, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(handle) => handle,
                // The helper compares what runs, and finds out as well.
                Err(_) if names.iter().all(|(_, what)| *what == Watched::Code) => continue,
                Err(error) => return Err(error.into()),
            };
            let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
            let what = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            let number = inotify::add_watch(&shared.inotify, path, what)?;
            folder.insert(number, at);
            told.push((number, names));
        }
        let call = Arc::new(Lost { folder, ..nothing });
        for (number, names) in told {
            let watchers = names.into_iter().map(|(name, what)| Watcher {
                name,
                what,
                call: Arc::clone(&call),
            });
            watched.entry(number).or_default().extend(watchers);
        }
        drop(watched);
        let shared = Some(shared);
        Ok(Watching { shared, call })
    }

    fn shared(&self) -> io::Result<Arc<Shared>> {
        if let Some(shared) = self.0.get() {
            return Ok(Arc::clone(shared));
        }
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let events = sys::watch(inotify.try_clone()?, Interest::READABLE)?;
        let shared = Arc::new(Shared {
            inotify,
            watched: Mutex::default(),
        });
        let kept = self.0.get_or_init(|| Arc::clone(&shared));
        if Arc::ptr_eq(kept, &shared) {
            tokio::spawn(look_out(events, Arc::downgrade(&shared)));
        }
        Ok(Arc::clone(kept))
    }
}

/// Tells calls about their masks, for as long as the lookout is there.
async fn look_out(events: AsyncFd<OwnedFd>, shared: std::sync::Weak<Shared>) {
    let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
    while let Ok(mut ready) = events.readable().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut reader = inotify::Reader::new(events.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    let name = event.file_name().map(|name| name.to_bytes().to_vec());
                    shared.tell(event.wd(), name.as_deref(), overflow);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        ready.clear_ready();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Vec<Watcher>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name appeared in a watched folder. After an overflow any may have.
    fn tell(&self, number: i32, name: Option<&[u8]>, overflow: bool) {
        let watched = self.lock();
        for (folder, watchers) in watched.iter() {
            for watcher in watchers {
                let same = *folder == number && name == Some(watcher.name.as_slice());
                if same || overflow {
                    let at = watcher.call.folder.get(folder).cloned().unwrap_or_default();
                    let at = at.join(&watcher.name);
                    match watcher.what {
                        Watched::Mask => {
                            let _ = watcher.call.which.set(at);
                            watcher.call.end.cancel();
                        }
                        Watched::Code => drop(watcher.call.code.set(at)),
                    }
                }
            }
        }
    }
}

impl Watching {
    /// Which mask was lost, if one was.
    pub(crate) fn lost(&self) -> Option<&Spot> {
        self.call.which.get()
    }
}

impl Watching {
    /// Which script was replaced, if one was.
    pub(crate) fn replaced(&self) -> Option<&Spot> {
        self.call.code.get()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        let mut watched = shared.lock();
        for number in self.call.folder.keys() {
            if let Some(watchers) = watched.get_mut(number) {
                watchers.retain(|watcher| !Arc::ptr_eq(&watcher.call, &self.call));
                if watchers.is_empty() {
                    watched.remove(number);
                    let _ = inotify::remove_watch(&shared.inotify, *number);
                }
            }
        }
    }
}
