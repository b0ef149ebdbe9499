//! TUN devices: packets that the kernel sends through them are read here, and packets written here arrive at the
//! kernel.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::fs::OpenOptionsExt as _,
    },
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::interface_index;

/// A TUN device, removed when this value is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    index: u32,
}

impl Tun {
    /// Creates a device in the namespace of the calling thread; a `%d` in the name becomes a free number.
    ///
    /// # Errors
    /// The system's: without `CAP_NET_ADMIN`, or when there is a device of this name.
    #[expect(unsafe_code, reason = "ioctl(2) has no safe binding for TUN devices")]
    pub fn create(name: &str) -> io::Result<Self> {
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

    /// Its name, with the number that the kernel chose.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads the next packet that the kernel sent, if there is one.
    ///
    /// # Errors
    /// The system's; `EBADFD` when the device is gone or down.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(buffer) {
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes a packet to the kernel as received.
    ///
    /// # Errors
    /// The system's: the bytes are no IP packet, or the device is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

/// A device that goes is an error, and never readable.
const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

/// A TUN device for tasks of tokio.
#[derive(Debug)]
pub struct AsyncTun(AsyncFd<Tun>);

impl AsyncTun {
    /// Registers the device with the runtime of the caller.
    ///
    /// # Errors
    /// The system's.
    #[expect(unsafe_code, reason = "a registered descriptor must stay what it is")]
    pub fn new(tun: Tun) -> io::Result<Self> {
        // SAFETY: the device owns its descriptor, which nothing replaces or closes before it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(tun, INTEREST) };
        Ok(Self(registered?))
    }

    /// Waits until there may be packets, and passes up to `most` to `take`, which tells whether there was one.
    ///
    /// # Errors
    /// Those of `take`, which reads with [`Tun::try_read`].
    pub async fn read(
        &self,
        most: usize,
        mut take: impl FnMut(&Tun) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut ready = self.0.ready(INTEREST).await?;
        for _ in 0..most {
            if !take(self.0.get_ref())? {
                ready.clear_ready();
                break;
            }
        }
        Ok(())
    }

    /// The device itself.
    pub fn get(&self) -> &Tun {
        self.0.get_ref()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
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
const FLAGS: i16 = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as i16;
