//! Metrics of a program over HTTP: OpenMetrics text, a server that no client can make expensive, and what the process uses of the
//! computer. What the figures mean stands where they are counted.

mod answer;
mod families;
mod fresh;
mod process;
mod request;
mod scrapes;
mod server;
mod site;

use std::net::SocketAddr;

pub use answer::{Answer, Events, Gone};
pub use families::{Families, Figures, Labels, encode};
pub use fresh::Fresh;
pub use process::{Process, process};
pub use prometheus_client::registry::Unit;
pub use scrapes::Scrapes;
pub use server::{Background, Server};
pub use site::Site;

/// What is to be said of an address that others than this host reach; `told` is what they can read there.
pub fn warning(address: SocketAddr, told: &str) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "metrics: whoever reaches {address} can read {told}: 127.0.0.1:{} is for this host alone",
            address.port()
        )
    })
}

/// An address of a configuration.
///
/// # Errors
/// How it is written.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no address and port: write 127.0.0.1:9465"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_address_for_others_is_warned_of() {
        let warning = |text| super::warning(super::address(text).unwrap(), "all names");
        assert_eq!(warning("127.0.0.1:9465"), None);
        assert_eq!(warning("[::1]:9465"), None);
        assert!(
            warning("0.0.0.0:9465")
                .is_some_and(|text| text.contains("can read all names: 127.0.0.1:9465"))
        );
        assert!(
            super::address("9465")
                .unwrap_err()
                .contains("127.0.0.1:9465")
        );
    }
}
