use std::{io::Write as _, time::Duration};

use proptest::prelude::*;
use starhaul_needs::trace;

use super::*;
use crate::{DelaySeries, LossSeries, MAX_TRACE_DURATION, Model};

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
        ("0,20,700000,5\n", 2),
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

#[test]
fn the_recorded_uplink_has_its_eight_outages() {
    let (Some(bw), Some(delay)) = (
        trace("leocc-example/bw_example.txt"),
        trace("leocc-example/delay_example.txt"),
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
        let Some(path) = trace(file) else { return };
        let trace = Trace::read_csv(&path).unwrap();
        let mean = trace.capacity.mean_rate().mbit();
        assert!(low < mean && mean < high, "{file}: {mean}");
        assert_eq!(trace.capacity.period(), Duration::from_secs(90));
    }
}

#[test]
fn the_recorded_delays_are_read_whole() {
    for number in [1, 2, 3, 10, 11, 12, 13, 14, 15, 16] {
        let Some(path) = trace(&format!("leocc-delay/delay_{number}.txt")) else {
            return;
        };
        let series = read_delay(&path).unwrap().delay.unwrap();
        assert_eq!(series.period().as_secs_f64().round(), 120.0, "{number}");
        let (least, greatest) = series.range();
        assert!(least >= Duration::from_millis(5), "{number}: {least:?}");
        assert!(
            greatest >= Duration::from_millis(30),
            "{number}: {greatest:?}"
        );
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    out
}

#[test]
fn what_is_written_is_read_again() {
    for (name, model) in Model::ALL {
        for seed in 0..3 {
            let duration = Some(Duration::from_secs(20));
            let trace = model.generate(None, duration, seed).unwrap();
            let (capacity, delay) = (&trace.capacity, trace.delay.as_ref().unwrap());
            let file = written(|out| write_capacity(capacity, out));
            let again = parse_capacity(name, &*file).unwrap();
            // a trace with an empty end has its last opportunity moved there
            assert_eq!(again.period(), capacity.period(), "{name} {seed}");
            let (before, all) = (again.per_period() - 1, capacity.per_period());
            assert_eq!(again.per_period(), all, "{name} {seed}");
            assert!((1..=before).all(|n| again.time_of(n) == capacity.time_of(n)));

            let file = written(|out| write_delay(delay, out));
            assert_eq!(parse_delay(name, &*file).unwrap(), **delay, "{name} {seed}");

            let table = |step| {
                let recording = trace.clone().into();
                let file = written(|out| write_csv(&recording, Duration::from_millis(step), out));
                parse_csv(name, &*file).unwrap()
            };
            assert_eq!(table(1), trace, "{name} {seed}");
            let coarse = table(10).capacity;
            let tens = (0..=2000).map(|n| Duration::from_millis(10) * n);
            assert!(
                tens.clone()
                    .all(|at| coarse.until(at) == capacity.until(at)),
                "{name} {seed}"
            );
        }
    }
}

#[test]
fn what_a_format_cannot_say_is_said_as_near_as_it_can() {
    let ms = Duration::from_millis;
    // no opportunity in the last 30 ms
    let table = "t_s,capacity_mbps\n0,12\n0.01,12\n0.02,0\n0.03,0\n0.04,0\n";
    let capacity = parse_csv("t", table.as_bytes()).unwrap().capacity;
    let again = parse_capacity("t", &*written(|out| write_capacity(&capacity, out))).unwrap();
    assert_eq!((again.period(), again.per_period()), (ms(50), 20));
    assert_eq!([19, 20].map(|n| again.time_of(n)), [19, 50].map(ms));

    // zeros at the start are no measurements
    let zero = DelaySeries::from_steps([(ms(20), ms(0)), (ms(20), Duration::from_micros(2_500))]);
    let lines = written(|out| write_delay(&zero.unwrap(), out));
    assert_eq!(lines, b"0.001\n0.001\n2.5\n2.5\n");

    let delays = Recording::of_delay(parse_delay("d", "5\n".as_bytes()).unwrap());
    let error = write_csv(&delays, ms(1), Vec::new()).unwrap_err();
    assert!(error.to_string().contains("needs a capacity"), "{error}");
}

#[test]
fn seconds_since_1970_give_the_same_table_as_seconds_from_zero() {
    for step_ms in [1_u64, 10, 50] {
        let read = |begin: u64| {
            let row = |number: u64| {
                let ms = number * step_ms;
                let (seconds, rate) = (begin + ms / 1000, if number % 90 < 3 { 0 } else { 40 });
                format!("{seconds}.{:03},{rate},{}\n", ms % 1000, 20 + number % 7)
            };
            let rows: String = (0..4000).map(row).collect();
            let table = format!("t_s,capacity_mbps,owd_ms\n{rows}");
            parse_csv("t", table.as_bytes()).unwrap()
        };
        let trace = read(0);
        assert_eq!(
            trace.capacity.period(),
            Duration::from_millis(4000 * step_ms)
        );
        assert_eq!(read(1_700_000_000), trace, "each {step_ms} ms");
    }
    let beyond = "t_s,capacity_mbps\n1e13,4\n2e13,4\n";
    assert_eq!(line_of(parse_csv("t", beyond.as_bytes()).unwrap_err()), 2);
}

#[test]
fn tables_are_read_as_other_programs_write_them() {
    let plain = "t_s,capacity_mbps,loss_p\n0,10,0.00005\n1,20,0\n";
    let expected = parse_csv("t", plain.as_bytes()).unwrap();
    let other = "\u{feff}t_s,capacity_mbps,loss_p\r\n0,1e1,5e-05\r\n1,2.0E+01,0\r\n\r\n\n";
    assert_eq!(parse_csv("t", other.as_bytes()).unwrap(), expected);
    let name = Path::new("t");
    assert_eq!(Format::detect(name, other.as_bytes()), Format::Csv);
    let delays = "\u{feff}2.5e+01\n2.4e+01\n\n";
    assert_eq!(Format::detect(name, delays.as_bytes()), Format::Delay);
    let delays = parse_delay("d", delays.as_bytes()).unwrap();
    assert_eq!(delays.period(), Duration::from_millis(20));
    assert_eq!(
        parse_capacity("c", &b"1\n5\n\n\n"[..])
            .unwrap()
            .per_period(),
        2
    );
    for bad in [
        "0,10,0\n\n1,20,0\n",
        "0,10,-5e-05\n1,20,0\n",
        "0,10,nan\n1,20,0\n",
    ] {
        let table = format!("t_s,capacity_mbps,loss_p\n{bad}");
        assert!(
            parse_csv("t", table.as_bytes()).is_err(),
            "{bad:?} was read"
        );
    }
    assert_eq!(
        line_of(parse_capacity("c", &b"1\n\n\n5\n"[..]).unwrap_err()),
        2
    );
}

#[test]
fn tables_may_have_loss_and_need_no_delay() {
    let table = "t_s,capacity_mbps,loss_p\n0,12,0.5\n1,12,0\n";
    let trace = parse_csv("t", table.as_bytes()).unwrap();
    assert_eq!(trace.delay, None);
    let loss = trace.loss.unwrap();
    assert_eq!(
        [0, 999, 1000].map(|t| loss.at(Duration::from_millis(t))),
        [0.5, 0.5, 0.0]
    );
    assert_eq!(LossSeries::mean(&loss), 0.25);
    let impossible = "t_s,capacity_mbps,loss_p\n0,12,1.5\n1,12,0\n";
    assert_eq!(
        line_of(parse_csv("t", impossible.as_bytes()).unwrap_err()),
        2
    );
}

#[test]
fn path_logs_of_leoem_are_read() {
    let line = |t: u32, total: &str| format!("{t}$[-1, 5, -2]$3$[0.001, 0.002]${total}\n");
    let log = line(7, "0.021") + &line(8, "0.0215") + &line(10, "0.03");
    let recording = parse_leoem("log", log.as_bytes()).unwrap();
    let (delay, loss) = (recording.delay.unwrap(), recording.loss);
    assert_eq!(loss, None);
    let at = |ms| delay.at(Duration::from_millis(ms)).as_micros();
    // seconds count from the first line, and the last one holds as long as the one before
    assert_eq!(
        [0, 999, 1000, 2999, 3000, 4999, 5000].map(at),
        [21_000, 21_000, 21_500, 21_500, 30_000, 30_000, 21_000]
    );
    for (bad, number) in [
        (line(1, "0.02") + "2$[]$3$0.02\n", 2),
        (line(1, "0.02") + &line(1, "0.02"), 2),
        (line(1, "nan"), 1),
        (line(1, "700"), 1),
        ("x$[]$3$[]$0.02\n".to_owned(), 1),
        ("1$5$3$[]$0.02\n".to_owned(), 1),
        ("1$[]$three$[]$0.02\n".to_owned(), 1),
        (line(1, "0.02") + &line(9_000, "0.02"), 2),
    ] {
        assert_eq!(
            line_of(parse_leoem("log", bad.as_bytes()).unwrap_err()),
            number,
            "{bad}"
        );
    }
    assert!(parse_leoem("log", &b""[..]).is_err());
    assert!(parse_leoem("log", &b"1$NULL\n"[..]).is_err());

    let log = "7$NULL\n".to_owned() + &line(8, "0.02") + "9$NULL\n" + &line(10, "0.03");
    let broken = parse_leoem("log", log.as_bytes()).unwrap();
    let (delay, loss) = (broken.delay.unwrap(), broken.loss.unwrap());
    let second = Duration::from_secs(1);
    let at = [0, 1, 2, 3].map(|t| (delay.at(second * t).as_millis(), loss.at(second * t)));
    assert_eq!(at, [(20, 1.0), (20, 0.0), (20, 1.0), (30, 0.0)]);
}

/// A path of `starhaul orbit` without a capacity said that a line of it was too long, or that a column was missing.
#[test]
fn paths_that_are_no_traces_are_told_with_what_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let json = format!("{{\"start\":\"{}\"}}\n", "x".repeat(5000));
    let table = "t_s,owd_ms,loss_p,links,changed,path\n0.000,5,0,2,0,\"a > b\"\n";
    for (name, content) in [("path.json", json.as_str()), ("path.csv", table)] {
        let file = folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        let said = Recording::read(&file, None).unwrap_err().to_string();
        assert!(said.contains("--rate"), "{said}");
        assert!(said.contains(".log or .txt"), "{said}");
    }
    let said = read_delay(&folder.path().join("path.json")).unwrap_err();
    assert!(said.to_string().contains("is JSON"), "{said}");
}

#[test]
fn formats_are_recognized_by_what_is_in_the_file() {
    for (name, content, format) in [
        ("a.txt", "1\n1\n5\n", Format::Mahimahi),
        ("a.txt", "12\n12.5\n", Format::Delay),
        ("a.txt", "12\n11\n", Format::Delay),
        // cut within a number that would be less than the one before
        ("a.txt", "12\n13\n1", Format::Mahimahi),
        ("delay_1.txt", "12\n12\n", Format::Delay),
        ("a", "t_s,owd_ms,capacity_mbps\n", Format::Csv),
        ("a", "1$[]$0$[]$0.1\n", Format::Leoem),
        ("a", "no trace at all\n", Format::Mahimahi),
        ("a", "", Format::Mahimahi),
    ] {
        let detected = Format::detect(Path::new(name), content.as_bytes());
        assert_eq!(detected, format, "{name}: {content:?}");
    }
    let error = "cvs".parse::<Format>().unwrap_err().to_string();
    assert!(error.contains("did you mean \"csv\"?"), "{error}");
}

#[test]
fn packed_files_are_unpacked_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bw.gz");
    let pack = |content: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(content).unwrap();
        out.finish().unwrap()
    };
    std::fs::write(&file, pack(b"1\n2\n2\n")).unwrap();
    let (recording, format) = Recording::read(&file, None).unwrap();
    assert_eq!(
        (recording.capacity.unwrap().per_period(), format),
        (3, Format::Mahimahi)
    );
    // a bad line is counted in the text, a damaged archive has an error of its own
    std::fs::write(&file, pack(b"1\nx\n")).unwrap();
    assert_eq!(
        line_of(Recording::read(&file, Some(Format::Mahimahi)).unwrap_err()),
        2
    );
    let whole = pack(&b"1\n".repeat(10_000));
    std::fs::write(&file, &whole[..whole.len() - 6]).unwrap();
    let error = Recording::read(&file, None).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
}

#[test]
fn recorded_path_logs_are_read_whole() {
    for (file, least, greatest) in [
        ("leoem/Starlink_SD_NY_15_BP_path.log.gz", 15, 60),
        ("leoem/Starlink_NY_LDN_15_ISL_path.log.gz", 15, 110),
    ] {
        let Some(path) = trace(file) else { return };
        let (recording, format) = Recording::read(&path, None).unwrap();
        assert_eq!(format, Format::Leoem);
        let (low, high) = recording.delay.as_ref().unwrap().range();
        let ms = Duration::from_millis;
        assert!(
            low >= ms(least) && high <= ms(greatest),
            "{file}: {low:?} to {high:?}"
        );
        assert!(recording.period() >= Duration::from_secs(5_700), "{file}");
    }
}

/// Almost valid lines, which arbitrary bytes hardly ever are.
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
        let _ = parse_leoem("fuzz", bytes.as_slice());
        if let Ok(trace) = parse_csv("fuzz", bytes.as_slice()) {
            prop_assert!(trace.capacity.period() <= MAX_TRACE_DURATION * 2);
        }
    }
}
