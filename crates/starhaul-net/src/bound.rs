//! Why an address cannot be bound.

use std::io;

/// The system's error with what to do about it, for messages that have named the address.
pub fn not_bound(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::AddrInUse => "`ss -lntup` shows which process has it",
        io::ErrorKind::AddrNotAvailable => "this host does not have the address",
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn each_cause_has_its_advice() -> io::Result<()> {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let second = TcpListener::bind(first.local_addr()?);
        let taken = second.map_or_else(|error| not_bound(&error), |_| "bound".to_owned());
        assert!(taken.contains("shows which process"), "{taken}");
        let foreign = not_bound(&io::ErrorKind::AddrNotAvailable.into());
        assert!(foreign.contains("does not have"), "{foreign}");
        let denied = not_bound(&io::ErrorKind::PermissionDenied.into());
        assert!(denied.contains("CAP_NET_BIND_SERVICE"), "{denied}");
        let other = io::Error::other("else");
        assert_eq!(not_bound(&other), "else");
        Ok(())
    }
}
