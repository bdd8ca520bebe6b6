//! The allocator of Freshet's programs: mimalloc, with a count of what it has given
//! ([`freshet_base::memory`]), so that no owner has to be asked what a node takes.

use std::{
    alloc::{GlobalAlloc, Layout},
    ffi::c_long,
};

use freshet_base::memory::{allocated, freed};
use mimalloc::MiMalloc;
use rustix::process::{Resource, getrlimit};

/// For `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

// SAFETY: each method is mimalloc's of the same name, with the same arguments, and its result; so
// whatever mimalloc keeps of the trait's contract, this keeps. Counting neither allocates nor
// unwinds: it changes cells of the thread without a destructor, and counters in static memory.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are mimalloc's conditions.
        let given = unsafe { MiMalloc.alloc(layout) };
        if !given.is_null() {
            allocated(layout.size());
        }
        given
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let given = unsafe { MiMalloc.alloc_zeroed(layout) };
        if !given.is_null() {
            allocated(layout.size());
        }
        given
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as for `alloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let given = unsafe { MiMalloc.realloc(pointer, layout, size) };
        if !given.is_null() {
            allocated(size);
            freed(layout.size());
        }
        given
    }
}

/// mimalloc's options of these numbers: for how many milliseconds it keeps pages that it does not
/// use, and whether it makes all of an arena writable at once.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
const EAGER_COMMIT: libmimalloc_sys::mi_option_t = 4;

/// Has mimalloc keep unused pages for no longer than 10 ms, instead of a second and longer, and
/// lets a thread that has used much memory give it back at once
/// ([`freshet_base::memory::purge`]). The first thing that a program does.
pub fn set_up() {
    set(PURGE_DELAY, 10);
    // Writable memory counts for that limit (`ulimit -d`), whether it is used or not.
    if getrlimit(Resource::Data).current.is_some() {
        set(EAGER_COMMIT, 0);
    }
    freshet_base::memory::purge_by(purge);
}

fn set(option: libmimalloc_sys::mi_option_t, value: c_long) {
    // SAFETY: it changes a number that mimalloc reads now and then; no other thread of the program
    // is there yet.
    unsafe { libmimalloc_sys::mi_option_set(option, value) };
}

/// Gives back to the operating system what the allocator keeps for this thread and does not use.
/// Takes up to a few milliseconds.
fn purge() {
    // SAFETY: it may be called at any time, by any thread.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
