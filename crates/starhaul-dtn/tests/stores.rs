//! One suite on every store that a node may be configured with: what is taken stays, through a restart where the store survives one, and
//! arrives once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "stores/refusals.rs"]
mod refusals;
#[path = "bundles/kit/source.rs"]
mod source;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use hardy_bpa::bundle::{Bundle, BundleMetadata, BundleStatus};
use hardy_bpv7::{
    block::Type, builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime,
    eid::Eid, hop_info::HopInfo,
};
use starhaul_dtn::{Config, Node, control::Server};
use starhaul_dtn_client::{Error, control::Client, status::Status};

use self::source::{NODE, Source};

const LIFETIME: Duration = Duration::from_secs(600);
/// Bundles for another node, and as many for an application of this one.
const COUNT: u32 = 40;
/// The greatest number of bundles that the node takes.
const MOST: u32 = 100;

/// SQLite with files, as keys of `[storage]`.
const SQLITE: &str = "kind = \"sqlite\"";

/// A running node.
struct Running {
    node: Node,
    server: Server,
}

impl Running {
    async fn start(folder: &Path, text: &str) -> Self {
        let text = format!("control = \"control.sock\"\n{text}");
        let file = folder.join("node.toml");
        let config = Config::parse(&text, &file, SystemTime::now().into()).unwrap();
        let node = Node::start(config).await.unwrap();
        let server = Server::start(node.handle()).unwrap();
        Self { node, server }
    }

    async fn stop(self) {
        drop(self.server);
        assert!(self.node.shutdown().await, "the agent does not end");
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.node.handle().status()) {
            let status = self.node.handle().status();
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{what}: {status:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn client(folder: &Path, service: Option<&str>) -> Client {
    let mut client = Client::connect(Some(&folder.join("control.sock")))
        .await
        .unwrap();
    client.open(service).await.unwrap();
    client
}

/// The content of a bundle: of one byte, and of as many as need several reads.
fn content(number: u32) -> Vec<u8> {
    let length = if number.is_multiple_of(2) { 0 } else { 70_000 };
    [
        &number.to_be_bytes()[..],
        &vec![number.to_le_bytes()[0]; length],
    ]
    .concat()
}

/// Takes the next bundle.
#[cfg(feature = "s3")]
async fn take_one(client: &mut Client) -> Vec<u8> {
    assert!(client.has_bundle(Duration::from_secs(60)).await.unwrap());
    let bundle = client.next_bundle().await.unwrap();
    client.acknowledge(&bundle.id).await.unwrap();
    bundle.payload.to_vec()
}

/// Takes the bundles of all numbers, each once.
async fn take_all(client: &mut Client) {
    let mut taken = BTreeSet::new();
    while taken.len() < COUNT as usize {
        let found = client.has_bundle(Duration::from_secs(60)).await.unwrap();
        assert!(found, "only {} bundles came", taken.len());
        let bundle = client.next_bundle().await.unwrap();
        let number = u32::from_be_bytes(bundle.payload[..4].try_into().unwrap());
        assert!(
            bundle.payload == content(number),
            "bundle {number} has other bytes"
        );
        assert!(taken.insert(number), "bundle {number} came twice");
        client.acknowledge(&bundle.id).await.unwrap();
    }
}

/// The suite; `storage` are keys of `[storage]`.
async fn suite(folder: &Path, storage: &str, is_persistent: bool) {
    let (own, other) = (starhaul_needs::free(), starhaul_needs::free());
    let text = |number: u32, listen: SocketAddr, peer: u32, address: SocketAddr, storage: &str| {
        format!(
            "node = \"ipn:{number}.0\"\n[storage]\nmax_bundles = {MOST}\n{storage}\n\
             [ltp]\nlisten = \"{listen}\"\n[[ltp.peer]]\nnode = \"ipn:{peer}.0\"\naddress = \"{address}\"\n"
        )
    };
    let near = text(1, own, 2, other, storage);
    let mut running = Running::start(folder, &near).await;
    let mut sender = client(folder, None).await;
    for number in 0..COUNT {
        for to in ["ipn:2.50", "ipn:1.50"] {
            sender.send(to, &content(number), LIFETIME).await.unwrap();
        }
    }
    // One that expires, and is gone.
    sender
        .send("ipn:9.1", b"late", Duration::from_millis(500))
        .await
        .unwrap();
    running
        .until("one expires", |status| status.counters.expired == 1)
        .await;
    running
        .until("the others stay", |status| {
            status.storage.bundles == u64::from(2 * COUNT)
        })
        .await;
    // What does not fit is refused, and what is there stays. A slow disk has stored them all before the first one expires.
    let mut refused = None;
    let mut filled = 0;
    while refused.is_none() {
        match sender
            .send("ipn:9.1", b"filler", Duration::from_secs(10))
            .await
        {
            Ok(_) => filled += 1,
            Err(error) => refused = Some(error),
        }
        assert!(filled <= MOST, "nothing is refused");
    }
    assert!(matches!(refused, Some(Error::Full)), "{refused:?}");
    running
        .until("the fillers expire", |status| {
            status.storage.bundles == u64::from(2 * COUNT)
        })
        .await;
    drop(sender);
    if is_persistent {
        running.stop().await;
        running = Running::start(folder, &near).await;
        let stored = running.node.handle().status().storage.bundles;
        assert_eq!(stored, u64::from(2 * COUNT), "after a restart");
    }
    take_all(&mut client(folder, Some("50")).await).await;
    let far_folder = tempfile::tempdir().unwrap();
    let far = text(2, other, 1, own, "kind = \"memory\"");
    let far = Running::start(far_folder.path(), &far).await;
    take_all(&mut client(far_folder.path(), Some("50")).await).await;
    running
        .until("all is gone", |status| status.storage.bundles == 0)
        .await;
    if is_persistent {
        running.stop().await;
        running = Running::start(folder, &near).await;
        // Nothing of it comes again.
        let mut receiver = client(folder, Some("50")).await;
        assert!(
            !receiver
                .has_bundle(Duration::from_millis(300))
                .await
                .unwrap()
        );
        assert_eq!(running.node.handle().status().storage.bundles, 0);
    }
    running.stop().await;
    far.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), "kind = \"memory\"", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_files() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), "", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_files_without_sync() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), "sync = false", true).await;
}

/// Bundles for an application, as the version before the log kept them: metadata in SQLite, data in files.
async fn write_old_folder(folder: &Path) {
    let database = hardy_sqlite_storage::Config {
        db_dir: folder.to_owned(),
        db_name: "metadata.db".to_owned(),
    };
    let database = hardy_sqlite_storage::new(&database, true);
    let files = hardy_localdisk_storage::Config {
        store_dir: folder.join("data"),
        fsync: false,
    };
    let files = hardy_localdisk_storage::new(&files, true);
    let to: Eid = "ipn:1.50".parse().unwrap();
    for number in 0..=COUNT {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), to.clone());
        let builder = builder.with_lifetime(LIFETIME);
        let builder = builder.with_payload(content(number).into());
        let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number.into());
        let (bundle, data) = builder.build(stamp).unwrap();
        let name = files.save(data.into_vec().into()).await.unwrap();
        let metadata = BundleMetadata::default();
        // Only the agent may name the data of a bundle.
        let mut json = serde_json::to_value(Bundle { bundle, metadata }).unwrap();
        json["metadata"]["storage_name"] = (*name).into();
        let mut bundle: Bundle = serde_json::from_value(json).unwrap();
        let service = to.clone();
        bundle.metadata.status = match number % 5 {
            0 => BundleStatus::New,
            1 => BundleStatus::Dispatching,
            2 => BundleStatus::Waiting,
            3 => BundleStatus::WaitingForService { service },
            _ => BundleStatus::ForwardPending {
                peer: 3,
                queue: None,
            },
        };
        assert!(database.insert(&bundle).await.unwrap());
        if number == COUNT {
            // It was delivered; a crash has left its file.
            database.tombstone(&bundle.bundle.id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_an_earlier_version_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let bundles = folder.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    write_old_folder(&bundles).await;
    let (database, copy) = (bundles.join("metadata.db"), folder.path().join("copy"));
    std::fs::copy(&database, &copy).unwrap();
    let text = "node = \"ipn:1.0\"\n[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n";
    let running = Running::start(folder.path(), text).await;
    let stored = running.node.handle().status().storage.bundles;
    assert_eq!(stored, u64::from(COUNT));
    assert!(!database.exists());
    take_all(&mut client(folder.path(), Some("50")).await).await;
    running
        .until("all is gone", |status| status.storage.bundles == 0)
        .await;
    running.stop().await;
    // As if it had been cut short before the database was removed.
    std::fs::copy(&copy, &database).unwrap();
    let running = Running::start(folder.path(), text).await;
    assert_eq!(running.node.handle().status().storage.bundles, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_and_files() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), SQLITE, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_and_files_without_sync() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), "kind = \"sqlite\"\nsync = false", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_forgets_the_name_of_a_bundle_that_is_dropped_as_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    forgets_the_name_of_a_bundle_that_is_dropped_as_it_comes(folder.path(), SQLITE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_takes_the_name_of_a_bundle_again_that_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    takes_the_name_of_a_bundle_again_that_has_expired(folder.path(), SQLITE).await;
}

/// What SQLite has kept goes over into a log, as that of earlier versions; a log is not passed over in silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_goes_from_sqlite_to_a_log_and_not_back() {
    let folder = tempfile::tempdir().unwrap();
    let text = |storage: &str| {
        format!(
            "node = \"ipn:1.0\"\n[storage]\n{storage}\n[ltp]\nlisten = \"127.0.0.1:0\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n"
        )
    };
    let bundles = folder.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    write_old_folder(&bundles).await;
    let stored = |running: &Running| running.node.handle().status().storage.bundles;
    for storage in [SQLITE, SQLITE, "kind = \"disk\""] {
        let running = Running::start(folder.path(), &text(storage)).await;
        assert_eq!(stored(&running), u64::from(COUNT), "{storage}");
        running.stop().await;
    }
    assert!(!bundles.join("metadata.db").exists());
    let name = folder.path().join("node.toml");
    let config = Config::parse(&text(SQLITE), &name, SystemTime::now().into()).unwrap();
    let refused = Node::start(config).await.map(|_| ()).unwrap_err();
    assert!(refused.is_configuration(), "{refused}");
    assert!(refused.to_string().contains("holds a log"), "{refused}");
    let running = Running::start(folder.path(), &text("kind = \"disk\"")).await;
    take_all(&mut client(folder.path(), Some("50")).await).await;
    running.stop().await;
}

/// A node with such a store, and an engine of LTP that sends it bundles.
async fn beside(folder: &Path, storage: &str, source: &mut Source) -> Running {
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\n{storage}\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        source.driver.local_addr()
    );
    let running = Running::start(folder, &text).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    running
}

/// A bundle with this sequence number that has made so many hops of eight.
fn with_hops(created: DtnTime, number: u64, count: u64) -> Vec<u8> {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.50".parse().unwrap());
    let builder = builder
        .with_lifetime(LIFETIME)
        .with_hop_count(&HopInfo { limit: 8, count });
    let builder = builder.with_payload(b"x".as_slice().into());
    let stamp = CreationTimestamp::from_parts(Some(created), number);
    builder.build(stamp).unwrap().1.into_vec()
}

/// A copy that has made too many hops says nothing of one that came another way.
async fn forgets_the_name_of_a_bundle_that_is_dropped_as_it_comes(folder: &Path, storage: &str) {
    let mut source = Source::new();
    let running = beside(folder, storage, &mut source).await;
    let created = DtnTime::now();
    for count in [9, 1, 1] {
        source.send(with_hops(created, 7, count));
        source = source.settled().await;
    }
    running
        .until("one of three is received", |status| {
            let counters = &status.counters;
            (counters.received, counters.dropped, status.storage.bundles) == (1, 1, 1)
        })
        .await;
    let mut receiver = client(folder, Some("50")).await;
    assert!(receiver.has_bundle(Duration::from_secs(60)).await.unwrap());
    let bundle = receiver.next_bundle().await.unwrap();
    receiver.acknowledge(&bundle.id).await.unwrap();
    drop((receiver, source));
    running.stop().await;
}

/// A node without a clock uses its names again when it starts anew.
async fn takes_the_name_of_a_bundle_again_that_has_expired(folder: &Path, storage: &str) {
    let mut source = Source::new();
    let running = beside(folder, storage, &mut source).await;
    let mut receiver = client(folder, Some("50")).await;
    let lifetime = Duration::from_secs(4);
    for payload in ["first", "copy", "again"] {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.50".parse().unwrap());
        let builder = builder.with_lifetime(lifetime);
        // How old it is.
        let block = builder.add_extension_block(Type::BundleAge).unwrap();
        let builder = block.build(vec![0].into());
        let builder = builder.with_payload(payload.as_bytes().into());
        let stamp = CreationTimestamp::from_parts(None, 7);
        let bundle = builder.build(stamp).unwrap().1.into_vec();
        source.send(bundle);
        source = source.settled().await;
        let patience = match payload {
            "copy" => Duration::from_millis(300),
            _ => Duration::from_secs(60),
        };
        let has_come = receiver.has_bundle(patience).await.unwrap();
        assert_eq!(has_come, payload != "copy", "{payload}");
        if has_come {
            let bundle = receiver.next_bundle().await.unwrap();
            assert_eq!(bundle.payload, payload.as_bytes());
            receiver.acknowledge(&bundle.id).await.unwrap();
        } else {
            // It expires, and its copies, too.
            tokio::time::sleep(lifetime * 2 + Duration::from_secs(1)).await;
        }
    }
    drop((receiver, source));
    running.stop().await;
}

#[cfg(not(feature = "s3"))]
#[tokio::test]
async fn postgresql_and_s3() {
    let folder = tempfile::tempdir().unwrap();
    let text = "node = \"ipn:1.0\"\n[storage]\ns3 = \"s3://bundles\"\n[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n";
    let file = folder.path().join("node.toml");
    let error = Config::parse(text, &file, SystemTime::now().into()).unwrap_err();
    assert!(error.to_string().contains("--features s3"), "{error}");
    starhaul_needs::skip(starhaul_needs::Need::S3, "built without the feature s3");
}

mod postgres {
    //! A database server of its own, of Debian's package `postgresql`.

    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, chown},
        path::{Path, PathBuf},
        process::Command,
    };

    use starhaul_needs::{Need, free, skip};

    use super::{
        DtnTime, LIFETIME, Running, Source, beside, client,
        forgets_the_name_of_a_bundle_that_is_dropped_as_it_comes, suite,
        takes_the_name_of_a_bundle_again_that_has_expired, with_hops,
    };

    /// Keys of `[storage]`.
    const STORAGE: &str = "database = \"url\"";

    /// A server with a folder of its own, at a port of loopback.
    struct Server {
        folder: tempfile::TempDir,
        programs: PathBuf,
        port: u16,
    }

    /// Where Debian has the programs of the server: of the newest version.
    fn programs() -> Option<PathBuf> {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
        versions.filter(|bin| bin.join("initdb").exists()).max()
    }

    impl Server {
        fn start(programs: PathBuf) -> Self {
            let server = Self {
                folder: tempfile::tempdir().unwrap(),
                programs,
                port: free().port(),
            };
            let folder = server.folder.path();
            if let Some((user, group)) = postgres_user() {
                chown(folder, Some(user), Some(group)).unwrap();
            }
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
            server.run(
                "initdb",
                &["--auth", "trust", "--username", "node", "--no-sync"],
            );
            let options = format!("-p {} -k {} -h 127.0.0.1", server.port, folder.display());
            let log = folder.join("log");
            server.run(
                "pg_ctl",
                &[
                    "start",
                    "--wait",
                    "--options",
                    &options,
                    "--log",
                    path(&log),
                ],
            );
            server
        }

        fn run(&self, program: &str, arguments: &[&str]) {
            let program = self.programs.join(program);
            // The server does not run as root.
            let mut command = match postgres_user() {
                Some(_) => {
                    let mut command = Command::new("runuser");
                    command.args(["-u", "postgres", "--"]).arg(program);
                    command
                }
                None => Command::new(program),
            };
            command
                .args(arguments)
                .arg("--pgdata")
                .arg(self.folder.path().join("data"));
            let output = command.current_dir("/").output().unwrap();
            assert!(output.status.success(), "{command:?}: {output:?}");
        }
    }

    impl Server {
        /// The rows of a table.
        fn count(&self, table: &str) -> u64 {
            let mut command = Command::new(self.programs.join("psql"));
            command.args(["--host", "127.0.0.1", "--username", "node", "--dbname"]);
            command.args(["postgres", "--tuples-only", "--no-align", "--port"]);
            command.arg(self.port.to_string()).arg("--command");
            command.arg(format!("SELECT COUNT(*) FROM {table}"));
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{output:?}");
            told.trim().parse().unwrap()
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.run("pg_ctl", &["stop", "--mode", "immediate"]);
        }
    }

    /// The user of the package, for root.
    fn postgres_user() -> Option<(u32, u32)> {
        let of = |option: &str| {
            let output = Command::new("id")
                .args([option, "postgres"])
                .output()
                .ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        let is_root = Command::new("id").arg("-u").output().ok()?.stdout == b"0\n";
        is_root.then(|| Some((of("-u")?, of("-g")?)))?
    }

    fn path(path: &Path) -> &str {
        path.to_str().unwrap()
    }

    /// A server, and how to connect to it in the file `url` of a folder; `None` if this machine has none.
    fn database(folder: &Path) -> Option<Server> {
        let Some(programs) = programs() else {
            skip(
                Need::Postgres,
                "Debian's package postgresql is not installed",
            );
            return None;
        };
        let server = Server::start(programs);
        let url = format!("postgres://node@127.0.0.1:{}/postgres\n", server.port);
        fs::write(folder.join("url"), url).unwrap();
        Some(server)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgresql_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let Some(_server) = database(folder.path()) else {
            return;
        };
        suite(folder.path(), STORAGE, true).await;
        // A folder of a version that left no such file is opened, and has it then.
        let mark = folder.path().join("bundles/postgresql");
        fs::remove_file(&mark).unwrap();
        let text = format!(
            "node = \"ipn:1.0\"\n[storage]\n{STORAGE}\n[ltp]\nlisten = \"127.0.0.1:0\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n"
        );
        Running::start(folder.path(), &text).await.stop().await;
        assert!(mark.exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgresql_forgets_the_name_of_a_bundle_that_is_dropped_as_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let Some(_server) = database(folder.path()) else {
            return;
        };
        forgets_the_name_of_a_bundle_that_is_dropped_as_it_comes(folder.path(), STORAGE).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgresql_takes_the_name_of_a_bundle_again_that_has_expired() {
        let folder = tempfile::tempdir().unwrap();
        let Some(_server) = database(folder.path()) else {
            return;
        };
        takes_the_name_of_a_bundle_again_that_has_expired(folder.path(), STORAGE).await;
    }

    /// Each would be a row of the table, and no bundle that goes otherwise has such rows removed.
    #[tokio::test(flavor = "multi_thread")]
    async fn postgresql_keeps_no_name_of_what_is_dropped_as_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let Some(server) = database(folder.path()) else {
            return;
        };
        let mut source = Source::new();
        let running = beside(folder.path(), STORAGE, &mut source).await;
        let created = DtnTime::now();
        for number in 0..5 {
            source.send(with_hops(created, number, 9));
            source = source.settled().await;
        }
        running
            .until("all are dropped", |status| status.counters.dropped == 5)
            .await;
        drop(source);
        running.stop().await;
        for table in ["metadata", "bundles", "starhaul_gone"] {
            assert_eq!(server.count(table), 0, "{table}");
        }
    }

    /// Lifetimes may be years, and a neighbour may send any number of bundles.
    #[tokio::test(flavor = "multi_thread")]
    async fn postgresql_keeps_so_many_names_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let Some(server) = database(folder.path()) else {
            return;
        };
        let text = format!(
            "node = \"ipn:1.0\"\n[storage]\nmax_bundles = 3\n{STORAGE}\n[ltp]\nlisten = \"127.0.0.1:0\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n"
        );
        // Another life counts those that are there.
        for _ in 0..2 {
            let running = Running::start(folder.path(), &text).await;
            let mut sender = client(folder.path(), None).await;
            let mut receiver = client(folder.path(), Some("50")).await;
            for _ in 0..20 {
                sender.send("ipn:1.50", b"x", LIFETIME).await.unwrap();
                assert!(receiver.has_bundle(LIFETIME).await.unwrap());
                let bundle = receiver.next_bundle().await.unwrap();
                receiver.acknowledge(&bundle.id).await.unwrap();
                running
                    .until("it is gone", |status| status.storage.bundles == 0)
                    .await;
            }
            drop((sender, receiver));
            running.stop().await;
            let names = server.count("bundles");
            assert!((1..=12).contains(&names), "{names} names are kept");
        }
    }

    #[cfg(feature = "s3")]
    mod s3 {
        //! Data in S3, on a server within the test. The access key comes from the environment, as for a node, so that the tests
        //! run in a process of their own.

        use std::{
            env, fs,
            net::SocketAddr,
            process::Command,
            time::{Duration, SystemTime},
        };

        use starhaul_dtn::{Config, Node};
        use starhaul_dtn_client::Error;
        use starhaul_needs::S3Server;

        use super::{
            super::{LIFETIME, Running, client, suite, take_one},
            database,
        };

        const KEY: (&str, &str) = ("lander", "a secret of the lander");
        const ANY_PORT: SocketAddr =
            SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

        /// Runs an ignored test of this module with the access key.
        fn run_with_key(test: &str) {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args([
                "--ignored",
                "--exact",
                "--nocapture",
                &format!("postgres::s3::{test}"),
            ]);
            command
                .env("AWS_ACCESS_KEY_ID", KEY.0)
                .env("AWS_SECRET_ACCESS_KEY", KEY.1);
            let output = command.env("AWS_REGION", "us-east-1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "{text}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }

        fn storage(server: &S3Server) -> String {
            let address = server.address();
            format!(
                "database = \"url\"\ns3 = \"s3://bundles/of/lander\"\ns3_endpoint = \"http://{address}\""
            )
        }

        #[test]
        fn postgresql_and_s3() {
            run_with_key("with_key");
        }

        #[test]
        fn a_bucket_that_is_away_loses_nothing() {
            run_with_key("away");
        }

        #[ignore = "run by postgresql_and_s3"]
        #[tokio::test(flavor = "multi_thread")]
        async fn with_key() {
            let (folder, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let Some(_database) = database(folder.path()) else {
                return;
            };
            fs::create_dir(root.path().join("bundles")).unwrap();
            let server = S3Server::start(root.path(), ANY_PORT, KEY).await.unwrap();
            suite(folder.path(), &storage(&server), true).await;
            assert!(!folder.path().join("bundles/data").exists());
        }

        /// What is stored stays while the bucket is away, also over a restart; new bundles are refused meanwhile.
        #[ignore = "run by a_bucket_that_is_away_loses_nothing"]
        #[tokio::test(flavor = "multi_thread")]
        async fn away() {
            let (folder, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let Some(_database) = database(folder.path()) else {
                return;
            };
            fs::create_dir(root.path().join("bundles")).unwrap();
            let server = S3Server::start(root.path(), ANY_PORT, KEY).await.unwrap();
            let address = server.address();
            let text = format!(
                "node = \"ipn:1.0\"\n[storage]\n{}\n[ltp]\nlisten = \"127.0.0.1:0\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n",
                storage(&server)
            );
            let running = Running::start(folder.path(), &text).await;
            let mut sender = client(folder.path(), None).await;
            sender.send("ipn:1.50", b"before", LIFETIME).await.unwrap();
            drop(server);
            let refused = sender.send("ipn:1.50", b"meanwhile", LIFETIME).await;
            assert!(matches!(refused, Err(Error::NotNow(_))), "{refused:?}");
            drop(sender);
            running.stop().await;
            // It waits for its bucket, and takes nothing for lost.
            let starting = Running::start(folder.path(), &text);
            tokio::pin!(starting);
            let early = tokio::time::timeout(Duration::from_secs(3), &mut starting).await;
            assert!(early.is_err(), "it started without its bucket");
            let _server = S3Server::start(root.path(), address, KEY).await.unwrap();
            let running = starting.await;
            assert_eq!(running.node.handle().status().storage.bundles, 1);
            let payload = take_one(&mut client(folder.path(), Some("50")).await).await;
            assert_eq!(payload, b"before");
            running
                .until("all is gone", |status| status.storage.bundles == 0)
                .await;
            running.stop().await;
        }
    }
}
