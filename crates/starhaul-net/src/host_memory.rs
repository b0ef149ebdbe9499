//! How much memory this process may have, so that defaults follow from it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Memory that a process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Bytes of it, used or not.
    pub bytes: u64,
    /// Whether the process's control group, or one above it, allows less than the host has (cgroups(7)), as in a container or with
    /// `MemoryMax=` of a service.
    pub is_limited: bool,
}

/// The memory that this process may have; `None` if the system does not tell.
pub fn host_memory() -> Option<HostMemory> {
    let host = total(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = least_limit(&groups, |file| fs::read_to_string(file).ok());
    Some(HostMemory {
        bytes: limit.map_or(host, |limit| limit.min(host)),
        is_limited: limit.is_some_and(|limit| limit < host),
    })
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(told: &str) -> Option<u64> {
    let mut lines = told.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit, in bytes, of the groups in `/proc/self/cgroup` and of those above them.
fn least_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(files);
    // Without a limit, the unified hierarchy says `max`, and the older one a number that no host has.
    let limits = limits.filter_map(|file| read(&file)?.trim().parse().ok());
    limits.min()
}

/// The files with limits of one group of `/proc/self/cgroup`, and of those above it.
fn files(line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next())
    else {
        return Vec::new();
    };
    // The unified hierarchy has no list; systemd mounts it beside the old ones in a folder of its own.
    let (mounts, names): (&[&str], &[&str]) = match controllers {
        "" => (
            &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            &["memory.max", "memory.high"],
        ),
        list if list.split(',').any(|name| name == "memory") => {
            (&["/sys/fs/cgroup/memory"], &["memory.limit_in_bytes"])
        }
        _ => return Vec::new(),
    };
    // With the last one, which is empty: a container sees its own group as the root.
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    let folders =
        groups.flat_map(|group| mounts.iter().map(move |mount| Path::new(mount).join(group)));
    folders
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/self/cgroup`, files with their texts, and the limit they make.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<u64>);

    #[test]
    fn the_host_tells_its_memory_in_kibibytes() {
        let told = "MemFree:  1 kB\nMemTotal:       24683520 kB\nMemAvailable: 2 kB\n";
        assert_eq!(total(told), Some(24_683_520 << 10));
        for wrong in [
            "",
            "MemTotal: many kB\n",
            "MemTotal: 5\n",
            "MemTotal: 18446744073709551615 kB\n",
        ] {
            assert_eq!(total(wrong), None, "{wrong}");
        }
        let here = host_memory().unwrap();
        assert!(here.bytes > 0);
    }

    #[test]
    fn the_least_limit_of_all_groups_above_a_process_counts() {
        let unified = "0::/system.slice/starhaul-dtn.service\n";
        let older = "4:memory:/docker/1f\n1:cpu:/docker/1f\n";
        let mixed = "2:memory:/\n0::/user.slice\n";
        let service = "/sys/fs/cgroup/system.slice/starhaul-dtn.service";
        let [max, high] = ["max", "high"].map(|name| format!("{service}/memory.{name}"));
        let (max, high) = (max.as_str(), high.as_str());
        let cases: [Case<'_>; 8] = [
            (unified, &[], None),
            (unified, &[("/sys/fs/cgroup/memory.max", "max\n")], None),
            (unified, &[(max, "4096\n")], Some(4096)),
            (
                unified,
                &[
                    (max, "4096\n"),
                    (high, "2048\n"),
                    ("/sys/fs/cgroup/system.slice/memory.max", "max\n"),
                ],
                Some(2048),
            ),
            (
                unified,
                &[
                    (max, "4096\n"),
                    ("/sys/fs/cgroup/system.slice/memory.max", "1024\n"),
                ],
                Some(1024),
            ),
            // The group of a container as it is called outside, which has no folder here.
            (
                older,
                &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "512\n")],
                Some(512),
            ),
            (
                mixed,
                &[("/sys/fs/cgroup/unified/user.slice/memory.max", "256\n")],
                Some(256),
            ),
            ("no group\n7\n", &[], None),
        ];
        for (groups, files, limit) in cases {
            let read = |file: &Path| {
                let mut files = files.iter();
                let found = files.find(|(name, _)| Path::new(name) == file);
                found.map(|(_, told)| (*told).to_owned())
            };
            assert_eq!(least_limit(groups, read), limit, "{groups} {files:?}");
        }
    }
}
