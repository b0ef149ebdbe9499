//! The configuration as it is defined.

use std::{fs, path::Path};

use starhaul_config::{Document, trials};
use starhaul_ltp::{NumberWidth, Profile, RepairRate};
use starhaul_net::IoMode;

use super::{Config, OneWay, VARIABLES, definition::TOP, read};
use crate::{
    Error,
    plan::{Moment, NodeId},
};

/// A folder with the keys that the sample names.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in trials::files(&TOP, "file") {
        let file = folder.path().join(name);
        fs::write(file, "0123456789abcdef0123456789abcdef").unwrap();
    }
    folder
}

fn parse(folder: &tempfile::TempDir, text: &str) -> Result<Config, String> {
    let name = folder.path().join("node.toml");
    Config::parse(text, &name, Moment::default()).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_read_and_its_mistakes_are_told() {
    assert_eq!(trials::unsound(&TOP), Vec::<String>::new());
    let folder = folder();
    for mistake in trials::mistakes(&TOP) {
        let error = parse(&folder, &mistake.text).expect_err(&mistake.text);
        for said in &mistake.says {
            assert!(error.contains(said), "{error}: {said} of\n{}", mistake.text);
        }
    }
    let opened = trials::opened(&TOP);
    parse(&folder, &opened).unwrap_or_else(|error| panic!("{error}\n{opened}"));
    let decided = trials::decided(&TOP);
    assert_eq!(decided.len(), 2, "max_bytes in memory, and on disk");
    for (short, long) in decided.into_iter().chain([trials::spelled_out(&TOP)]) {
        let [short, long] = [short, long].map(|text| parse(&folder, &text).unwrap());
        assert_eq!(format!("{short:?}"), format!("{long:?}"));
    }
}

#[test]
fn a_mistake_in_a_variable_is_told_as_one_in_the_file() {
    let folder = folder();
    let name = folder.path().join("node.toml");
    let parse = |text: &str, variable: &str, value: &str| -> Result<Config, Error> {
        let mut document = Document::new(&name, text);
        let variable = (format!("{VARIABLES}{variable}").into(), value.into());
        document.set_variables(VARIABLES, &TOP, std::iter::once(variable))?;
        read::read(&document, &name, Moment::default())
    };
    let known = trials::in_variables(&TOP, parse).unwrap();
    assert!(known > 20);
    let config = parse(&Config::sample(), "STORAGE_MAX_BUNDLES", "99").unwrap();
    assert_eq!(config.storage.bundles, 99);
}

#[test]
fn the_reference_is_as_defined() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dtn.md");
    trials::pinned(Path::new(file), &TOP).unwrap();
}

#[test]
fn sqlite_keeps_bundles_on_disk_and_has_no_database_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("url"),
        "postgres://node@127.0.0.1/node\n",
    )
    .unwrap();
    let text = |more: &str| {
        format!(
            "node = \"ipn:1.0\"\n[storage]\nkind = \"sqlite\"\n{more}\n[tcp]\nlisten = \"127.0.0.1:0\"\n"
        )
    };
    let config = parse(&folder, &text("sync = false")).unwrap();
    assert!(config.storage.sqlite && !config.storage.sync);
    let place = config.storage.folder.clone();
    assert_eq!(place, Some(folder.path().join("bundles")));
    let told = config.describe(Moment::default());
    assert!(told.contains("known to SQLite"), "{told}");
    let error = parse(&folder, &text("database = \"url\"")).unwrap_err();
    let said = "node.toml:4: [storage]: database: SQLite keeps what PostgreSQL would keep";
    assert!(error.contains(said), "{error}");
}

#[test]
fn neighbours_may_be_in_files_of_their_own() {
    let folder = folder();
    let main = folder.path().join("node.toml");
    fs::write(&main, "node = \"ipn:1.0\"\ninclude = \"ltp.toml\"\n").unwrap();
    let ltp = "[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n";
    fs::write(folder.path().join("ltp.toml"), ltp).unwrap();
    let config = Config::load(&main, Moment::default()).unwrap();
    assert_eq!(config.ltp.unwrap().peers.len(), 1);
    fs::write(folder.path().join("ltp.toml"), format!("{ltp}kye = 1\n")).unwrap();
    let error = Config::load(&main, Moment::default()).unwrap_err();
    let said = "ltp.toml:4: [[ltp.peer]]: unknown key \"kye\"; did you mean \"key\"?";
    assert!(error.to_string().contains(said), "{error}");
}

#[test]
fn where_the_unit_keeps_bundles_is_told_where_it_may_not_write() {
    let text = "node = \"ipn:1.0\"\n[tcp]\nlisten = \"127.0.0.1:4556\"\n";
    let described = |name: &str| {
        let config = Config::parse(text, Path::new(name), Moment::default()).unwrap();
        config.describe(Moment::default())
    };
    let of_service = described("/etc/starhaul/dtn.toml");
    assert!(of_service.contains("/etc/starhaul/bundles"), "{of_service}");
    assert!(of_service.contains("/var/lib/starhaul-dtn"), "{of_service}");
    let own = described("/home/operator/dtn.toml");
    assert!(!own.contains("/var/lib"), "{own}");
}

#[test]
fn what_a_plan_says_of_the_way_to_a_neighbour_holds_for_its_link() {
    let node = "node = \"ipn:1.0\"\n[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\naddress = \"10.0.0.2:1113\"\n";
    let contact = |more: &str| {
        format!(
            "{node}[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+1s\"\nend = \"+9s\"\nrate = \"1mbit\"\nlight_time = \"600s\"\n{more}"
        )
    };
    let parsed =
        |text: &str| Config::parse(text, Path::new("dtn.toml"), Moment::default()).unwrap();
    let config = parsed(&contact(""));
    let light = config.ltp.as_ref().unwrap().peers[0].light_time;
    assert_eq!(light, std::time::Duration::from_secs(600));
    let rate = |config: &Config| config.ltp.as_ref().unwrap().peers[0].rate;
    assert_eq!(rate(&config), Some(starhaul_units::Bandwidth::from_mbit(1)));
    let differing = "[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+20s\"\nend = \"+30s\"\nrate = \"9mbit\"\n";
    assert_eq!(rate(&parsed(&contact(differing))), None);
    let own = contact("").replace("1113\"\n", "1113\"\nrate = \"5mbit\"\n");
    assert_eq!(
        rate(&parsed(&own)),
        Some(starhaul_units::Bandwidth::from_mbit(5))
    );
    assert!(!config.describe(Moment::default()).contains("never answers"));
    let config = parsed(&contact("both_ways = false"));
    let told = config.describe(Moment::default());
    assert!(told.contains("warning: ipn:2.0 never answers"), "{told}");
}

/// As a node routes them: each size for itself.
#[test]
fn the_ways_of_small_and_of_large_bundles_are_told_where_they_differ() {
    let contact = |from: u32, to: u32, link: &str| {
        format!(
            "[[contact]]\nfrom = \"ipn:{from}.0\"\nto = \"ipn:{to}.0\"\nstart = \"+0s\"\nend = \"+1h\"\n{link}\n"
        )
    };
    let (near, far) = (
        "rate = \"10kbit\"",
        "rate = \"100mbit\"\nlight_time = \"2s\"",
    );
    let contacts = [(1, 2, near), (2, 4, near), (1, 3, far), (3, 4, far)];
    let contacts = contacts.map(|(from, to, link)| contact(from, to, link));
    let text = format!(
        "node = \"ipn:1.0\"\n[tcp]\nlisten = \"127.0.0.1:0\"\n{}",
        contacts.concat()
    );
    let config = Config::parse(&text, Path::new("dtn.toml"), Moment::default()).unwrap();
    let told = config.describe(Moment::default());
    for line in [
        "  ipn:4.0: 1 MB arrives at 1970-01-01T00:00:04.160Z by way of ipn:3.0, ipn:4.0",
        "    1 kB arrives at 1970-01-01T00:00:01.600Z by way of ipn:2.0, ipn:4.0",
    ] {
        assert!(told.lines().any(|known| known == line), "{line}: {told}");
    }
    // It would not be taken.
    assert!(!told.contains("100 MB"), "{told}");
}

#[test]
fn each_value_of_ltp_is_told_with_its_reason() {
    let text = "node = \"ipn:1.0\"\n[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\nlight_time = \"4s\"\nrate = \"155mbit\"\n[[ltp.peer]]\nnode = \"ipn:3.0\"\n";
    let parsed = |more: &str| {
        let text = format!("{text}{more}");
        Config::parse(&text, Path::new("dtn.toml"), Moment::default()).unwrap()
    };
    let urgent = "[[priority]]\nto = \"ipn:9.*\"\n";
    for (more, not_urgent) in [("", None), (urgent, Some("465000000 bytes of them"))] {
        let explained = parsed(more).explain();
        let nodes: Vec<_> = explained.iter().map(|(node, _)| node.to_string()).collect();
        assert_eq!(nodes, ["ipn:2.0", "ipn:3.0"]);
        let (_, rows) = &explained[0];
        let value = |name: &str| {
            let mut named = rows.iter().filter(|row| row.name == name);
            let value = named.next().map(|row| row.value.as_str());
            assert_eq!(named.next(), None, "{name} is told twice");
            value
        };
        for (name, wanted) in [
            ("one-way light time", "4s"),
            ("first timeout", "8.1s"),
            // 64 MiB and 1 MiB.
            ("longest block", "68157440 bytes"),
            ("session numbers", "32 bits"),
            // Three round trips.
            ("bundles under way", "465000000 bytes"),
        ] {
            assert_eq!(value(name), Some(wanted), "{name}");
        }
        assert_eq!(value("not urgent"), not_urgent);
        assert!(value("receive memory of all").is_some() && value("margin").is_some());
    }
}

#[test]
fn an_address_that_cannot_be_reached_from_where_ltp_listens_is_refused() {
    let text = |listen: &str, address: &str| {
        format!(
            "node = \"ipn:1.0\"\n[ltp]\nlisten = \"{listen}\"\n[[ltp.peer]]\nnode = \"ipn:2.0\"\naddress = \"{address}\"\n"
        )
    };
    for (listen, address, is_fine) in [
        ("[::]:1113", "10.0.0.2:1113", true),
        ("[::]:1113", "[2001:db8::2]:1113", true),
        ("0.0.0.0:1113", "10.0.0.2:1113", true),
        ("0.0.0.0:1113", "[2001:db8::2]:1113", false),
        ("[2001:db8::1]:1113", "10.0.0.2:1113", false),
        // It is looked up when the node runs.
        ("0.0.0.0:1113", "nowhere.invalid:1113", true),
    ] {
        let text = text(listen, address);
        let read = Config::parse(&text, Path::new("dtn.toml"), Moment::default());
        match read {
            Ok(_) => assert!(is_fine, "{listen} {address}"),
            Err(error) => assert!(
                !is_fine && error.to_string().contains("cannot be reached"),
                "{error}"
            ),
        }
    }
}

#[test]
fn times_of_a_plan_without_an_epoch_count_from_that_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let contact = "[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+1s\"\nend = \"+2s\"\nrate = \"1kbit\"\n";
    let (own, of_plan) = ("2027-03-01T12:00:00Z", "2028-03-01T12:00:00Z");
    let node = format!(
        "node = \"ipn:1.0\"\nplan = \"plan.toml\"\nepoch = \"{own}\"\n[tcp]\nlisten = \"127.0.0.1:0\"\n"
    );
    for (epoch, begins) in [
        (String::new(), "2027-03-01T12:00:01Z"),
        (format!("epoch = \"{of_plan}\"\n"), "2028-03-01T12:00:01Z"),
    ] {
        fs::write(folder.path().join("plan.toml"), epoch + contact).unwrap();
        let config = parse(&folder, &node).unwrap();
        assert_eq!(config.plan.contacts()[0].start.to_string(), begins);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_its_key() {
    let folder = folder();
    let ltp = "[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\nkey = \"none\"\n";
    for (text, said) in [
        (ltp, "node.toml:5: [[ltp.peer]]: key: cannot read "),
        ("plan = \"none\"\n", "node.toml:2: plan: cannot read "),
        (
            "[security]\nsign_key = \"none\"\n",
            "node.toml:3: [security]: sign_key: cannot read ",
        ),
    ] {
        let error = parse(&folder, &format!("node = \"ipn:1.0\"\n{text}")).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_profile_is_told_and_has_what_is_asked_for() {
    let parsed = |ltp: &str, peer: &str| {
        let text =
            format!("node = \"ipn:1.0\"\n[ltp]\n{ltp}\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n{peer}\n");
        Config::parse(&text, Path::new("dtn.toml"), Moment::default())
    };
    for (name, profile) in Profile::ALL {
        let config = parsed("", &format!("profile = \"{name}\"")).unwrap();
        let ltp = config.ltp.as_ref().unwrap();
        assert_eq!(ltp.numbers, NumberWidth::Bits32);
        assert_eq!(ltp.peers[0].profile, profile);
        let told = config.describe(Moment::default());
        let is_told = told.contains(&format!("profile {name}"));
        assert_eq!(is_told, profile != Profile::default(), "{told}");
    }
    let wide = parsed("numbers = \"64\"", "").unwrap();
    let wide = wide.ltp.unwrap();
    assert_eq!(
        (wide.numbers, wide.mode),
        (NumberWidth::Bits64, IoMode::Gso)
    );
    for mode in IoMode::ALL {
        let config = parsed(&format!("mode = \"{}\"", mode.name()), "").unwrap();
        assert_eq!(config.ltp.as_ref().unwrap().mode, mode);
        let rows = config.explain().swap_remove(0).1;
        let told = rows.iter().find(|row| row.name == "system calls");
        assert_eq!(told.map(|row| row.value.as_str()), Some(mode.name()));
    }
    let ccsds = "profile = \"ccsds-734.1\"";
    for (ltp, more, lacking) in [
        ("", "repair = \"5%\"", "no repair segments"),
        ("", "repair = \"auto\"", "no repair segments"),
        ("numbers = \"64\"", "", "no session numbers of 64 bits"),
    ] {
        let error = parsed(ltp, &format!("{ccsds}\n{more}")).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(lacking) && said.contains("profile"), "{said}");
    }
}

/// What a link without a way back needs is asked for; nothing is routed to who only sends.
#[test]
fn a_link_without_a_way_back_needs_what_nobody_can_report() {
    let parsed = |more: &str| {
        let text = format!("node = \"ipn:1.0\"\n[ltp]\n[[ltp.peer]]\nnode = \"ipn:2.0\"\n{more}\n");
        Config::parse(&text, Path::new("dtn.toml"), Moment::default())
    };
    let (address, rate, repair) = (
        "address = \"10.0.0.2:1113\"",
        "rate = \"1mbit\"",
        "repair = \"5%\"",
    );
    let out = |keys: &[&str]| parsed(&[&["one_way = \"out\""][..], keys].concat().join("\n"));
    for (keys, missing) in [
        (&[rate, repair][..], "write its address"),
        (&[address, repair][..], "write rate"),
        (&[address, rate][..], "repair = \"5%\""),
        (&[address, rate, "repair = \"auto\""][..], "repair = \"5%\""),
    ] {
        let error = out(keys).unwrap_err().to_string();
        assert!(
            error.contains(missing) && error.contains("one_way"),
            "{error}"
        );
    }
    let config = out(&[address, rate, repair]).unwrap();
    let peer = &config.ltp.as_ref().unwrap().peers[0];
    assert_eq!(
        (peer.one_way, peer.repair),
        (OneWay::Out, Some(RepairRate::Fixed(0.05)))
    );
    let told = config.describe(Moment::default());
    for said in ["repair segments for 5 % lost", "it cannot answer"] {
        assert!(told.contains(said), "{said}: {told}");
    }
    assert_eq!(config.always().len(), 1);
    let told = parsed("repair = \"auto\"").unwrap();
    let told = told.describe(Moment::default());
    assert!(told.contains("what reports show to be lost"), "{told}");
    let error = parsed("repair = \"much\"").unwrap_err().to_string();
    assert!(
        error.contains("write auto") && error.contains("repair"),
        "{error}"
    );

    let contact = |more: &str| {
        format!(
            "[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+1s\"\nend = \"+9s\"\nrate = \"1mbit\"\n{more}"
        )
    };
    // The plan knows the rate, and that it never answers is no surprise.
    let planned = out(&[address, repair, &contact("both_ways = false")]).unwrap();
    let told = planned.describe(Moment::default());
    assert!(!told.contains("never answers"), "{told}");

    // From it alone: no way leads there, whether the plan names it or not.
    let config = parsed("one_way = \"in\"").unwrap();
    let [own, other]: [NodeId; 2] = ["ipn:1.0", "ipn:2.0"].map(|node| node.parse().unwrap());
    assert!(config.always().is_empty());
    assert!(config.plan.knows(&other, &own) && !config.plan.knows(&own, &other));
    let told = config.describe(Moment::default());
    assert!(told.contains("nothing is sent to it"), "{told}");
    let error = parsed(&format!("one_way = \"in\"\n{}", contact("")));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("both_ways = false"), "{error}");
    // Over TCPCLv4 something may be sent to it.
    let tcp = "[tcp]\n[[tcp.peer]]\nnode = \"ipn:2.0\"\naddress = \"10.0.0.2:4556\"\n";
    let both = parsed(&format!("one_way = \"in\"\n{tcp}{}", contact(""))).unwrap();
    assert!(both.plan.knows(&own, &other));
    let unplanned = parsed(&format!("one_way = \"in\"\n{tcp}")).unwrap();
    assert_eq!(unplanned.always().len(), 1, "that over TCPCLv4");
}
