use std::collections::BTreeSet;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

use super::*;

const LOSS: f64 = 0.05;
/// Bytes of data in a segment, and of UDP and IP beside it.
const SEGMENT: usize = 1360;
const OVERHEAD: usize = 28;

fn without_return(red: u64, loss: f64) -> Layout {
    Layout::without_return(red, SEGMENT, Coding::new(loss), OVERHEAD)
}

fn codes(layout: &Layout) -> Vec<Code> {
    let (mut codes, mut at) = (Vec::new(), 0);
    while at < layout.red {
        let code = layout.code_at(at);
        assert_eq!((code.start, code), (at, layout.code_at(code.end - 1)));
        at = code.end;
        codes.push(code);
    }
    codes
}

/// The probability of each number of lost symbols of all that a code has, one symbol after the other.
fn lost(code: Code, loss: f64) -> Vec<f64> {
    let sent = usize::from(code.symbols) + usize::from(code.repairs);
    let mut lost = vec![0.0; sent + 1];
    lost[0] = 1.0;
    for _ in 0..sent {
        for count in (1..=sent).rev() {
            lost[count] = lost[count] * (1.0 - loss) + lost[count - 1] * loss;
        }
        lost[0] *= 1.0 - loss;
    }
    lost
}

/// The probability that a code is not recovered by its own repair symbols.
fn fails(lost: &[f64], code: Code) -> f64 {
    lost[usize::from(code.repairs) + 1..].iter().sum()
}

/// The same of each code of a layout, of which many are alike.
fn failures_of(layout: &Layout, loss: f64) -> f64 {
    let mut known: Vec<((u8, u8), f64)> = Vec::new();
    let all = codes(layout).into_iter().map(|code| {
        let counts = (code.symbols, code.repairs);
        let found = known.iter().find(|(known, _)| *known == counts);
        found.map(|(_, fails)| *fails).unwrap_or_else(|| {
            let fails = fails(&lost(code, loss), code);
            known.push((counts, fails));
            fails
        })
    });
    all.sum()
}

/// With all headers of LTP. Shorter ones take more: with losses one by one, they must.
#[test]
fn red_parts_from_150_kb_on_take_less_than_15_percent_more_and_fail_once_in_2000_times() {
    let lengths = [
        20_000,
        50_000,
        100_000,
        150_000,
        200_000,
        300_000,
        400_000,
        500_000,
        1_000_000,
        2_000_000,
        4_000_000,
        10_000_000,
        16 << 20,
        100_000_000,
        1_000_000_000,
    ];
    for red in lengths {
        let layout = without_return(red, LOSS);
        let more = layout.bytes(0) - red;
        println!(
            "{red} bytes: {:.1} % more",
            100.0 * more as f64 / red as f64
        );
        let is_short = red < 150_000;
        assert!(
            is_short || more * 100 <= red * 15,
            "{more} bytes for {red}: {layout:?}"
        );
        let failures = failures_of(&layout, LOSS);
        let allowed = match layout.extra.parities {
            0 => Coding::new(LOSS).failure,
            _ => MOST_FAILURES,
        };
        assert!(failures <= allowed, "{failures} of {red}: {layout:?}");
    }
    // Of six blocks of a file each fails a sixth as often.
    let coding = Coding {
        failure: Coding::new(LOSS).failure / 6.0,
        ..Coding::new(LOSS)
    };
    let red = 16 << 20;
    let layout = Layout::without_return(red, SEGMENT, coding, OVERHEAD);
    assert!((layout.bytes(0) - red) * 100 <= red * 15, "{layout:?}");
}

#[test]
fn short_red_parts_have_short_symbols_where_that_takes_fewer_bytes() {
    for (red, percent) in [(10_000, 32), (20_000, 27), (50_000, 21), (100_000, 17)] {
        let layout = without_return(red, LOSS);
        let usual = Layout::usual(red, SEGMENT, Coding::new(LOSS));
        assert!(layout.bytes(OVERHEAD) < usual.bytes(OVERHEAD), "{red}");
        let more = layout.bytes(0) - red;
        assert!(more * 100 <= red * percent, "{more} bytes for {red}");
        assert!(failures_of(&layout, LOSS) <= Coding::new(LOSS).failure);
    }
}

#[test]
fn what_can_be_sent_again_is_coded_as_ever() {
    let usual = |red| Layout::usual(red, SEGMENT, Coding::new(LOSS));
    let counts = |red| -> Vec<(u8, u8)> {
        let codes = codes(&usual(red)).into_iter();
        codes.map(|code| (code.symbols, code.repairs)).collect()
    };
    assert_eq!(counts(1), [(1, 2)]);
    assert_eq!(counts(150_000), [(111, 16)]);
    assert_eq!(counts(300_000), [(111, 16), (110, 16)]);
    assert_eq!(usual(100_000_000).columns().count(), 0);
}

#[test]
fn any_red_part_at_any_loss_is_covered_by_codes_that_there_are() {
    for red in [1, 5, 1360, 1361, 99_999, 1_234_567, 5_000_000] {
        for loss in [
            0.0,
            0.001,
            0.1,
            0.2,
            0.3,
            0.5,
            0.9,
            1.0,
            f64::NAN,
            -1.0,
            7.0,
        ] {
            for symbol in [1, 100, SEGMENT] {
                if red / symbol as u64 > 100_000 {
                    continue;
                }
                let coding = Coding::new(loss);
                let layout = Layout::without_return(red, symbol, coding, OVERHEAD);
                assert!((1..=symbol).contains(&layout.symbol), "{layout:?}");
                let codes = codes(&layout);
                assert_eq!(codes.last().map(|code| code.end), Some(red));
                for code in codes {
                    let all = u32::from(code.symbols) + u32::from(code.repairs);
                    assert!(code.symbols > 0 && all <= 255, "{code:?} of {layout:?}");
                }
                let columns: BTreeSet<u8> = layout.columns().collect();
                assert_eq!(columns.len(), usize::from(layout.extra.parities));
                assert!(columns.iter().all(|column| *column < layout.per_code()));
                if loss == 0.0 {
                    assert_eq!(layout.bytes(0), red + layout.cut.symbols * 15);
                }
            }
        }
    }
}

/// Losses of red parts of 100 MB are drawn. Some have a code that fails, and nearly all of these are helped.
#[test]
fn parities_help_the_codes_that_fail() {
    const SEED: u64 = 7;
    const TIMES: u32 = 20_000;
    let layout = without_return(100_000_000, LOSS);
    let columns: Vec<u8> = layout.columns().collect();
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut uniform = || f64::from(random.next_u32()) / 2_f64.powi(32);
    let codes: Vec<(Code, Vec<f64>, f64)> = codes(&layout)
        .into_iter()
        .map(|code| {
            let lost = lost(code, LOSS);
            let fails = fails(&lost, code);
            (code, lost, fails)
        })
        .collect();
    let (mut failed, mut unsolved) = (0_u32, 0_u32);
    for _ in 0..TIMES {
        let mut failing = Vec::new();
        for (code, lost, fails) in &codes {
            let drawn = uniform();
            if drawn < *fails {
                failing.push(lacking(*code, lost, drawn, &mut uniform));
            }
        }
        if failing.is_empty() {
            continue;
        }
        failed += 1;
        let arrived: Vec<u8> = columns
            .iter()
            .copied()
            .filter(|_| uniform() >= LOSS)
            .collect();
        unsolved += u32::from(!is_solved(failing, &arrived));
    }
    assert!(failed > TIMES / 200, "{failed}, seed {SEED}");
    let most = f64::from(TIMES) * Coding::new(LOSS).failure;
    assert!(f64::from(unsolved) <= most, "{unsolved}, seed {SEED}");
}

/// The data symbols that a code lacks which fails, and how many repair symbols of it arrive.
fn lacking(
    code: Code,
    lost: &[f64],
    drawn: f64,
    uniform: &mut impl FnMut() -> f64,
) -> (BTreeSet<u8>, usize) {
    let repairs = usize::from(code.repairs);
    let (mut count, mut rest) = (repairs + 1, drawn);
    while count + 1 < lost.len() && rest >= lost[count] {
        rest -= lost[count];
        count += 1;
    }
    let mut sent: Vec<u8> = (0..code.symbols + code.repairs).collect();
    let mut missing = BTreeSet::new();
    for _ in 0..count {
        let at = usize::try_from(whole(uniform() * sent.len() as f64)).unwrap();
        missing.insert(sent.swap_remove(at));
    }
    let gone = missing.split_off(&code.symbols).len();
    (missing, repairs - gone)
}

/// Whether codes get what they lack from parities of whose symbols only theirs is missing, and then from their repair symbols.
fn is_solved(mut failing: Vec<(BTreeSet<u8>, usize)>, arrived: &[u8]) -> bool {
    loop {
        let alone = arrived.iter().find_map(|column| {
            let mut lacks = (0..failing.len()).filter(|at| failing[*at].0.contains(column));
            let first = lacks.next()?;
            lacks.next().is_none().then_some((first, *column))
        });
        let Some((at, column)) = alone else {
            return failing.is_empty();
        };
        failing[at].0.remove(&column);
        if failing[at].0.len() <= failing[at].1 {
            failing.remove(at);
        }
    }
}
