//! The only module with `unsafe`: one page of memory for one key.
//!
//! The heap is no place for a key: its pages go to the swap and into core files, and what was freed
//! there is somebody else's next. A page of its own is locked, left out of core files and of
//! children's memory, and overwritten before it is given back.

#![expect(unsafe_code, reason = "memory that is mapped and locked by hand")]

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// As small as the kernel maps. A machine with larger pages rounds it up by itself.
const LENGTH: usize = 4096;

/// A page that holds `N` bytes at its start.
pub(crate) struct LockedPage<const N: usize> {
    start: NonNull<u8>,
    locked: bool,
}

// SAFETY: the page belongs to this value alone; it is read through `&` and written through `&mut`,
// as with any owned array.
unsafe impl<const N: usize> Send for LockedPage<N> {}
// SAFETY: as above; there is no interior mutability.
unsafe impl<const N: usize> Sync for LockedPage<N> {}

impl<const N: usize> LockedPage<N> {
    /// A page of zeros.
    pub(crate) fn new() -> io::Result<Self> {
        const { assert!(N <= LENGTH, "it must fit into one page") };
        // SAFETY: a fresh private mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                LENGTH,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("no page was mapped"))?;
        // A limit on locked memory (RLIMIT_MEMLOCK) may refuse; a key that may be swapped is better
        // than none, and the vault's status says so.
        // SAFETY: exactly the mapping made above.
        let locked = unsafe { rustix::mm::mlock(start.as_ptr().cast(), LENGTH) }.is_ok();
        for advice in [Advice::LinuxDontDump, Advice::LinuxWipeOnFork] {
            // SAFETY: exactly the mapping made above; neither advice changes it for this process.
            let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), LENGTH, advice) };
        }
        Ok(Self { start, locked })
    }

    /// Whether the kernel promised to keep it out of the swap.
    pub(crate) const fn is_locked(&self) -> bool {
        self.locked
    }

    pub(crate) const fn bytes(&self) -> &[u8; N] {
        // SAFETY: the mapping is readable, at least `N` long, aligned for bytes, initialised with
        // zeros by the kernel, and lives as long as `self`.
        unsafe { &*self.start.as_ptr().cast::<[u8; N]>() }
    }

    pub(crate) const fn bytes_mut(&mut self) -> &mut [u8; N] {
        // SAFETY: as in `bytes`, and `&mut self` is the only way to it.
        unsafe { &mut *self.start.as_ptr().cast::<[u8; N]>() }
    }
}

impl<const N: usize> Drop for LockedPage<N> {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(self.bytes_mut());
        // SAFETY: the mapping made in `new`, which nothing refers to any more. Unmapping unlocks.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), LENGTH) };
    }
}
