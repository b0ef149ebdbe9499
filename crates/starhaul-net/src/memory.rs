//! Giving memory back to the system.

/// Gives back what the allocator keeps of the calling thread's memory, and of memory that no thread uses any more. Without the feature
/// `mimalloc`, and in programs with another allocator, it does nothing.
///
/// mimalloc gives back what was freed while it is asked for more: a process that does nothing keeps it. The call takes up to some
/// milliseconds, and what is needed again soon after must be fetched anew, so it is for the time after work has ended.
pub fn release_memory() {
    #[cfg(feature = "mimalloc")]
    allocator::collect();
}

#[cfg(feature = "mimalloc")]
#[allow(unsafe_code, reason = "no safe binding exists")]
mod allocator {
    // Has the function in its library, but a binding only with a feature that needs one more crate.
    use libmimalloc_sys as _;

    unsafe extern "C" {
        fn mi_collect(force: bool);
    }

    pub(super) fn collect() {
        // SAFETY: `mimalloc.h` has this signature, and any thread may call it at any time: it frees only what is free.
        unsafe { mi_collect(true) }
    }
}
