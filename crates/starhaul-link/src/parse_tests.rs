use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

fn line_of(error: Error) -> usize {
    match error {
        Error::Line { line, .. } => line,
        other => panic!("{other} does not name a line"),
    }
}

#[test]
fn bad_lines_are_named() {
    for (text, line) in [
        ("1\n2\nx\n", 3),
        ("1\n\n2\n", 2),
        ("5\n4\n", 2),
        ("+5\n", 1),
        ("-5\n", 1),
        ("1.5\n", 1),
        ("1\n7200001\n", 2),
        ("1\n\u{fffd}\n", 2),
    ] {
        let error = parse_capacity("bw.txt", text.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("bw.txt:"), "{error}");
        assert_eq!(line_of(error), line, "{text:?}");
    }
    for (text, line) in [
        ("10\n \n", 2),
        ("10\n-1\n", 2),
        ("inf\n", 1),
        ("600001\n", 1),
    ] {
        let error = parse_delay("delay.txt", text.as_bytes()).unwrap_err();
        assert_eq!(line_of(error), line, "{text:?}");
    }
    let head = "t_s,rtt_ms,owd_ms,capacity_mbps\n";
    for (rows, line) in [
        ("0,20,10,5\n0.05,20,10\n", 3),
        ("0,20,10,5\n0,20,10,5\n", 3),
        ("0,20,x,5\n", 2),
        ("0,20,10,nan\n", 2),
        ("0,20,10,5\n9000,20,10,5\n", 3),
    ] {
        let error = parse_csv("t.csv", format!("{head}{rows}").as_bytes()).unwrap_err();
        assert_eq!(line_of(error), line, "{rows:?}");
    }
    assert_eq!(
        line_of(parse_csv("t.csv", "t_s,owd_ms\n".as_bytes()).unwrap_err()),
        1
    );
}

#[test]
fn traces_without_any_content_are_refused() {
    for text in ["", "0\n0\n"] {
        assert!(
            parse_capacity("bw.txt", text.as_bytes()).is_err(),
            "{text:?}"
        );
    }
    for text in ["", "0\n0\n"] {
        assert!(
            parse_delay("delay.txt", text.as_bytes()).is_err(),
            "{text:?}"
        );
    }
    let never = "t_s,owd_ms,capacity_mbps\n0,1,0\n1,1,0\n";
    assert!(parse_csv("t.csv", never.as_bytes()).is_err());
    assert!(matches!(
        Trace::read(Path::new("/no/such/file"), None),
        Err(Error::Read { .. })
    ));
}

#[test]
fn a_line_without_end_does_not_fill_memory() {
    let endless = BufReader::new(std::io::repeat(b'1'));
    assert_eq!(line_of(parse_capacity("bw.txt", endless).unwrap_err()), 1);
}

#[test]
fn missing_delays_at_the_start_take_the_first_measured_one() {
    let series = parse_delay("delay.txt", "0\n0\n12\n0\n7.5".as_bytes()).unwrap();
    let at = |ms| series.at(Duration::from_millis(ms)).as_micros();
    assert_eq!(
        [0, 19, 20, 35, 49].map(at),
        [12_000, 12_000, 12_000, 0, 7_500]
    );
    assert_eq!(series.period(), Duration::from_millis(50));
}

#[test]
fn csv_rows_hold_until_the_next() {
    let table = "t_s,rtt_ms,capacity_mbps,note\r\n5.0,20,12,a\r\n5.1,30,0,b\r\n5.2,40,24,c\r\n";
    let trace = parse_csv("t.csv", table.as_bytes()).unwrap();
    let ms = Duration::from_millis;
    assert_eq!(trace.capacity.period(), ms(300));
    assert_eq!(
        [100, 200, 300].map(|t| trace.capacity.until(ms(t))),
        [100, 100, 300]
    );
    let delay = trace.delay.unwrap();
    assert_eq!(
        [0, 100, 299, 300].map(|t| delay.at(ms(t))),
        [10, 15, 20, 10].map(ms)
    );
}

#[test]
fn bandwidth_and_delay_wrap_together_at_the_shorter() {
    let ms = Duration::from_millis;
    let wrapped = |capacity: &str, delay: &str| {
        let capacity = parse_capacity("bw.txt", capacity.as_bytes()).unwrap();
        let delay = parse_delay("delay.txt", delay.as_bytes()).unwrap();
        Trace::new(capacity, Some(delay))
    };
    let longer_delay = wrapped("1\n12\n", "10\n11\n12\n").unwrap();
    let delay = longer_delay.delay.unwrap();
    assert_eq!([11, 12, 22].map(|t| delay.at(ms(t))), [11, 10, 11].map(ms));

    let shorter_delay = wrapped("1\n12\n25\n", "10\n11\n").unwrap();
    assert_eq!(shorter_delay.capacity.period(), ms(20));
    let times = (1..=4).map(|n| shorter_delay.capacity.time_of(n));
    assert!(times.eq([1, 12, 21, 32].map(ms)));

    // one delay for ever
    let constant = wrapped("1\n25\n", "7\n").unwrap();
    assert_eq!(constant.capacity.period(), ms(25));
    assert_eq!(constant.delay.unwrap().at(ms(24)), ms(7));

    let error = wrapped("500\n", "10\n11\n").unwrap_err();
    assert!(error.to_string().contains("end after 20ms"), "{error}");
}

/// The folder of recorded traces, which is not part of the project.
fn recorded(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("STARHAUL_TRACES").map_or_else(
        || {
            Path::new(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../../shared/traces"
            ))
            .to_owned()
        },
        PathBuf::from,
    );
    let path = folder.join(file);
    if !path.exists() {
        println!("skipped: no recorded trace {}", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn the_recorded_uplink_has_its_eight_outages() {
    let (Some(bw), Some(delay)) = (
        recorded("leocc-example/bw_example.txt"),
        recorded("leocc-example/delay_example.txt"),
    ) else {
        return;
    };
    let trace = Trace::read(&bw, Some(&delay)).unwrap();
    let delay = trace.delay.unwrap();
    let gaps = trace.capacity.gaps(Duration::from_millis(45));
    let lengths: Vec<_> = gaps.iter().map(|(_, length)| length.as_millis()).collect();
    assert_eq!(lengths, [59, 69, 82, 68, 95, 135, 59, 93]);
    for (k, (start, length)) in (0..).zip(&gaps) {
        let expected = Duration::from_millis(8_687 + 15_000 * k);
        assert!(
            start.abs_diff(expected) < Duration::from_millis(20),
            "{start:?}"
        );
        let spike = (0..10).map(|i| delay.at(*start + *length + Duration::from_millis(10) * i));
        assert!(
            spike.max() >= Some(Duration::from_millis(31)),
            "no spike after {start:?}"
        );
    }
    assert!((trace.capacity.mean_rate().mbit() - 48.7).abs() < 0.1);
    assert_eq!(
        delay.range(),
        (Duration::from_millis(7), Duration::from_millis(68))
    );
}

#[test]
fn the_recorded_downlinks_have_their_mean_rates() {
    for (file, low, high) in [
        ("leocc-downlink/q25_A_downlink_600.csv", 353.0, 408.5),
        ("leocc-downlink/q75_C_downlink_599.csv", 352.5, 408.5),
    ] {
        let Some(path) = recorded(file) else { return };
        let trace = Trace::read_csv(&path).unwrap();
        let mean = trace.capacity.mean_rate().mbit();
        assert!(low < mean && mean < high, "{file}: {mean}");
        assert_eq!(trace.capacity.period(), Duration::from_secs(90));
    }
}

#[test]
fn the_recorded_delays_are_read_whole() {
    for number in [1, 2, 3, 10, 11, 12, 13, 14, 15, 16] {
        let Some(path) = recorded(&format!("leocc-delay/delay_{number}.txt")) else {
            return;
        };
        let series = read_delay(&path).unwrap();
        assert_eq!(series.period().as_secs_f64().round(), 120.0, "{number}");
        let (least, greatest) = series.range();
        assert!(least >= Duration::from_millis(5), "{number}: {least:?}");
        assert!(
            greatest >= Duration::from_millis(30),
            "{number}: {greatest:?}"
        );
    }
}

/// Lines that are nearly right, which arbitrary bytes hardly ever are.
fn nearly_a_trace() -> impl Strategy<Value = Vec<u8>> {
    proptest::string::bytes_regex(
        "(t_s,owd_ms,capacity_mbps\r?\n)?([0-9]{0,8}[.,\r -]?[0-9]{0,4}\n){0,30}",
    )
    .unwrap()
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop_oneof![any::<Vec<u8>>(), nearly_a_trace()]) {
        if let Ok(capacity) = parse_capacity("fuzz", bytes.as_slice()) {
            prop_assert!(capacity.per_period() > 0);
            let first = capacity.time_of(1);
            prop_assert_eq!(capacity.until(first.saturating_sub(Duration::from_millis(1))), 0);
            prop_assert!(capacity.until(first) > 0);
        }
        if let Ok(delay) = parse_delay("fuzz", bytes.as_slice()) {
            let (least, greatest) = delay.range();
            prop_assert!((least..=greatest).contains(&delay.at(delay.period() * 3 / 2)));
        }
        if let Ok(trace) = parse_csv("fuzz", bytes.as_slice()) {
            prop_assert!(trace.capacity.period() <= MAX_TRACE_DURATION * 2);
        }
    }
}
