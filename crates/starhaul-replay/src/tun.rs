//! TUN devices: packets that the kernel sends through them are read here, and packets written here arrive at the
//! kernel.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
};

use starhaul_net::interface_index;

/// The largest packet, and the size of a trace's delivery opportunity.
pub(crate) const MTU: u32 = 1500;
/// Length of the read queue: the kernel must never drop a packet before the link has seen it.
pub(crate) const READ_QUEUE_PACKETS: u32 = 10_000;

/// A TUN device, removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
    name: String,
    index: u32,
}

impl Tun {
    /// Creates a device in the namespace of the calling thread; a `%d` in the name becomes a free number.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe binding for TUN devices")]
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the name is too long",
            ));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        request.ifr_ifru.ifru_flags = FLAGS;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives across the call.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let name: Vec<u8> = request
            .ifr_name
            .iter()
            .map(|byte| byte.to_ne_bytes()[0])
            .take_while(|byte| *byte != 0)
            .collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        let index = interface_index(&name)?;
        Ok(Self { file, name, index })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Reads the next packet that the kernel sent, if there is one.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Passes a packet to the kernel as received.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "flags of sixteen bits in a wider constant"
)]
const FLAGS: i16 = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
