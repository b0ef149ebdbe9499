//! Room in the kernel for what a TCP connection is sent: bytes are taken from what carries them, which counts and bounds them, when
//! the kernel takes them too. An application that does not read then holds no memory of ours beyond that.

use std::io;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use socket2::SockRef;
use tokio::{io::Interest, net::TcpStream};

/// The least that is passed on at once: less costs more than it spares.
const LEAST: usize = 4 << 10;
/// A buffer of this size takes as much as any reader gives at once; it does not become smaller.
const AMPLE: usize = 1 << 20;

/// What is known of the room of a connection.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Something was written: until then the kernel's buffer is empty.
    is_used: bool,
    is_ample: bool,
}

/// How much the kernel takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    /// Whatever a reader gives at once.
    All,
    /// So many bytes.
    Some(usize),
}

impl Room {
    /// Waits until a third of the kernel's buffer is free, and says how much fits then. Cancelling loses nothing.
    ///
    /// # Errors
    /// The system's. A connection that has ended is ready: writing tells why.
    pub(crate) async fn wait(&mut self, tcp: &TcpStream) -> io::Result<Fits> {
        if self.is_used {
            until_writable(tcp).await?;
        }
        self.is_used = true;
        self.fits(tcp)
    }

    fn fits(&mut self, tcp: &TcpStream) -> io::Result<Fits> {
        if !self.is_ample {
            let buffer = SockRef::from(tcp).send_buffer_size()?;
            if buffer < AMPLE {
                // The kernel counts its own overhead, too.
                return Ok(Fits::Some((buffer / 4).max(LEAST)));
            }
            self.is_ample = true;
        }
        Ok(Fits::All)
    }
}

async fn until_writable(tcp: &TcpStream) -> io::Result<()> {
    loop {
        tcp.writable().await?;
        // It tells what was once so: the kernel is asked, and where there is no room now, that is forgotten.
        let asked = tcp.try_io(Interest::WRITABLE, || match is_writable(tcp)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        });
        match asked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            asked => return asked,
        }
    }
}

/// Whether a third of the send buffer is free (`sk_stream_is_writeable`), or the connection has ended.
fn is_writable(tcp: &TcpStream) -> io::Result<bool> {
    let mut asked = [PollFd::new(tcp, PollFlags::OUT)];
    loop {
        // Where there is no room, asking makes the kernel tell when there is.
        match poll(&mut asked, Some(&Timespec::default())) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use super::*;

    /// A reader that stands still, with the kernel's own buffers and with small ones.
    #[tokio::test]
    async fn what_is_said_to_fit_is_taken_whole_until_the_reader_has_had_enough() {
        const GIVEN_AT_ONCE: usize = 256 << 10;
        for buffer in [None, Some(16 << 10), Some(200 << 10)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (reader, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (mut reader, writer) = (reader.unwrap(), accepted.unwrap().0);
            if let Some(bytes) = buffer {
                SockRef::from(&writer).set_send_buffer_size(bytes).unwrap();
            }
            writer.writable().await.unwrap();
            let (mut room, mut written) = (Room::default(), 0);
            while is_writable(&writer).unwrap() {
                let bytes = match room.wait(&writer).await.unwrap() {
                    Fits::All => GIVEN_AT_ONCE,
                    Fits::Some(bytes) => bytes,
                };
                let taken = writer.try_write(&vec![7; bytes]).unwrap();
                assert_eq!(taken, bytes, "{buffer:?}: after {written} bytes");
                written += taken;
            }
            // Once the reader goes on there is room again.
            let drain = async {
                let mut data = vec![0; 64 << 10];
                while written > 0 {
                    written -= reader.read(&mut data).await.unwrap();
                }
            };
            let (found, ()) = tokio::join!(room.wait(&writer), drain);
            found.unwrap();
        }
    }

    #[tokio::test]
    async fn one_who_has_gone_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reader, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let writer = accepted.unwrap().0;
        writer.writable().await.unwrap();
        while is_writable(&writer).unwrap() {
            writer.try_write(&vec![7; 64 << 10]).unwrap();
        }
        let mut room = Room {
            is_used: true,
            is_ample: false,
        };
        // With what it has not read, which makes it a reset.
        let go = async { drop(reader) };
        let (found, ()) = tokio::join!(room.wait(&writer), go);
        found.unwrap();
        let lost = loop {
            match writer.try_write(&[7]) {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error.kind(),
            }
        };
        assert_ne!(lost, io::ErrorKind::WouldBlock);
    }
}
