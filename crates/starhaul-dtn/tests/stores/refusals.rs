//! Stores that fail, and folders of other stores.

use std::time::{Duration, SystemTime};

use starhaul_dtn::{Config, Node};
use starhaul_dtn_client::Error;

use super::{COUNT, LIFETIME, Running, SQLITE, client, content, take_all};

/// Each statement that writes rows in this way fails, until that is taken back.
fn fail(database: &rusqlite::Connection, statement: &str) {
    let trigger = format!(
        "CREATE TRIGGER fails BEFORE {statement} ON bundles BEGIN SELECT RAISE(FAIL, 'the medium fails'); END"
    );
    database.execute_batch(&trigger).unwrap();
}

fn mend(database: &rusqlite::Connection) {
    database.execute_batch("DROP TRIGGER fails").unwrap();
}

/// New bundles are refused meanwhile, and what is to be noted of others is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_that_fails_loses_and_repeats_nothing_that_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "node = \"ipn:1.0\"\n[storage]\n{SQLITE}\n[ltp]\nlisten = \"127.0.0.1:0\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n"
    );
    let running = Running::start(folder.path(), &text).await;
    let database = rusqlite::Connection::open(folder.path().join("bundles/metadata.db")).unwrap();
    let mut sender = client(folder.path(), None).await;
    for number in 0..COUNT {
        if number % 8 == 3 {
            fail(&database, "INSERT");
            let refused = sender.send("ipn:1.50", b"refused", LIFETIME).await;
            let is_told = |reason: &str| reason.contains("the medium fails");
            assert!(
                matches!(&refused, Err(Error::NotNow(reason)) if is_told(reason)),
                "{refused:?}"
            );
            mend(&database);
        }
        let sent = sender.send("ipn:1.50", &content(number), LIFETIME).await;
        sent.unwrap();
    }
    // They cannot go, nor be noted as on their way.
    fail(&database, "UPDATE");
    let opening = client(folder.path(), Some("50"));
    tokio::pin!(opening);
    let early = tokio::time::timeout(Duration::from_millis(1500), &mut opening).await;
    let stored = running.node.handle().status().storage.bundles;
    assert_eq!(stored, u64::from(COUNT));
    mend(&database);
    let mut receiver = match early {
        Ok(receiver) => receiver,
        Err(_) => opening.await,
    };
    take_all(&mut receiver).await;
    running
        .until("all is gone", |status| status.storage.bundles == 0)
        .await;
    running.stop().await;
    // Nor does any of them come back.
    let running = Running::start(folder.path(), &text).await;
    assert_eq!(running.node.handle().status().storage.bundles, 0);
    running.stop().await;
}

/// A folder with what another store knows of is refused, and the text says by which it was used.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_another_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("url"),
        "postgres://node@127.0.0.1:1/none\n",
    )
    .unwrap();
    let start = async |storage: &str| {
        let text = format!(
            "node = \"ipn:1.0\"\ncontrol = \"control.sock\"\n[storage]\n{storage}\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
             [[ltp.peer]]\nnode = \"ipn:2.0\"\n"
        );
        let name = folder.path().join("node.toml");
        Node::start(Config::parse(&text, &name, SystemTime::now().into()).unwrap()).await
    };
    let bundles = folder.path().join("bundles");
    let (log, postgresql) = ("kind = \"disk\"", "database = \"url\"");
    let cases: [(&str, &str, &[&str]); 3] = [
        ("log", "holds a log", &[SQLITE, postgresql]),
        ("metadata.db", "holds a database of SQLite", &[postgresql]),
        ("postgresql", "PostgreSQL", &[SQLITE, log]),
    ];
    for (trace, holds, others) in cases {
        std::fs::create_dir_all(&bundles).unwrap();
        std::fs::write(bundles.join(trace), b"").unwrap();
        for &storage in others {
            let refused = start(storage).await.map(|_| ()).unwrap_err();
            assert!(refused.is_configuration(), "{trace}, {storage}: {refused}");
            let said = refused.to_string();
            assert!(said.contains(holds), "{trace}, {storage}: {said}");
        }
        std::fs::remove_dir_all(&bundles).unwrap();
    }
}
