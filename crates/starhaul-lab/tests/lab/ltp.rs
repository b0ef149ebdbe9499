//! `starhaul lab ltp`: what its parts in virtual time show, and that those in real time measure at all.

use std::time::Duration;

use serde_json::Value;
use starhaul_lab::{
    Error,
    experiments::ltp::{self, Contact, Day, OneWay, Speed},
    kit::{Context, Experiment as _},
};
use starhaul_ltp::SegmentSize;
use starhaul_net::IoMode;
use starhaul_units::Bandwidth;

const SEED: u64 = 1;

/// The first seconds of a contact fill its link, and with repair segments blocks wait for no round trip.
#[test]
fn a_contact_is_full_and_repairs_save_round_trips() {
    let run = |loss, is_coded| {
        let setup = Contact {
            light: Duration::from_secs(4),
            loss,
            is_coded,
            rate: Bandwidth::from_mbit(20),
            back: None,
            lasts: Duration::from_secs(20),
            seed: SEED,
        };
        let outcome = setup.run().unwrap();
        assert!(outcome.used > 0.95, "seed {SEED}: {outcome:?}");
        assert!(outcome.blocks > 20, "seed {SEED}: {outcome:?}");
        assert_eq!(outcome.delivered, outcome.blocks, "seed {SEED}");
        outcome
    };
    let clean = run(0.0, false);
    let trips = clean.wait_p99_trips().unwrap();
    assert!(trips < 0.1, "{trips} round trips without a loss");
    assert_eq!((clean.resent, clean.repairs), (0.0, 0.0));
    let plain = run(0.05, false);
    let trips = plain.wait_p99_trips().unwrap();
    assert!(trips >= 1.0, "seed {SEED}: {trips}");
    assert!(plain.resent > 0.04 && plain.repairs == 0.0, "seed {SEED}");
    let coded = run(0.05, true);
    let trip = Duration::from_secs(8);
    // One in two thousand needs more than its repair segments.
    let late = coded.waits.iter().filter(|wait| **wait >= trip).count();
    assert!(late <= 1, "seed {SEED}: {late} waited for a round trip");
    assert!(coded.repairs < 0.15, "seed {SEED}: {}", coded.repairs);
}

/// Both ways of a link whose rates differ eightfold are full: reports take little of the slower one.
#[test]
fn rates_that_differ_much_are_both_used() {
    for setup in ltp::station(true, SEED) {
        if setup.loss > 0.0 && !setup.is_coded {
            continue;
        }
        let outcome = setup.run().unwrap();
        assert!(outcome.used > 0.95, "seed {SEED}: {outcome:?}");
        assert_eq!(outcome.delivered, outcome.blocks, "seed {SEED}");
    }
}

/// Without a way back nearly all files arrive, for little more than what is lost, and nothing is answered.
#[test]
fn files_arrive_without_a_way_back() {
    let setup = OneWay {
        loss: 0.05,
        bytes: 500_000,
        files: 200,
        seed: SEED,
    };
    let arrived = setup.run().unwrap();
    // One in two thousand may not.
    assert!(arrived.delivered >= 199, "seed {SEED}: {arrived:?}");
    assert!(
        (0.05..0.15).contains(&arrived.overhead),
        "seed {SEED}: {arrived:?}"
    );
    assert_eq!(arrived.answers, 0, "seed {SEED}");
    assert!(arrived.used > 0.95, "seed {SEED}: {arrived:?}");
}

fn day(light: Duration, is_coded: bool) -> Day {
    Day {
        light,
        loss: 0.05,
        is_coded,
        rate: Bandwidth::from_kbit(250),
        seed: SEED,
    }
}

/// A day of contacts delivers what was made before each of them. Where an answer comes when the contact is over, what is lost takes hours
/// without repair segments.
#[test]
fn a_day_of_contacts_delivers_what_was_made() {
    let hour = Duration::from_secs(3600);
    let far = Duration::from_secs(600);
    let run = |light, is_coded| {
        let outcome = day(light, is_coded).run().unwrap();
        assert!(outcome.made > 100, "seed {SEED}: {outcome:?}");
        assert_eq!(outcome.outside, 0, "sent while no contact was open");
        assert!(outcome.used < 1.0, "seed {SEED}: {outcome:?}");
        assert_eq!(outcome.course.len(), 24);
        assert_eq!(
            outcome.course.last(),
            Some(&(outcome.made, outcome.delivered))
        );
        assert!(outcome.course.is_sorted_by_key(|(_, there)| *there));
        outcome
    };
    // From one contact to the end of the next, and the way.
    let in_time = hour * 2 + Duration::from_secs(8 * 60) + far;
    let coded = run(far, true);
    assert!(
        coded.delivered * 100 >= coded.made * 99,
        "seed {SEED}: {} of {}",
        coded.delivered,
        coded.made
    );
    let late = coded.ages.iter().filter(|age| **age > in_time).count();
    assert!(late * 100 <= coded.made, "seed {SEED}: {late} late");
    let plain = run(far, false);
    assert!(
        plain.delivered < coded.delivered,
        "seed {SEED}: {}",
        plain.delivered
    );
    let median = plain.ages[plain.ages.len() / 2];
    assert!(median > hour * 4, "seed {SEED}: {median:?}");
    // At the Moon reports come in the same contact.
    let near = run(Duration::from_millis(1280), false);
    assert!(
        near.delivered * 100 >= near.made * 99,
        "seed {SEED}: {} of {}",
        near.delivered,
        near.made
    );
}

/// The same seed gives the same day.
#[test]
fn a_day_is_repeated_by_its_seed() {
    let days = [(); 2].map(|()| day(Duration::from_millis(20), true).run().unwrap());
    assert_eq!(format!("{:?}", days[0]), format!("{:?}", days[1]));
}

/// Small blocks over loopback, for the figures are another matter: each kind of system calls is measured beside its ceiling.
#[test]
fn this_computer_is_measured() {
    for mode in IoMode::ALL {
        for segment in [SegmentSize::Bytes(1360), SegmentSize::Auto] {
            let setup = Speed {
                segment,
                mode,
                mtu: None,
                block_bytes: 2_000_000,
                repeats: 1,
                seed: SEED,
            };
            let rates = setup.run().unwrap();
            let names: Vec<&str> = rates.iter().map(|rate| rate.what).collect();
            match segment {
                SegmentSize::Auto => assert_eq!(names, ["LTP, auto"]),
                SegmentSize::Bytes(_) => assert_eq!(names, ["raw UDP", "LTP"]),
            }
            for rate in &rates {
                assert!(
                    rate.gbit_per_s > 0.0 && rate.segment_bytes >= 64,
                    "{rate:?}"
                );
                assert!(
                    rate.us_per_segment.iter().all(|time| *time > 0.0),
                    "{rate:?}"
                );
            }
        }
        let setup = Speed {
            segment: SegmentSize::Bytes(8192),
            mode,
            mtu: None,
            block_bytes: 2_000_000,
            repeats: 1,
            seed: SEED,
        };
        let costs = setup.cost().unwrap();
        let ends: Vec<&str> = costs.iter().map(|cost| cost.end).collect();
        assert_eq!(ends, ["send", "receive"]);
        for cost in &costs {
            assert!(
                cost.total > 0.0 && cost.calls > 0.0 && cost.engine > 0.0,
                "{cost:?}"
            );
        }
    }
}

/// The command chooses parts; each has its rows, its table and its picture.
#[test]
fn chosen_parts_have_rows_tables_and_pictures() {
    let study = ltp::study();
    let asked = ["ltp", "--quick", "--only", "one-way,course"];
    let options = study.command().try_get_matches_from(asked).unwrap();
    let plan = study.plan(&options, SEED).unwrap();
    let context = Context {
        command: "starhaul lab ltp",
        bench: &|| Err(Error::Failed("it needs no links".into())),
    };
    let found = plan.run(&context, &mut |_| {}).unwrap();
    assert_eq!(found.failure(), None);
    let json: Value = serde_json::from_str(&found.json().unwrap()).unwrap();
    let rows = |part: &str| json[part].as_array().unwrap().clone();
    assert!(json.get("contact").is_none() && json.get("speed").is_none());
    for row in rows("one-way") {
        assert_eq!(row["answers"], 0, "{row}");
        assert_eq!(row["files"], 100, "{row}");
    }
    // Two light times: what was made, and what was there with repair segments and without.
    let course = rows("course");
    assert_eq!(course.len(), 2 * 3 * 24);
    let at_end: Vec<&Value> = course.iter().filter(|row| row["hour"] == 24).collect();
    assert_eq!(at_end.len(), 6);
    assert!(at_end.iter().all(|row| row["mb"].as_f64() > Some(0.0)));
    let files: Vec<String> = found.files().into_iter().map(|(name, _)| name).collect();
    for name in [
        "report.html",
        "one-way.csv",
        "one-way-overhead.svg",
        "course.csv",
        "course-mb.svg",
    ] {
        assert!(files.iter().any(|file| file == name), "{name}: {files:?}");
    }
}

/// The goals are those of the rows that there are, and a contact of four seconds of light time meets them.
#[test]
fn a_contact_meets_its_goals() {
    let study = ltp::study();
    let asked = ["ltp", "--quick", "--only", "contact", "--check"];
    let options = study.command().try_get_matches_from(asked).unwrap();
    let context = Context {
        command: "starhaul lab ltp",
        bench: &|| Err(Error::Failed("it needs no links".into())),
    };
    let plan = study.plan(&options, SEED).unwrap();
    let found = plan.run(&context, &mut |_| {}).unwrap();
    assert_eq!(found.failure(), None, "seed {SEED}");
    let json: Value = serde_json::from_str(&found.json().unwrap()).unwrap();
    let judged = |figure: &str| {
        let goals = json["goals"].as_array().unwrap().iter();
        goals.filter(|goal| goal["figure"] == figure).count()
    };
    // Each row, and the one with repair segments for 5 %.
    assert_eq!((judged("used"), judged("prompt")), (7, 1));
}

/// Where namespaces may be made, segments go over the MTU that the part names, as fragments if they are longer.
#[test]
fn a_loopback_of_its_own_has_the_mtu_that_is_asked_for() {
    let setup = Speed {
        segment: SegmentSize::Bytes(8192),
        mode: IoMode::Gso,
        mtu: Some(4500),
        block_bytes: 2_000_000,
        repeats: 1,
        seed: SEED,
    };
    let study = ltp::study();
    let asked = ["ltp", "--quick", "--only", "mtu-4500", "--check"];
    let options = study.command().try_get_matches_from(asked).unwrap();
    match setup.run() {
        Ok(rates) => assert!(rates.iter().all(|rate| rate.mtu == Some(4500)), "{rates:?}"),
        Err(_) => {
            let refused = study.plan(&options, SEED).err().unwrap().to_string();
            assert!(refused.contains("mtu-4500, because"), "{refused}");
        }
    }
}

/// All parts of the design are there, those in real time after the others.
#[test]
fn the_list_names_every_part() {
    let commands: Vec<String> = ltp::study()
        .about()
        .into_iter()
        .map(|about| about.command)
        .collect();
    let parts = [
        "contact", "station", "one-way", "day", "course", "speed", "mtu-1500", "mtu-4500",
        "mtu-9702", "cpu",
    ];
    let expected: Vec<String> = std::iter::once("ltp".to_owned())
        .chain(parts.map(|part| format!("ltp --only {part}")))
        .collect();
    assert_eq!(commands, expected);
}
