//! Network interfaces by name.

use std::io;

/// The index of an interface in the namespace of the calling thread. An interface that is deleted and created again
/// gets a new one.
///
/// # Errors
/// No interface has this name.
#[expect(unsafe_code, reason = "if_nametoindex(3) has no safe binding")]
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the name ends with a zero byte and lives across the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
