//! One small table in all its forms.

use super::*;

struct Run(&'static str, &'static str, f64, Option<f64>, bool);

const RUNS: [Run; 4] = [
    Run("cubic", "a, b", 1.0, Some(0.01), true),
    Run("leocc", "a, b", 9.0, None, true),
    Run("cubic", "c \"d\"", 3.0, Some(0.02), true),
    Run("cubic", "a, b", 4.0, Some(0.5), false),
];

fn table() -> Table {
    let columns = [
        Column::name("system", "system", |run: &Run| run.0.into()),
        Column::name("trace", "traces", |run: &Run| run.1.into()).distinct(),
        Column::number("rate_mbps", "throughput", "Mbit/s", 2, |run: &Run| {
            run.2.into()
        })
        .brief("")
        .digits(4)
        .median(),
        Column::share("loss_rate", "lost", 1, |run: &Run| run.3.into()).greatest(),
        Column::name("verdict", "", |run: &Run| {
            Value::Verdict(if run.4 { "fine" } else { "<bad>" }.to_owned(), run.4)
        })
        .dropped(),
    ];
    Table::of(&columns, &RUNS)
}

#[test]
fn a_terminal_gets_aligned_columns() {
    assert_eq!(
        table().summed_up().text(),
        "system  traces  Mbit/s  lost %\ncubic        2    3.00    50.0\nleocc        1    9.00       –\n"
    );
}

#[test]
fn a_spreadsheet_gets_what_was_measured_and_quoted() {
    let expected = "system,trace,rate_mbps,loss_rate,verdict\ncubic,\"a, b\",1.0000,0.01,fine\nleocc,\"a, b\",9.0000,,fine\n\
                    cubic,\"c \"\"d\"\"\",3.0000,0.02,fine\ncubic,\"a, b\",4.0000,0.5,<bad>\n";
    assert_eq!(table().csv(), expected);
}

#[test]
fn a_program_gets_objects() {
    let json = table().json();
    assert_eq!(json[1]["rate_mbps"], 9.0);
    assert!(json[1]["loss_rate"].is_null());
    // What the row is of, and what was found; a column that sums leave out is neither.
    assert_eq!(json[1]["params"], serde_json::json!({"system": "leocc"}));
    let metrics = &json[1]["metrics"];
    assert_eq!(metrics["rate_mbps"], 9.0);
    assert!(
        metrics
            .get("loss_rate")
            .is_some_and(serde_json::Value::is_null)
    );
    assert!(metrics.get("verdict").is_none() && json[1]["verdict"] == "fine");
    assert_eq!(json.as_array().map(Vec::len), Some(4));
}

#[test]
fn a_page_gets_colours_verdicts_and_escaped_text() {
    let html = table().coloured("system", |_| "blue").html().into_string();
    assert!(
        html.contains("<td class=\"words no\">&lt;bad&gt;</td>"),
        "{html}"
    );
    assert!(
        html.contains("<td class=\"words name blue\">cubic</td>"),
        "{html}"
    );
    assert!(html.contains("<th>throughput, Mbit/s</th>"), "{html}");
    let grouped = table().grouped().html().into_string();
    assert_eq!(
        grouped.matches("<tr class=\"first\">").count(),
        3,
        "{grouped}"
    );
}

#[test]
fn what_was_not_waited_for_is_the_greatest() {
    let column = || {
        Column::number("wait_ms", "wait", "ms", 0, |wait: &Option<f64>| {
            wait.map_or(Value::Above(10.0), Value::Number)
        })
        .greatest()
    };
    let waits = [Some(5.0), None, Some(7.0)];
    let table = Table::of(&[column()], &waits);
    assert_eq!(table.summed_up().text(), "wait ms\n   > 10\n");
    assert_eq!(table.csv(), "wait_ms\n5\n>10\n7\n");
    assert_eq!(table.json()[1]["wait_ms"], ">10");
    let all = Table::of(&[column()], &[Some(5.0), Some(7.0)]);
    assert_eq!(all.summed_up().text(), "wait ms\n      7\n");
}

#[test]
fn parts_are_split_and_empty_columns_left_out() {
    let parts = table().split(&["system"]);
    let names: Vec<_> = parts
        .iter()
        .map(|(name, part)| (&**name, part.len()))
        .collect();
    assert_eq!(names, [("cubic", 3), ("leocc", 1)]);
    let leocc = parts[1].1.clone().without_empty();
    assert!(
        leocc.csv().starts_with("trace,rate_mbps,verdict\n"),
        "{}",
        leocc.csv()
    );
}

#[test]
fn a_figure_that_one_of_several_rows_lacks_is_none_of_all() {
    type Point = (&'static str, Option<f64>);
    let columns = || {
        [
            Column::name("system", "system", |point: &Point| point.0.into()),
            Column::number("sent", "sent", "", 0, |point: &Point| point.1.into()).median(),
        ]
    };
    let points = [
        ("a", Some(1.0)),
        ("b", Some(3.0)),
        ("a", None),
        ("b", Some(5.0)),
        ("c", Some(f64::NAN)),
    ];
    let table = Table::of(&columns(), &points);
    let sums = |table: Table| table.summed_up().figures("sent");
    assert_eq!(sums(table.clone())[..2], [Some(1.0), Some(4.0)]);
    assert_eq!(
        sums(table.clone().only_whole("sent")),
        [None, Some(4.0), None]
    );
    assert_eq!(table.clone().only_whole("another").len(), table.len());
}
