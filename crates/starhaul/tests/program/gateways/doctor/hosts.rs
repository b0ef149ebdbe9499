//! Faults of hosts.

use std::{
    fs,
    net::UdpSocket,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use starhaul_needs::{Need, skip};

use super::{
    super::{
        PATIENCE,
        gateway::{PORT, Pair},
        network::{Network, Side},
        transfer::Transfer,
        wait_for,
    },
    bench::Bench,
    links::pair,
};

/// The library that sets a program's clock.
pub(crate) fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let found = files.find(|file| file.exists());
    if found.is_none() {
        skip(Need::Faketime, "there is no libfaketime.so.1");
    }
    found
}

pub(super) fn clock() {
    let Some(library) = faketime() else { return };
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = Pair::start_changed(&network, |side, launch| {
        if side == Side::Ground {
            launch.by_script(&format!(
                "FAKETIME=+1h FAKETIME_DONT_FAKE_MONOTONIC=1 LD_PRELOAD={} exec \"$@\"",
                library.display()
            ));
        }
    });
    pair.wait_until_up(&["link0"]);
    let named = Bench::new(network, pair).expect("clock");
    let hour = [3599, 3600, 3601];
    let tells = hour.map(|seconds| named.found.contains(&format!("{seconds} s ahead of ours")));
    assert!(tells.contains(&true), "{named:?}");
}

/// Whether a script in a mount namespace of its own may mount.
fn may_mount(network: &Network) -> bool {
    let tried = super::links::run(
        network,
        Side::Field,
        "unshare --mount mount -t tmpfs none /mnt",
    );
    if let Err(error) = &tried {
        skip(Need::Mount, error);
    }
    tried.is_ok()
}

pub(super) fn full_disk() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !may_mount(&network) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().display();
    let pair = Pair::start_changed(&network, |side, launch| {
        if side == Side::Field {
            let script = format!(
                "unshare --mount sh -c 'mount -t tmpfs -o size=20m none {full} && head -c 19m /dev/zero >{full}/others && exec \"$@\"' sh \"$@\""
            );
            launch.by_script(&format!("exec {script}"));
            let records = folder.path().join("paths.csv").display().to_string();
            launch.arguments = vec!["--stats".to_owned(), records];
        }
    });
    pair.wait_until_up(&["link0"]);
    let named = Bench::new(network, pair).expect("disk");
    assert!(named.subject.contains("paths.csv"), "{named:?}");
}

/// A control group with little processor time; its folder goes with it.
struct Group(PathBuf);

impl Group {
    fn create() -> Option<Self> {
        let name = format!("starhaul-test-{}", std::process::id());
        // Those of the older kind, then the unified one.
        let older = PathBuf::from("/sys/fs/cgroup/cpu").join(&name);
        let unified = PathBuf::from("/sys/fs/cgroup").join(&name);
        let limited = [
            (older, "cpu.cfs_quota_us", "3000"),
            (unified, "cpu.max", "3000 100000"),
        ]
        .into_iter()
        .find_map(|(folder, file, quota)| {
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            fs::write(group.0.join(file), quota).ok()?;
            Some(group)
        });
        if limited.is_none() {
            skip(Need::Cgroup, "no group with a quota can be made");
        }
        limited
    }

    fn take(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let procs = fs::read_to_string(self.0.join("cgroup.procs"));
        let root = self.0.parent().unwrap().join("cgroup.procs");
        for process in procs.unwrap_or_default().lines() {
            let _ = fs::write(&root, process);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

pub(super) fn limited_processor() {
    let Some(bench) = pair(1) else { return };
    let Some(group) = Group::create() else { return };
    let upload = Transfer::upload(&bench.network);
    upload.wait_for_progress(1 << 20);
    group.take(bench.pair.field.process());
    // It answers slowly, too.
    let named = bench.expect_first("cpu_quota");
    assert_eq!(named.subject, "processor");
    drop(group);
    upload.finish();
}

pub(super) fn small_buffers() {
    let Some(bench) = pair(1) else { return };
    if !may_mount(&bench.network) {
        return;
    }
    // What the host allows is not set here, for all processes share it; the datagrams are really lost.
    let limit = bench.pair.directory().join("rmem_max");
    fs::write(&limit, "212992\n").unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/net/core/rmem_max",
        limit.display()
    );
    let flood = bench
        .network
        .field
        .inside(|| UdpSocket::bind("0.0.0.0:0"))
        .unwrap();
    flood
        .connect((&*Network::address(Side::Ground, 0), PORT))
        .unwrap();
    bench.pair.ground.signal("STOP");
    for _ in 0..20_000 {
        // It is refused where the queue of the device is full.
        let _ = flood.send(&[0; 1200]);
    }
    bench.pair.ground.signal("CONT");
    bench.pair.wait_until_up(&["link0"]);
    let named = bench.on_ground().after(&script).expect("socket_buffer");
    assert!(
        named.advice.contains("net.core.rmem_max=4194304"),
        "{named:?}"
    );
}

pub(super) fn no_gateway() {
    let Some(mut bench) = pair(1) else { return };
    bench.pair.field.signal("TERM");
    assert!(bench.pair.field.wait(PATIENCE).is_some());
    bench.expect("gateway");
}

pub(super) fn no_peer() {
    let Some(mut bench) = pair(1) else { return };
    bench.pair.ground.signal("TERM");
    assert!(bench.pair.ground.wait(PATIENCE).is_some());
    wait_for("the session ends", || {
        let sessions = bench.pair.field.status()["sessions"].as_array()?.is_empty();
        sessions.then_some(())
    });
    bench.expect("peer_gateway");
}

pub(super) fn no_tun() {
    let Some(bench) = pair(1) else { return };
    if !may_mount(&bench.network) {
        return;
    }
    let tunnel = "[[tun]]\nname = \"vpn\"\ndevice = \"star0\"\naddresses = [\"10.9.0.2/24\"]\n";
    let bench = bench
        .with_more(tunnel)
        .after("mount -t tmpfs none /dev/net");
    bench.expect("tun_device");
}

pub(super) fn no_nft() {
    let Some(bench) = pair(1) else { return };
    if !may_mount(&bench.network) {
        return;
    }
    let rule =
        "[[tproxy]]\nname = \"all\"\nlisten = \"127.0.0.1:4511\"\nnetworks = [\"10.1.0.0/16\"]\n";
    let hide = "for nft in /usr/sbin/nft /usr/bin/nft /sbin/nft /usr/local/sbin/nft; do [ ! -e $nft ] || mount --bind /dev/null $nft 2>/dev/null || true; done";
    let named = bench.with_more(rule).after(hide).expect("program");
    assert!(named.found.contains("nft"), "{named:?}");
}

/// Ends with the value: for what is done again and again meanwhile.
pub(super) struct Meanwhile(std::sync::Arc<AtomicBool>);

impl Meanwhile {
    pub(super) fn every(pause: Duration, mut again: impl FnMut() + Send + 'static) -> Self {
        let ended = std::sync::Arc::<AtomicBool>::default();
        let end = ended.clone();
        thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                again();
                thread::sleep(pause);
            }
        });
        Self(ended)
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
