//! Ports of loopback for those who must know an address before it is bound.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{self, UnixListener},
    },
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
};

/// They lie below those that the kernel gives to others.
const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// An address on loopback that nothing has bound, for TCP and UDP. It is not one of those that the kernel gives to others meanwhile, and
/// none comes twice, nor to another test program that runs at the same time.
pub fn free() -> SocketAddr {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Another run of the tests begins elsewhere.
    let begin = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + begin.wrapping_add(tried) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if take(port) && is_unbound(address) {
            return address;
        }
    }
}

/// Takes a port, by a name that the kernel gives to one socket at a time and takes back when this process has ended; `false` if another
/// program has it.
fn take(port: u16) -> bool {
    static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = net::SocketAddr::from_abstract_name(format!("starhaul-test-port-{port}"));
    match name.and_then(|name| UnixListener::bind_addr(&name)) {
        Ok(listener) => {
            let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
            taken.push(listener);
            true
        }
        Err(error) => error.kind() != ErrorKind::AddrInUse,
    }
}

/// Whether no socket has the port of this address, by the kernel's tables: a socket that was bound to find out would, for a moment, belong
/// to a process as well that another test starts.
fn is_unbound(address: SocketAddr) -> bool {
    let read = |table: &str| fs::read_to_string(format!("/proc/thread-self/net/{table}"));
    let (Ok(tcp), Ok(udp)) = (read("tcp"), read("udp")) else {
        return UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok();
    };
    // A kernel without IPv6 has no such tables.
    let [tcp6, udp6] = ["tcp6", "udp6"].map(|table| read(table).unwrap_or_default());
    // proc(5): a row for each socket, with its local address in the second column.
    let end = format!(":{:04X}", address.port());
    let has_port = |row: &str| {
        let local = row.split_whitespace().nth(1);
        local.is_some_and(|local| local.ends_with(&end))
    };
    let tables = [tcp, udp, tcp6, udp6];
    let mut rows = tables.iter().flat_map(|table| table.lines());
    !rows.any(has_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_given_out_or_is_bound_is_not_free() {
        let (one, other) = (free(), free());
        assert_ne!(one, other);
        assert!(!take(one.port()), "another program would get it, too");
        let udp = UdpSocket::bind(one).unwrap();
        let tcp = TcpListener::bind(other).unwrap();
        assert!(!is_unbound(one) && !is_unbound(other));
        drop((udp, tcp));
        assert!(is_unbound(one) && is_unbound(other));
    }
}
