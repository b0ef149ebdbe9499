//! Receives with the kernel's timestamps (`SO_TIMESTAMPNS`): when a datagram reached this host, however late this
//! program reads it. Datagrams are received one by one, since joined ones (GRO) would share a timestamp.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd as _},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use socket2::SockAddr;

use crate::Error;

/// Messages per receive call.
const MESSAGES: usize = 64;
/// The largest IP packet of a jumbo frame.
const MESSAGE_BYTES: usize = 9216;
/// Room for timestamps, a destination address, an error with its sender, ECN bits and further data of the kernel.
const CONTROL_WORDS: usize = 40;
/// ICMP's types of "time exceeded" (RFC 792, RFC 4443 §3.3).
const EXCEEDED_V4: u8 = 11;
const EXCEEDED_V6: u8 = 3;
/// A greater difference between wall clock and monotonic clock over two receives means that the wall clock was set, not
/// slewed.
const CLOCK_STEP: Duration = Duration::from_millis(2);

/// A datagram with its timestamp.
#[derive(Clone, Copy, Debug)]
pub struct Stamped<'a> {
    /// The source address; `None` if it is of another family.
    pub remote: Option<SocketAddr>,
    /// The destination address on this host.
    pub local: Option<IpAddr>,
    /// When the kernel received it; when it was read, without a kernel timestamp.
    pub arrived: Instant,
    /// The payload. A raw ICMP socket for IPv4 includes the IP header.
    pub payload: &'a [u8],
    /// In messages of the error queue, the router at which the hop limit of our packet ended.
    pub(crate) offender: Option<IpAddr>,
}

/// The buffer of one receive.
pub struct StampedBuffer {
    bytes: Box<[u8]>,
    control: Box<[[u64; CONTROL_WORDS]]>,
    meta: Vec<Meta>,
    /// The clocks at the last receive.
    clock: Option<Clock>,
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    remote: Option<SocketAddr>,
    local: Option<IpAddr>,
    offender: Option<IpAddr>,
    arrived: Instant,
    length: usize,
}

/// Makes the kernel add timestamps to received datagrams, and keep datagrams apart.
///
/// # Errors
/// [`Error::System`] when the kernel has no timestamps.
pub(crate) fn stamp_arrivals(socket: &impl AsFd) -> Result<(), Error> {
    // A kernel or a socket without GRO joins nothing.
    let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, 0);
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).map_err(Error::System)
}

/// Makes the kernel add timestamps to received messages, which may be joined datagrams. In the room that [`crate::RecvBuffer`]
/// has for what the kernel tells, they leave none for the ECN bits of joined ones. Returns whether it does.
pub(crate) fn stamp_messages(socket: &impl AsFd) -> bool {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).is_ok()
}

/// Whether the kernel joins datagrams that arrive together into one message (`UDP_GRO`, Linux 5.0).
///
/// # Errors
/// [`Error::System`]: why it does not, or why there is no socket.
pub fn joins_datagrams() -> Result<(), Error> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
    let socket = socket.map_err(Error::System)?;
    set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1).map_err(Error::System)
}

/// Makes the kernel put each packet into the error queue, with a timestamp, when it passes it to the device. Returns
/// whether it does; some kernels cannot, and the time of the call is used then.
pub(crate) fn stamp_departures(socket: &impl AsFd) -> bool {
    let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let flags = libc::c_int::try_from(flags).unwrap_or(0);
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags).is_ok()
}

/// Makes the kernel put the errors that routers report for our packets into the error queue.
pub(crate) fn queue_errors(socket: &impl AsFd, ipv4: bool) -> Result<(), Error> {
    let (level, name) = match ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set(socket, level, name, 1).map_err(Error::System)
}

#[expect(unsafe_code, reason = "no safe binding exists")]
pub(crate) fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads one integer that lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl StampedBuffer {
    /// Creates an empty buffer of 576 KiB.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; MESSAGES * MESSAGE_BYTES].into_boxed_slice(),
            control: vec![[0; CONTROL_WORDS]; MESSAGES].into_boxed_slice(),
            meta: Vec::with_capacity(MESSAGES),
            clock: None,
        }
    }

    /// Receives available datagrams from a non-blocking socket; `false` when there are none. Errors of single datagrams
    /// (a pending ICMP error) count as received.
    pub(crate) fn recv(&mut self, socket: &impl AsFd) -> bool {
        self.recv_from(socket, 0)
    }

    /// Receives from the error queue: our packets with their departure timestamps ([`stamp_departures`]), and the
    /// errors that routers reported for them ([`queue_errors`]).
    pub(crate) fn recv_errors(&mut self, socket: &impl AsFd) -> bool {
        self.recv_from(socket, libc::MSG_ERRQUEUE)
    }

    #[expect(unsafe_code, reason = "no safe binding of recvmmsg exists")]
    fn recv_from(&mut self, socket: &impl AsFd, flags: libc::c_int) -> bool {
        self.meta.clear();
        // SAFETY: all-zero values of these plain structures are valid.
        let (mut headers, mut names): (
            [libc::mmsghdr; MESSAGES],
            [libc::sockaddr_storage; MESSAGES],
        ) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut vectors = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; MESSAGES];
        let rooms = self
            .bytes
            .chunks_exact_mut(MESSAGE_BYTES)
            .zip(&mut self.control);
        let parts = headers
            .iter_mut()
            .zip(&mut names)
            .zip(&mut vectors)
            .zip(rooms);
        for (((header, name), vector), (room, control)) in parts {
            vector.iov_base = room.as_mut_ptr().cast();
            vector.iov_len = room.len();
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = libc::socklen_t::try_from(size_of_val(name)).unwrap_or(0);
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(control) as _;
        }
        // SAFETY: every header points at its own name, vector, room and control area, which live across the call and
        // have the lengths written beside them.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                libc::c_uint::try_from(MESSAGES).unwrap_or(1),
                (libc::MSG_DONTWAIT | flags) as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            return io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock;
        };
        let clock = Clock::now();
        // Timestamps from before the wall clock was set would be wrong by the same step.
        let stepped = clock.stepped(&mut self.clock);
        for (header, name) in headers.iter().zip(&names).take(received) {
            let control = control_data(&header.msg_hdr);
            let stamp = control.stamp.filter(|_| !stepped);
            self.meta.push(Meta {
                remote: address(name, header.msg_hdr.msg_namelen),
                local: control.local,
                offender: control.offender,
                arrived: stamp.map_or(clock.now, |stamp| clock.instant_of(stamp)),
                length: usize::try_from(header.msg_len)
                    .unwrap_or(0)
                    .min(MESSAGE_BYTES),
            });
        }
        received > 0
    }

    /// The datagrams of the last receive, in order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Stamped<'_>> {
        let rooms = self.bytes.chunks_exact(MESSAGE_BYTES);
        self.meta.iter().zip(rooms).map(|(meta, room)| Stamped {
            remote: meta.remote,
            local: meta.local,
            arrived: meta.arrived,
            offender: meta.offender,
            payload: room.get(..meta.length).unwrap_or(room),
        })
    }
}

impl Default for StampedBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for StampedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StampedBuffer")
            .field("received", &self.meta.len())
            .finish_non_exhaustive()
    }
}

/// The wall clock, which the kernel's timestamps use, and the monotonic clock.
#[derive(Clone, Copy)]
struct Clock {
    now: Instant,
    wall: Duration,
}

impl Clock {
    fn now() -> Self {
        Self {
            wall: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            now: Instant::now(),
        }
    }

    /// Whether the wall clock was set since `before`, which is updated.
    fn stepped(self, before: &mut Option<Self>) -> bool {
        let Some(before) = before.replace(self) else {
            return false;
        };
        let passed = self.now.saturating_duration_since(before.now);
        self.wall.abs_diff(before.wall + passed) > CLOCK_STEP
    }

    fn instant_of(&self, stamp: Duration) -> Instant {
        let age = self.wall.saturating_sub(stamp);
        // Older than a socket's buffer allows: the wall clock was set in between.
        match age < Duration::from_secs(10) {
            true => self.now.checked_sub(age).unwrap_or(self.now),
            false => self.now,
        }
    }
}

/// When messages of a socket reached this host, by the kernel's timestamps. No message came before the socket was found empty
/// the last time, and after a step of the wall clock stamps count again when it was found empty once.
#[derive(Default)]
pub(crate) struct Waits {
    before: Option<Clock>,
    read: Option<Clock>,
    is_stepped: bool,
    empty: Option<Instant>,
}

impl Waits {
    /// Messages were read; returns when.
    pub(crate) fn read(&mut self) -> Instant {
        self.read_at(Clock::now())
    }

    fn read_at(&mut self, clock: Clock) -> Instant {
        self.is_stepped |= clock.stepped(&mut self.before);
        self.read = Some(clock);
        clock.now
    }

    /// The socket had nothing at this instant.
    pub(crate) fn found_empty(&mut self, at: Instant) {
        self.empty = Some(at);
        self.is_stepped = false;
    }

    /// When a message of the last read, at `now`, reached this host.
    pub(crate) fn arrived(&self, now: Instant, stamp: Option<Duration>) -> Instant {
        let clock = self.read.filter(|_| !self.is_stepped);
        let arrived = clock.zip(stamp).zip(self.empty);
        arrived.map_or(now, |((clock, stamp), empty)| {
            clock.instant_of(stamp).max(empty).min(now)
        })
    }
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waits").finish_non_exhaustive()
    }
}

/// The control messages of a datagram.
#[derive(Default)]
struct ControlData {
    stamp: Option<Duration>,
    local: Option<IpAddr>,
    offender: Option<IpAddr>,
}

#[expect(unsafe_code, reason = "control messages are read in place")]
fn control_data(header: &libc::msghdr) -> ControlData {
    let mut control = ControlData::default();
    // SAFETY: the kernel filled the header, whose control area is still alive; the macros stay inside of it. What a
    // message holds is read unaligned, in the type that its level and kind have.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(head) = message.as_ref() {
            let data = libc::CMSG_DATA(message);
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    let parts = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
                    if let (Ok(seconds), Ok(nanos)) = parts {
                        control.stamp = Some(Duration::new(seconds, nanos));
                    }
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    control.local = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    control.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) => {
                    let error = data.cast::<libc::sock_extended_err>();
                    let kind = error.read_unaligned();
                    if (kind.ee_origin, kind.ee_type) == (libc::SO_EE_ORIGIN_ICMP, EXCEEDED_V4) {
                        let from = error.add(1).cast::<libc::sockaddr_in>();
                        let from = u32::from_be(from.read_unaligned().sin_addr.s_addr);
                        control.offender = Some(Ipv4Addr::from(from).into());
                    }
                }
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    let error = data.cast::<libc::sock_extended_err>();
                    let kind = error.read_unaligned();
                    if (kind.ee_origin, kind.ee_type) == (libc::SO_EE_ORIGIN_ICMP6, EXCEEDED_V6) {
                        let from = error.add(1).cast::<libc::sockaddr_in6>();
                        let from = from.read_unaligned().sin6_addr.s6_addr;
                        control.offender = Some(Ipv6Addr::from(from).into());
                    }
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    control
}

#[expect(unsafe_code, reason = "an address as the kernel wrote it")]
fn address(name: &libc::sockaddr_storage, length: libc::socklen_t) -> Option<SocketAddr> {
    if length == 0 {
        return None;
    }
    // SAFETY: the kernel wrote an address of this length into the structure, which is large enough for every family.
    let address = unsafe {
        let ((), address) = SockAddr::try_init(|to, to_length| {
            to.cast::<libc::sockaddr_storage>().write(*name);
            *to_length = length;
            Ok(())
        })
        .ok()?;
        address
    };
    address.as_socket()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BindOptions, Transmit, UdpSocket};

    #[test]
    fn a_wall_clock_that_is_set_spoils_no_stamp_and_one_that_is_slewed_is_none() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut before = None;
        // Wall clock, elapsed time, whether it was set in between; NTP slews by 5 µs in 10 ms at most.
        for (wall_us, passed, set) in [
            (1_000_000_000, ms(0), false),
            (1_000_010_005, ms(10), false),
            (1_000_110_000, ms(20), true),
            (1_000_120_000, ms(30), false),
            (900_000_000, ms(40), true),
            (901_000_100, ms(1040), false),
        ] {
            let clock = Clock {
                wall: Duration::from_micros(wall_us),
                now: start + passed,
            };
            assert_eq!(clock.stepped(&mut before), set, "at {wall_us} µs");
        }
    }

    #[test]
    fn no_step_of_the_wall_clock_makes_a_message_wait() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let (wall, hour) = (Duration::from_secs(1_000_000), Duration::from_secs(3600));
        let clock = |at, wall| Clock {
            now: start + at,
            wall,
        };
        for stepped in [wall + hour, wall - hour, wall + ms(5), wall - ms(5)] {
            let mut waits = Waits::default();
            waits.found_empty(start);
            let now = waits.read_at(clock(ms(4), wall + ms(4)));
            assert_eq!(waits.arrived(now, Some(wall + ms(1))), start + ms(1));
            assert_eq!(waits.arrived(now, None), now);
            waits.found_empty(now);
            // Stamped before the step, and read in two calls.
            for at in [ms(10), ms(11)] {
                let now = waits.read_at(clock(at, stepped + at));
                assert_eq!(waits.arrived(now, Some(wall + ms(8))), now);
            }
            waits.found_empty(start + ms(12));
            let now = waits.read_at(clock(ms(20), stepped + ms(20)));
            assert_eq!(waits.arrived(now, Some(stepped + ms(15))), start + ms(15));
            let before = Some(stepped + ms(2));
            assert_eq!(waits.arrived(now, before), start + ms(12));
            assert_eq!(waits.arrived(now, Some(stepped + ms(30))), now);
        }
    }

    #[test]
    fn joined_datagrams_have_a_stamp_and_stay_apart() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || UdpSocket::bind(&BindOptions::new(address.parse().unwrap()));
            // A host without IPv6.
            let (Ok(sender), Ok(receiver)) = (bind(), bind()) else {
                continue;
            };
            assert!(stamp_messages(&receiver));
            let mut buffer = crate::RecvBuffer::new();
            let mut waits = Waits::default();
            let has_waited = (0..1000).any(|_| {
                let empty = Instant::now();
                assert!(!receiver.try_recv(&mut buffer).unwrap());
                waits.found_empty(empty);
                let transmit = Transmit {
                    to: receiver.local_addr(),
                    from: None,
                    ecn: 0,
                    contents: b"onettwo2",
                    segment_size: 4,
                };
                sender.try_send(&transmit).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                let (mut payloads, mut have_waited) = (Vec::new(), true);
                while payloads.len() < 2 && receiver.try_recv(&mut buffer).unwrap() {
                    let now = waits.read();
                    for message in buffer.messages() {
                        let arrived = waits.arrived(now, message.stamp);
                        have_waited &= now - arrived >= Duration::from_micros(2500);
                        assert_eq!(message.local, Some(receiver.local_addr().ip()));
                        payloads
                            .extend(message.contents.chunks(message.stride).map(<[u8]>::to_vec));
                    }
                }
                assert_eq!(payloads, [b"onet", b"two2"]);
                have_waited
            });
            assert!(has_waited, "{address}: no message was stamped on arrival");
        }
    }

    #[test]
    fn a_datagram_keeps_its_own_stamp_however_late_it_is_read() {
        let bind = || UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let (sender, receiver) = (bind(), bind());
        stamp_arrivals(&receiver).unwrap();
        let send = |contents: &[u8]| {
            let to = receiver.local_addr();
            let transmit = Transmit {
                to,
                from: None,
                ecn: 0,
                contents,
                segment_size: 4,
            };
            sender.try_send(&transmit).unwrap();
        };
        let mut buffer = StampedBuffer::new();
        let waits = Duration::from_millis(5);
        // The kernel begins to add timestamps a moment after the request.
        let stamped = (0..1000).any(|_| {
            // Two datagrams of one call, which offloading could join.
            send(b"onettwo2");
            std::thread::sleep(waits);
            assert!(buffer.recv(&receiver));
            let read = Instant::now();
            let all: Vec<_> = buffer.datagrams().collect();
            let payloads: Vec<_> = all.iter().map(|datagram| datagram.payload).collect();
            assert_eq!(payloads, [&b"onet"[..], b"two2"]);
            assert!(
                all.iter()
                    .all(|datagram| datagram.remote == Some(sender.local_addr())
                        && datagram.local == Some(receiver.local_addr().ip()))
            );
            all.iter()
                .all(|datagram| read - datagram.arrived >= waits / 2)
        });
        assert!(stamped, "every datagram was stamped when it was read");
        assert!(!buffer.recv(&receiver));
    }

    #[test]
    fn an_error_of_one_destination_joins_no_datagrams_that_are_to_stay_apart() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || UdpSocket::bind(&BindOptions::new(address.parse().unwrap()));
            // A host without IPv6.
            let (Ok(sender), Ok(receiver)) = (bind(), bind()) else {
                continue;
            };
            stamp_arrivals(&receiver).unwrap();
            let mut nowhere = receiver.local_addr();
            nowhere.set_port(0);
            let batch = |to| Transmit {
                to,
                from: None,
                ecn: 0,
                contents: b"onettwo2",
                segment_size: 4,
            };
            receiver.try_send(&batch(nowhere)).unwrap();
            assert_eq!(receiver.refused(), 2);
            sender.try_send(&batch(receiver.local_addr())).unwrap();
            let (mut buffer, mut received) = (StampedBuffer::new(), Vec::new());
            while buffer.recv(&receiver) {
                received.extend(buffer.datagrams().map(|one| one.payload.to_vec()));
            }
            assert_eq!(received, [b"onet", b"two2"], "{address}");
        }
    }
}
