//! The page is checked for what a reader would miss, and for what would make it need the network.

use std::time::Duration;

use super::*;
use crate::{
    PathResult, Paths, Sample,
    apps::download::DownloadScore,
    baseline::Controller,
    load::{Applications, Classes},
    score::{ClassLog, Tally},
};

/// A made-up run: ours delivers all after 40 ms, the baseline loses every fourth block and is slow.
fn all_series(seconds: u64) -> Systems<SystemSeries> {
    let series = |ours: bool| SystemSeries {
        logs: Classes::from_fn(|class| {
            let mut log = ClassLog::new(class);
            for block in class.blocks(Duration::from_secs(seconds)) {
                log.on_sent(block.at);
                let wobble = u64::from(block.sequence * 37 % 100);
                match (ours, block.sequence % 4) {
                    (true, _) => {
                        log.on_received(block.sequence, Duration::from_millis(20 + wobble))
                    }
                    (false, 0) => {}
                    (false, n) => log.on_received(
                        block.sequence,
                        Duration::from_millis(40 + wobble * u64::from(n * n) * 5),
                    ),
                }
            }
            log
        }),
        samples: (0..=seconds * 2)
            .map(|n| Sample {
                at: Duration::from_millis(500 * n),
                delivered: Paths {
                    leo: n * if ours { 2_400_000 } else { 900_000 },
                    geo: n * 500_000,
                },
                capacity: Paths {
                    leo: n * 3_000_000,
                    geo: n * 625_000,
                },
                downloaded: 0,
            })
            .collect(),
    };
    Systems {
        starhaul: series(true),
        mpquic: series(false),
    }
}

fn result(all_series: &Systems<SystemSeries>, seconds: u64) -> DemoResult {
    let system = |series: &SystemSeries| {
        let classes = Classes::from_fn(|class| series.logs.of(class).score());
        SystemResult {
            qoe: classes.qoe(),
            classes,
            paths: Paths {
                leo: PathResult {
                    bytes: 1_500_000,
                    controller: "leocc2".to_owned(),
                    reconfigurations: Some(3),
                },
                geo: PathResult {
                    bytes: 250_000,
                    controller: "bbr".to_owned(),
                    reconfigurations: None,
                },
            },
            download: DownloadScore {
                bytes: 12_345_678,
                sha256_ok: true,
                mbit_per_s: 17.25,
                failure: None,
            },
        }
    };
    DemoResult {
        seed: 42,
        seconds,
        baseline: Controller::default(),
        applications: Applications::default(),
        systems: Systems {
            starhaul: system(&all_series.starhaul),
            mpquic: system(&all_series.mpquic),
        },
        warnings: Vec::new(),
    }
}

/// A reader of the file has not seen what the run wrote to the terminal.
#[test]
fn page_and_picture_say_what_makes_the_figures_doubtful() {
    let all_series = all_series(3);
    let mut result = result(&all_series, 3);
    let made = |result: &DemoResult| {
        let report = Report {
            result,
            all_series: &all_series,
            command: "starhaul demo",
            links: "",
        };
        [report.html(), report.svg()]
    };
    for well in made(&result) {
        assert!(!well.contains("warning: "));
    }
    result.warnings = vec!["mpquic: <late>".to_owned()];
    for doubtful in made(&result) {
        assert!(doubtful.contains("warning: mpquic: &lt;late&gt;"));
    }
}

#[test]
fn the_page_shows_both_systems_and_needs_no_network() {
    let all_series = all_series(10);
    let result = result(&all_series, 10);
    let html = Report {
        result: &result,
        all_series: &all_series,
        command: "starhaul demo --leo-loss <2%>",
        links: "a & b",
    }
    .html();
    for part in [
        "starhaul demo --leo-loss &lt;2%&gt;",
        "seed 42",
        "a &amp; b",
        "17.25",
        "12.3",
        "prefers-color-scheme: dark",
        &baseline::note(Controller::default()),
        "Lost: not whole when the demo stopped listening, 4 s or more after",
    ] {
        assert!(html.contains(part), "{part:?} is missing");
    }
    assert_eq!(html.matches("<svg").count(), 8);
    for link in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!html.contains(link), "{link:?} would need the network");
    }
    assert!(!html.contains("NaN"));
}

#[test]
fn the_final_table_has_the_applications_that_ran() {
    let all_series = all_series(3);
    let mut result = result(&all_series, 3);
    let mut table = |applications| {
        result.applications = applications;
        crate::final_table(&result)
    };
    let all = table(Applications::All);
    let blocks = table(Applications::Blocks);
    let download = table(Applications::Download);
    for (said, of_blocks) in [("video, 3000 ms", true), ("Lost: ", true), ("17.25", false)] {
        assert!(all.contains(said), "{said}: {all}");
        assert_eq!(blocks.contains(said), of_blocks, "{said}: {blocks}");
        assert_eq!(download.contains(said), !of_blocks, "{said}: {download}");
    }
}

/// A queue may hold them still.
#[test]
fn the_final_table_says_until_when_a_block_may_come() {
    let all_series = all_series(3);
    let table = crate::final_table(&result(&all_series, 3));
    let said = "Lost: not whole when the demo stopped listening, 4 s or more after the last block.";
    assert!(table.contains(said), "{table}");
}

#[test]
fn the_picture_holds_six_charts_and_both_summaries() {
    let all_series = all_series(10);
    let result = result(&all_series, 10);
    let svg = Report {
        result: &result,
        all_series: &all_series,
        command: "starhaul demo",
        links: "a & b",
    }
    .svg();
    assert_eq!(
        (svg.matches("<svg ").count(), svg.matches("</svg>").count()),
        (7, 7)
    );
    for part in [
        "a &amp; b, 10 s, seed 42",
        "starhaul: text 100 %, audio 100 %, video 100 % on time, download 17.2 Mbit/s",
    ] {
        assert!(svg.contains(part), "{part:?} is missing");
    }
    assert!(!svg.contains("NaN") && !svg.contains("href"));
}

#[test]
fn a_run_without_anything_still_makes_a_page() {
    let empty = || SystemSeries {
        logs: Classes::from_fn(ClassLog::new),
        samples: Vec::new(),
    };
    let all_series = Systems {
        starhaul: empty(),
        mpquic: empty(),
    };
    let result = result(&all_series, 0);
    let html = Report {
        result: &result,
        all_series: &all_series,
        command: "starhaul demo",
        links: "",
    }
    .html();
    assert!(html.ends_with("</html>\n") && !html.contains("NaN"));
}

#[test]
fn one_missing_block_is_never_rounded_to_all() {
    let tally = Tally {
        sent: 100_000,
        on_time: 99_999,
    };
    assert_eq!(percent(tally), "99.99");
    assert_eq!(percent(Tally::default()), "–");
}
