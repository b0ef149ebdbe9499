//! Addresses and UDP headers of RFC 1928 §5 and §7.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::SocksError;
use crate::target::{Host, Target};

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Reads type, address and port; gives the bytes behind them. `None` when more bytes are needed.
pub fn read_address(bytes: &[u8]) -> Result<Option<(Target, &[u8])>, SocksError> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let host = match *kind {
        IPV4 => rest
            .split_first_chunk::<4>()
            .map(|(ip, rest)| (Host::from(IpAddr::V4(Ipv4Addr::from(*ip))), rest)),
        IPV6 => rest
            .split_first_chunk::<16>()
            .map(|(ip, rest)| (Host::from(IpAddr::V6(Ipv6Addr::from(*ip))), rest)),
        NAME => read_name(rest)?,
        other => return Err(SocksError::AddressType(other)),
    };
    let Some((host, rest)) = host else {
        return Ok(None);
    };
    Ok(rest.split_first_chunk::<2>().map(|(port, rest)| {
        let port = u16::from_be_bytes(*port);
        (Target { host, port }, rest)
    }))
}

/// Writes type, address and port.
pub fn write_address(target: &Target, out: &mut Vec<u8>) {
    match &target.host {
        Host::Ip(IpAddr::V4(ip)) => {
            out.push(IPV4);
            out.extend(ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            out.push(IPV6);
            out.extend(ip.octets());
        }
        Host::Name(name) => {
            // Names have at most 253 bytes.
            let name = name.as_bytes();
            let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
            out.extend([NAME, length]);
            out.extend(name.iter().take(usize::from(length)));
        }
    }
    out.extend(target.port.to_be_bytes());
}

/// Reads a client's UDP datagram: where it is to go, and its data.
pub fn read_datagram(datagram: &[u8]) -> Result<(Target, &[u8]), SocksError> {
    let ([_, _, fragment], rest) = datagram
        .split_first_chunk::<3>()
        .ok_or(SocksError::Truncated)?;
    if *fragment != 0 {
        return Err(SocksError::Fragment);
    }
    read_address(rest)?.ok_or(SocksError::Truncated)
}

/// A UDP datagram for a client: `addressed` is where it comes from and its data, as behind the first three bytes of
/// the header.
pub fn write_datagram(addressed: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(3 + addressed.len());
    datagram.extend([0, 0, 0]);
    datagram.extend(addressed);
    datagram
}

fn read_name(bytes: &[u8]) -> Result<Option<(Host, &[u8])>, SocksError> {
    let Some((length, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let Some((name, rest)) = rest.split_at_checked(usize::from(*length)) else {
        return Ok(None);
    };
    let name = std::str::from_utf8(name).map_err(|_| SocksError::Name)?;
    let host = Host::parse(name).ok_or(SocksError::Name)?;
    Ok(Some((host, rest)))
}
