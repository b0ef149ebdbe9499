//! Interception of datagrams that pass this host (TPROXY): a rule of nftables, a routing rule and a route, which exist as long as
//! their owner does.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _},
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use crate::Error;

/// Numbers for marks and routing tables; the first that nothing uses is taken.
const NUMBERS: std::ops::Range<u32> = 45_110..45_142;
/// Ends the rules when its input ends: with the process that owns the other end, however that ends. It ignores signals, which a
/// terminal and a service manager send to it, too.
const OWNER: &str = include_str!("interception.sh");

/// Datagrams to some foreign addresses arrive at a socket of this host, until dropped.
#[derive(Debug)]
pub(crate) struct Interception {
    owner: Child,
}

impl Interception {
    /// Datagrams that pass this host to `targets`, at the port of `socket`, arrive there. They keep their destination.
    ///
    /// # Errors
    /// [`Error::Interception`]: a program, a part of the kernel or the permission is missing.
    pub(crate) fn start(socket: SocketAddr, targets: &[IpAddr]) -> Result<Self, Error> {
        for number in NUMBERS {
            match Self::try_start(socket, targets, number) {
                // Another one has the number.
                Err(Refusal::Taken) => {}
                Err(Refusal::Other(reason)) => return Err(Error::Interception(reason)),
                Ok(started) => return Ok(started),
            }
        }
        let refusal = format!("marks and routing tables {NUMBERS:?} are all in use");
        Err(Error::Interception(refusal))
    }

    fn try_start(socket: SocketAddr, targets: &[IpAddr], number: u32) -> Result<Self, Refusal> {
        let mut command = Command::new("sh");
        command.args(["-c", OWNER, "sh", &number.to_string()]);
        command.args([family(socket), &rules(socket, targets, number)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).process_group(0);
        let mut owner = command.spawn().map_err(other)?;
        let mut answer = String::new();
        if let Some(output) = &mut owner.stdout {
            BufReader::new(output)
                .read_line(&mut answer)
                .map_err(other)?;
        }
        match answer.trim() {
            "ready" => return Ok(Self { owner }),
            "taken" => {
                let _ = owner.wait();
                return Err(Refusal::Taken);
            }
            _ => {}
        }
        let mut reason = String::new();
        if let Some(errors) = &mut owner.stderr {
            errors.read_to_string(&mut reason).map_err(other)?;
        }
        let _ = owner.wait();
        Err(Refusal::Other(reason.trim().to_owned()))
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        drop(self.owner.stdin.take());
        let _ = self.owner.wait();
    }
}

/// Why interception did not start.
enum Refusal {
    Taken,
    Other(String),
}

fn other(error: std::io::Error) -> Refusal {
    Refusal::Other(error.to_string())
}

const fn family(socket: SocketAddr) -> &'static str {
    match socket {
        SocketAddr::V4(_) => "-4",
        SocketAddr::V6(_) => "-6",
    }
}

/// The table of nftables.
fn rules(socket: SocketAddr, targets: &[IpAddr], number: u32) -> String {
    let to = match socket.ip() {
        ip if ip.is_unspecified() => String::new(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let ip = match socket {
        SocketAddr::V4(_) => "ip",
        SocketAddr::V6(_) => "ip6",
    };
    let port = socket.port();
    let mut text = format!(
        "create table inet starhaul_{number}\n\
         create chain inet starhaul_{number} passing {{ type filter hook prerouting priority mangle; }}\n"
    );
    for target in targets {
        // Without a socket, as before it is bound again, the rule ends at `tproxy`, and the datagram passes.
        let _ = writeln!(
            text,
            "add rule inet starhaul_{number} passing {ip} daddr {target} udp dport {port} \
             tproxy {ip} to {to}:{port} meta mark set {number} counter accept"
        );
    }
    text
}
