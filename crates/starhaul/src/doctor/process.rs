//! The gateway's process: its threads, its control group, its sockets, and where it writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    Cause, Finding,
    host::{BUFFER_BYTES, LEAST_FREE_BYTES, receive_limit},
};

/// A share of a processor above which one more packet has to wait.
const BUSY: f64 = 0.9;
/// A part of the time above which being held back is felt.
const HELD_BACK: f64 = 0.02;
/// Clock ticks of `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Flags of open(2) for writing: `O_WRONLY` and `O_RDWR`.
const FOR_WRITING: u32 = 0o3;

/// The gateway's process at the beginning of the watch.
pub(super) struct Process {
    id: Option<i32>,
    since: Instant,
    ticks: Option<Vec<(String, u64)>>,
    held_back: Option<Duration>,
    dropped: Option<BTreeMap<u64, u64>>,
}

/// The gateway's process while the figures are taken: processor time and files.
pub(super) struct Watched {
    id: Option<i32>,
    seconds: f64,
    /// The busiest thread, and its share of a processor.
    thread: Option<(String, f64)>,
    /// For how long its control group held it back.
    held_back: Duration,
    /// Datagrams that found no room in its sockets: meanwhile, and since these were made.
    dropped: (u64, u64),
}

impl Process {
    pub(super) fn watch(id: Option<i32>) -> Self {
        Self {
            id,
            since: Instant::now(),
            ticks: id.and_then(ticks),
            held_back: id.and_then(held_back),
            dropped: id.and_then(dropped),
        }
    }

    pub(super) fn ended(self) -> Watched {
        let seconds = self.since.elapsed().as_secs_f64();
        let now = self.id.and_then(ticks).unwrap_or_default();
        let before = self.ticks.unwrap_or_default();
        let shares = now.into_iter().filter_map(|(thread, ticks)| {
            let (_, earlier) = before.iter().find(|(name, _)| *name == thread)?;
            let used = u32::try_from(ticks.saturating_sub(*earlier)).ok()?;
            Some((thread, f64::from(used) / TICKS_PER_SECOND / seconds))
        });
        let held_back = self.held_back.zip(self.id.and_then(held_back));
        let earlier = self.dropped.unwrap_or_default();
        let sockets = self.id.and_then(dropped).unwrap_or_default();
        let meanwhile = sockets
            .iter()
            .map(|(socket, drops)| drops.saturating_sub(earlier.get(socket).copied().unwrap_or(0)));
        Watched {
            id: self.id,
            seconds,
            thread: shares.max_by(|one, other| one.1.total_cmp(&other.1)),
            held_back: held_back.map_or(Duration::ZERO, |(before, now)| now.saturating_sub(before)),
            dropped: (meanwhile.sum(), sockets.values().sum()),
        }
    }
}

impl Watched {
    /// A process whose busiest thread uses this share of a processor.
    #[cfg(test)]
    pub(super) fn with_thread(share: f64) -> Self {
        Self {
            id: None,
            seconds: 1.0,
            thread: Some(("driver".to_owned(), share)),
            held_back: Duration::ZERO,
            dropped: (0, 0),
        }
    }

    /// The thread that has no time left.
    pub(super) fn full_thread(&self) -> Option<&(String, f64)> {
        self.thread.as_ref().filter(|(_, share)| *share >= BUSY)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<_> = self.quota().into_iter().chain(self.buffers()).collect();
        if let Some((thread, share)) = &self.thread {
            let found = format!("the busiest thread, {thread}, uses {:.0} %", share * 100.0);
            findings.push(Finding::good(Cause::Processor, "processor", found));
        }
        findings.extend(self.id.and_then(other_network));
        findings.extend(self.id.map(full_disks).unwrap_or_default());
        findings
    }

    fn quota(&self) -> Option<Finding> {
        let share = self.held_back.as_secs_f64() / self.seconds;
        (share > HELD_BACK).then(|| {
            Finding::problem(
                Cause::CpuQuota,
                "processor",
                format!(
                    "the gateway's control group kept it from running for {} ms of {:.1} s",
                    self.held_back.as_millis(),
                    self.seconds
                ),
                "raise CPUQuota of its unit, or the quota of its control group",
            )
        })
    }

    fn buffers(&self) -> Option<Finding> {
        let (meanwhile, ever) = self.dropped;
        let limit = receive_limit();
        let is_small = limit.is_some_and(|bytes| bytes < BUFFER_BYTES);
        let advice = match is_small {
            true => format!(
                "sysctl -w net.core.rmem_max={BUFFER_BYTES}, and the same in /etc/sysctl.d; then restart the gateway"
            ),
            false => "its threads come to run too seldom: look at the load of this host".to_owned(),
        };
        let found = |dropped, when| {
            let limit = limit.map_or_else(String::new, |bytes| {
                format!("; net.core.rmem_max is {bytes} bytes")
            });
            format!(
                "{dropped} datagrams found no room in the buffers of the gateway's sockets {when}{limit}"
            )
        };
        let subject = "socket buffers";
        let cause = Cause::SocketBuffer;
        match (meanwhile, ever) {
            (_, 0) => None,
            (0, _) if !is_small => {
                let found = found(ever, "since they were made, none while watched");
                Some(Finding::note(cause, subject, found, advice))
            }
            (0, _) => {
                let found = found(ever, "since they were made");
                Some(Finding::problem(cause, subject, found, advice))
            }
            _ => {
                let found = found(meanwhile, "while it was watched");
                Some(Finding::problem(cause, subject, found, advice))
            }
        }
    }
}

/// Clock ticks of each thread, by its number and name.
fn ticks(process: i32) -> Option<Vec<(String, u64)>> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let of_thread = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let number = thread.file_name().to_string_lossy().into_owned();
        Some((format!("{name} ({number})"), user + system))
    };
    Some(threads.flatten().filter_map(of_thread).collect())
}

/// For how long the control group of a process, or one above it, held it back since it began.
fn held_back(process: i32) -> Option<Duration> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        // The unified hierarchy has no list; systemd mounts it beside the old ones in a folder of its own.
        let mounts: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            list if list.split(',').any(|name| name == "cpu") => {
                &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
            }
            _ => return None,
        };
        let group = Path::new(group.trim_start_matches('/'));
        // The root is the machine, or the container, and no choice of who operates the gateway.
        let groups = group
            .ancestors()
            .filter(|group| !group.as_os_str().is_empty());
        let folders =
            groups.flat_map(|group| mounts.iter().map(move |mount| Path::new(mount).join(group)));
        folders
            .filter_map(|folder| time_held_back(&fs::read_to_string(folder.join("cpu.stat")).ok()?))
            .max()
    })
}

/// From `cpu.stat`: microseconds of the unified hierarchy, or nanoseconds of the older one.
fn time_held_back(stat: &str) -> Option<Duration> {
    let value = |name: &str| -> Option<u64> {
        let mut lines = stat.lines();
        lines
            .find_map(|line| line.strip_prefix(name))?
            .trim()
            .parse()
            .ok()
    };
    let micros = value("throttled_usec ").map(Duration::from_micros);
    micros.or_else(|| value("throttled_time ").map(Duration::from_nanos))
}

/// What the doctor sees of interfaces, routes and limits holds for its own network namespace.
fn other_network(process: i32) -> Option<Finding> {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let is_other = network(&process.to_string())? != network("self")?;
    is_other.then(|| {
        Finding::note(
            Cause::Namespace,
            "network namespace",
            "the gateway runs in another one: what is said of interfaces, routes and reachability is of this one",
            format!("nsenter --target {process} --net starhaul doctor …"),
        )
    })
}

/// Where a process has files open, by their descriptors' links.
fn open_files(process: i32) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{process}/fd"));
    let files = files.into_iter().flatten().flatten();
    files.map(|file| file.path()).collect()
}

/// Datagrams that found no room in the UDP sockets of a process since these were made, by the sockets' numbers.
fn dropped(process: i32) -> Option<BTreeMap<u64, u64>> {
    let sockets: BTreeSet<u64> = open_files(process)
        .iter()
        .filter_map(|file| {
            let link = fs::read_link(file).ok()?;
            let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        })
        .collect();
    let tables = ["udp", "udp6"].map(|table| format!("/proc/{process}/net/{table}"));
    let tables: Vec<_> = tables.iter().flat_map(fs::read_to_string).collect();
    if tables.is_empty() {
        return None;
    }
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let drops = rows.filter_map(drops_of);
    Some(
        drops
            .filter(|(socket, _)| sockets.contains(socket))
            .collect(),
    )
}

/// The number of the socket and its drops, of a row of `/proc/net/udp`.
fn drops_of(row: &str) -> Option<(u64, u64)> {
    let fields: Vec<_> = row.split_whitespace().collect();
    let [.., inode, _references, _pointer, drops] = fields.as_slice() else {
        return None;
    };
    Some((inode.parse().ok()?, drops.parse().ok()?))
}

/// The file systems of the files that a process writes, where they are full.
fn full_disks(process: i32) -> Vec<Finding> {
    let is_written = |file: &Path| {
        let number = file.file_name()?.to_str()?;
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        let file = fs::metadata(file).ok()?;
        (file.is_file() && flags & FOR_WRITING != 0).then_some(file.dev())
    };
    let mut systems = BTreeSet::new();
    let mut full = |file: PathBuf| {
        let device = is_written(&file)?;
        let system = rustix::fs::statvfs(&file).ok()?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if free >= LEAST_FREE_BYTES || !systems.insert(device) {
            return None;
        }
        let name = fs::read_link(&file).unwrap_or_default();
        // Memory that only looks like a file.
        if name.starts_with("/memfd:") || name.starts_with("/dev") {
            return None;
        }
        Some(Finding::problem(
            Cause::Disk,
            format!("disk of {}", name.display()),
            format!("{free} bytes are free, and the gateway writes there"),
            "make room: what it logs or records is lost",
        ))
    };
    open_files(process)
        .into_iter()
        .filter_map(&mut full)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_control_groups_are_read() {
        let unified = "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500\n";
        let older = "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000\n";
        let expected = Some(Duration::from_micros(1500));
        assert_eq!(time_held_back(unified), expected);
        assert_eq!(time_held_back(older), expected);
        assert_eq!(time_held_back("usage_usec 5\n"), None);
    }

    #[test]
    fn drops_are_those_of_the_socket_in_the_row() {
        let row = "  477: 00000000:11F8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 24530 2 0000000000000000 17";
        assert_eq!(drops_of(row), Some((24_530, 17)));
        assert_eq!(drops_of(""), None);
    }
}
