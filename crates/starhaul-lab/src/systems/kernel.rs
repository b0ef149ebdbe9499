//! The kernel's TCP with one of its controllers, by `iperf3`.

use std::{ffi::OsString, process::Command, sync::Arc};

use crate::{
    Error,
    realtime::{Bench, Ends, Sender},
};

/// Where the kernel says which of its controllers there are.
const KERNEL_CONTROLLERS: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// A line for a shell. The server takes its end by a signal for a failure, and says so.
pub(crate) const SERVER: &str = "exec iperf3 -s >/dev/null 2>&1";
/// Before the name of a controller of the kernel.
const KERNEL: &str = "kernel-";

/// A controller of the kernel by its own name.
#[derive(Clone, Debug)]
pub(crate) struct Kernel(pub(crate) String);

/// The sender called `name`, if it is one of the kernel's.
pub(super) fn named(name: &str) -> Option<Result<Arc<dyn Sender>, Error>> {
    let kernel = name.strip_prefix(KERNEL)?;
    let plain = !kernel.is_empty() && kernel.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some(match plain {
        true => Ok(Arc::new(Kernel(kernel.to_owned()))),
        false => Err(Error::Settings(format!(
            "{name:?} is no controller of the kernel: write kernel-cubic"
        ))),
    })
}

impl Kernel {
    /// That the kernel has it not, if so.
    pub(crate) fn unknown(&self) -> Option<String> {
        let Self(name) = self;
        let known = std::fs::read_to_string(KERNEL_CONTROLLERS).unwrap_or_default();
        let is_known = known.split_whitespace().any(|known| known == name);
        (!is_known).then(|| {
            format!("skipped: {KERNEL}{name}, because this kernel has it not: modprobe tcp_{name}")
        })
    }

    /// A client that takes data from a server for so long, and prints one JSON object.
    pub(crate) fn download(&self, seconds: u32, server: &str) -> Vec<OsString> {
        let seconds = seconds.to_string();
        let client = ["iperf3", "--json", "-i", "0", "-C", &self.0, "-t", &seconds];
        let from = ["-R", "-c", server];
        client.into_iter().chain(from).map(Into::into).collect()
    }
}

impl Sender for Kernel {
    fn name(&self) -> String {
        format!("{KERNEL}{}", self.0)
    }

    fn missing(&self) -> Option<String> {
        let Self(name) = self;
        if let Some(why) = self.unknown() {
            return Some(why);
        }
        let iperf3 = Command::new("iperf3").arg("--version").output();
        iperf3
            .is_err()
            .then(|| format!("skipped: {KERNEL}{name}, because iperf3 is not installed"))
    }

    fn ends(&self, _: &Bench, seconds: u32, down: bool) -> Ends {
        let seconds = seconds.to_string();
        let client = ["iperf3", "-C", &self.0, "-t", &seconds];
        let client = client.into_iter().chain(down.then_some("-R")).chain(["-c"]);
        Ends {
            server: SERVER.into(),
            client: [
                "sh",
                "-c",
                "exec \"$0\" \"$@\" \"$STARHAUL_SERVER\" >/dev/null",
            ]
            .into_iter()
            .chain(client)
            .map(Into::into)
            .collect(),
        }
    }
}
