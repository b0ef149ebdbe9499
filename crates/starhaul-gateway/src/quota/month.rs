//! Months of quotas in virtual time: random traffic, restarts, kills at any instant, files that cannot be stored, steps of the
//! calendar clock. What a path carried in truth is counted beside the book.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Book, DOUBT, Key, Level, Period, Quota, Scheme,
    account::{AHEAD_S, LEAST_AHEAD},
};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;
/// 2026-10-17 05:00 UTC.
const BEGIN_S: i64 = 1_792_213_200;
const MOST_BYTES_PER_MS: u64 = 2_000;
/// The longest time between two readings of the meter, while the path carries something.
const TICK_MS: u64 = 500;
const SEEDS: u64 = 6;
/// The most that a kill may add.
const MOST_AHEAD: u64 = LEAST_AHEAD + AHEAD_S * 1000 * MOST_BYTES_PER_MS;

/// xorshift64*, so that a seed is a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound.max(1)
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time within the next hours.
    fn within(&mut self, now_ms: u64, hours: u64) -> u64 {
        now_ms + 1 + self.below(hours * HOUR_MS)
    }
}

/// What may happen besides traffic and restarts in order.
#[derive(Clone, Copy, Default)]
struct Trouble {
    kills: bool,
    full_disks: bool,
    steps: bool,
}

struct Month {
    random: Random,
    trouble: Trouble,
    quota: Quota,
    now_ms: u64,
    /// How far the calendar clock is wrong, and until when.
    wrong_s: i64,
    wrong_until_ms: Option<u64>,
    book: Book,
    /// The file on the disk; what is on its way there, since when, and whether it will be stored.
    disk: Vec<u8>,
    writing: Option<(Vec<u8>, u64, bool)>,
    rate: u64,
    /// When the rate changes, the gateway is killed or restarted, and the clock steps next.
    rate_at: u64,
    kill_at: u64,
    restart_at: u64,
    step_at: u64,
    /// What the path carried in each month, in truth.
    carried: BTreeMap<Period, u64>,
    /// The most that the count may be above the truth: what kills added, and what was carried around a turn that a wrong clock hid.
    above: u64,
    /// Bytes of the last hours of the month before.
    late: u64,
    /// When a month turned that no clock was read at.
    unseen_ms: Option<u64>,
    kills: u64,
    turns: u64,
    reached: u64,
}

fn key() -> Key {
    Key {
        peer: "far".to_owned(),
        path: "lte".to_owned(),
    }
}

impl Month {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let mut random = Random(seed | 1);
        let scheme = Scheme {
            begins: 1 + u8::try_from(random.below(28)).unwrap(),
            offset_s: 3600 * (i32::try_from(random.below(25)).unwrap() - 12),
        };
        let monthly = 2_000_000_000 + random.below(30_000_000_000);
        let mut world = Self {
            quota: Quota {
                scheme,
                ..Quota::new(monthly)
            },
            random,
            trouble,
            now_ms: 0,
            wrong_s: 0,
            wrong_until_ms: None,
            book: Book::default(),
            disk: Vec::new(),
            writing: None,
            rate: 0,
            rate_at: 0,
            // How fast the path is shows in the first hours.
            kill_at: 3 * HOUR_MS,
            restart_at: HOUR_MS,
            step_at: 2 * HOUR_MS,
            carried: BTreeMap::new(),
            above: 0,
            late: 0,
            unseen_ms: None,
            kills: 0,
            turns: 0,
            reached: 0,
        };
        world.book.follow(&key(), scheme, world.calendar());
        world
    }

    fn truth_s(&self) -> i64 {
        BEGIN_S + i64::try_from(self.now_ms / 1000).unwrap()
    }

    fn calendar(&self) -> i64 {
        self.truth_s() + self.wrong_s
    }

    fn true_month(&self) -> Period {
        self.quota.scheme.period(self.truth_s())
    }

    fn used(&self) -> u64 {
        self.book.usage(&key()).unwrap().used
    }

    fn is_down(&self) -> bool {
        let usage = self.book.usage(&key()).unwrap();
        self.quota.action(&usage) == Some(self.quota.at_100)
    }

    /// Traffic until the next reading of the meter, which may never come.
    fn step(&mut self) {
        if self.now_ms >= self.rate_at {
            self.rate_at = self.random.within(self.now_ms, 2);
            self.rate = match self.random.below(3) {
                0 => 0,
                _ => self.random.below(MOST_BYTES_PER_MS + 1),
            };
        }
        let down = self.is_down();
        let idle = self.rate == 0 || down;
        let pause = if idle { 600_000 } else { TICK_MS };
        let elapsed = 1 + self.random.below(pause);
        let bytes = if idle { 0 } else { self.rate * elapsed };
        let month = self.true_month();
        *self.carried.entry(month).or_default() += bytes;
        let end_ms = u64::try_from(self.quota.scheme.end(month) - BEGIN_S).unwrap() * 1000;
        if end_ms - self.now_ms < 3 * HOUR_MS {
            self.late += bytes;
        }
        self.book.count(&key(), bytes);
        self.now_ms += elapsed;
        self.store();
        if self.trouble.kills && self.now_ms >= self.kill_at {
            self.kill_at = self.random.within(self.now_ms, 24);
            return self.restart(true);
        }
        if self.now_ms >= self.restart_at {
            self.restart_at = self.random.within(self.now_ms, 72);
            return self.restart(false);
        }
        self.turn_clock();
        let elapsed = Duration::from_millis(elapsed);
        self.book.observe([&key()], elapsed, self.calendar());
        if self.true_month() != month {
            self.turns += 1;
            // Only a wrong clock, or one that was not read at the turn, keeps the last hours in the count.
            self.above = std::mem::take(&mut self.late);
        }
        let reached = self.quota.level(self.used()) == Level::Reached;
        self.reached += u64::from(!down && reached);
        self.check();
    }

    /// A clock goes wrong by an hour or a month for less than an hour.
    fn turn_clock(&mut self) {
        if self
            .wrong_until_ms
            .is_some_and(|until| until <= self.now_ms)
        {
            (self.wrong_s, self.wrong_until_ms) = (0, None);
        }
        let steady = self.wrong_until_ms.is_none();
        if self.trouble.steps && steady && self.now_ms >= self.step_at {
            self.step_at = self.random.within(self.now_ms, 48);
            let steps = [-30 * 86_400, -3600, 3600, 30 * 86_400];
            self.wrong_s = steps[usize::try_from(self.random.below(4)).unwrap()];
            let lasts = self.random.below(45 * 60_000);
            self.wrong_until_ms = Some(self.now_ms + lasts);
        }
    }

    fn store(&mut self) {
        if let Some((file, since, whole)) = self.writing.take() {
            if self.now_ms - since < 500 {
                self.writing = Some((file, since, whole));
            } else if whole {
                self.disk = file;
                self.book.stored(Ok(()));
            } else {
                self.book.stored(Err("no space left".to_owned()));
            }
        }
        if self.writing.is_none()
            && let Some(file) = self.book.poll_store()
        {
            let fails = self.trouble.full_disks && self.random.once_in(50);
            self.writing = Some((file, self.now_ms, !fails));
        }
    }

    fn restart(&mut self, killed: bool) {
        let before = self.used();
        if killed {
            self.kills += 1;
            // What was on its way to the disk may have come there.
            if let Some((file, _, true)) = self.writing.take()
                && self.random.once_in(2)
            {
                self.disk = file;
            }
        } else {
            self.disk = self.book.close();
        }
        self.writing = None;
        let (book, read) = Book::open(
            Some(&self.disk)
                .filter(|disk| !disk.is_empty())
                .map(Vec::as_slice),
        );
        read.unwrap();
        self.book = book;
        let month = self.true_month();
        // A clock that is an hour wrong is noticed by a running gateway alone.
        if self.wrong_s.abs() <= 3600 {
            (self.wrong_s, self.wrong_until_ms) = (0, None);
        }
        // A month must not pass unseen: the count of the month before would hold for an hour of the next.
        let pause = self.random.below(2 * HOUR_MS);
        self.now_ms += pause;
        if self.true_month() != month {
            self.turns += 1;
            self.unseen_ms = Some(self.now_ms);
            self.above = std::mem::take(&mut self.late);
        }
        let scheme = self.quota.scheme;
        self.book.follow(&key(), scheme, self.calendar());
        if self.true_month() == month && self.wrong_s == 0 {
            let added = self.used().saturating_sub(before);
            let most = if killed { MOST_AHEAD } else { 0 };
            assert!(added <= most, "a restart added {added} bytes");
            self.above += added;
        } else if killed {
            self.above += MOST_AHEAD;
        }
        self.check();
    }

    /// Never less than in truth, and never more than by what is known to have been added.
    fn check(&self) {
        let month = self.true_month();
        let carried = self.carried.get(&month).copied().unwrap_or(0);
        let usage = self.book.usage(&key()).unwrap();
        assert!(
            usage.used >= carried,
            "{} of {carried} bytes counted",
            usage.used
        );
        let most = self.quota.monthly + 1000 * MOST_BYTES_PER_MS;
        assert!(carried <= most, "{carried} bytes carried, {most} allowed");
    }

    fn run(&mut self, days: u64) {
        while self.now_ms < days * DAY_MS {
            self.step();
        }
    }

    /// Lets the clock run until it is believed, and compares. After steps the count may be above the truth: a month that a wrong
    /// clock showed within a day before it began has counted since.
    fn settle(&mut self) {
        let stepped = self.trouble.steps;
        (self.wrong_s, self.wrong_until_ms) = (0, None);
        let until = self.now_ms + 2 * HOUR_MS;
        self.trouble = Trouble::default();
        let month = self.true_month();
        while self.now_ms < until {
            self.step();
        }
        if self.true_month() == month && !stepped {
            let carried = self.carried.get(&month).copied().unwrap_or(0);
            let used = self.used();
            assert!(
                used <= carried + self.above,
                "{used} bytes counted of {carried}, {} may have been added",
                self.above
            );
        }
    }
}

/// Runs a world for each seed; a seed that fails is told.
fn runs(trouble: Trouble, days: u64) -> (u64, u64, u64) {
    let (mut kills, mut turns, mut reached) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let tell = TellSeed(seed);
        let mut world = Month::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), trouble);
        world.run(days);
        world.settle();
        kills += world.kills;
        turns += world.turns;
        reached += world.reached;
        drop(tell);
    }
    (kills, turns, reached)
}

struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

#[test]
fn without_kills_and_steps_every_byte_is_counted_and_none_twice() {
    for seed in 1..=4 {
        let _tell = TellSeed(seed);
        let mut world = Month::new(seed * 0x2545_f491_4f6c_dd1d, Trouble::default());
        while world.now_ms < 33 * DAY_MS {
            world.step();
            let month = world.true_month();
            let carried = world.carried.get(&month).copied().unwrap_or(0);
            // After a restart over the turn of a month the former count holds for an hour.
            let unseen = |at| world.now_ms - at < 2 * HOUR_MS;
            if !world.unseen_ms.is_some_and(unseen) {
                assert_eq!(world.used(), carried);
            }
        }
        assert!(world.turns > 0);
    }
}

#[test]
fn a_month_with_kills_and_full_disks_is_never_exceeded() {
    let trouble = Trouble {
        kills: true,
        full_disks: true,
        steps: false,
    };
    let (kills, turns, reached) = runs(trouble, 40);
    assert!(
        kills > 20 * SEEDS && turns >= SEEDS && reached >= SEEDS,
        "{kills} kills, {turns} turns, {reached} times reached"
    );
}

#[test]
fn a_month_with_steps_of_the_clock_is_never_exceeded() {
    let trouble = Trouble {
        kills: true,
        full_disks: true,
        steps: true,
    };
    let (kills, turns, reached) = runs(trouble, 40);
    assert!(
        kills > 20 * SEEDS && turns >= SEEDS && reached >= SEEDS,
        "{kills} kills, {turns} turns, {reached} times reached"
    );
}

#[test]
fn a_clock_that_was_wrong_for_days_loses_no_byte_of_the_true_month() {
    let scheme = Scheme::default();
    let mut book = Book::default();
    let mut now = BEGIN_S;
    book.follow(&key(), scheme, now);
    let mut go = |book: &mut Book, ticks: i64, wrong_s: i64| {
        for _ in 0..ticks {
            now += 10;
            book.count(&key(), 1000);
            book.observe([&key()], Duration::from_secs(10), now + wrong_s);
        }
        book.usage(&key()).unwrap().used
    };
    assert_eq!(go(&mut book, 1800, 0), 1_800_000);
    let month = 31 * 86_400;
    // At first the stricter of both months holds, then the one that the clock shows.
    assert_eq!(go(&mut book, 359, month), 2_159_000);
    assert_eq!(go(&mut book, 3241, month), 3_599_000);
    // Nothing of it is lost to the true month, and the next begins at zero.
    assert_eq!(go(&mut book, 9000, 0), 14_400_000);
    let month_s = scheme.end(scheme.period(BEGIN_S)) - BEGIN_S;
    go(&mut book, month_s / 10 - 14_400, 0);
    let usage = book.usage(&key()).unwrap();
    assert_eq!(
        (usage.month.to_string().as_str(), usage.used),
        ("2026-11-01", 0)
    );
    // A clock before all that is known goes on with the count, and with the right time it is as before.
    assert_eq!(go(&mut book, 10_000, -20 * 365 * 86_400), 10_000_000);
    assert_eq!(go(&mut book, 1000, 0), 11_000_000);
}

#[test]
fn what_cannot_be_counted_is_not_spent() {
    let quota = Quota::new(1_000_000_000);
    let mut book = Book::default();
    book.follow(&key(), quota.scheme, BEGIN_S);
    let file = book.poll_store().unwrap();
    book.stored(Ok(()));
    let standing = |book: &Book| quota.action(&book.usage(&key()).unwrap());
    assert_eq!(standing(&book), None);
    // The disk is full. What is reserved may still be spent.
    book.count(&key(), 700_000);
    assert!(book.poll_store().is_some());
    book.stored(Err("no space left".to_owned()));
    assert_eq!(standing(&book), None);
    book.count(&key(), 200_000);
    assert_eq!(standing(&book), Some(quota.at_100));
    assert!(
        book.usage(&key())
            .unwrap()
            .unsure
            .unwrap()
            .contains("no space left")
    );
    assert_eq!(book.poll_store(), None, "tried again at once");
    book.observe([&key()], Duration::from_secs(6), BEGIN_S + 6);
    let again = book.poll_store().unwrap();
    book.stored(Ok(()));
    assert_eq!(standing(&book), None);

    // Files that are cut off, changed, or of another program.
    for cut in 0..again.len() {
        assert!(Book::open(Some(&again[..cut])).1.is_err(), "cut at {cut}");
    }
    for at in 0..again.len() {
        let mut changed = again.clone();
        changed[at] ^= 1;
        assert!(Book::open(Some(&changed)).1.is_err(), "changed at {at}");
    }
    let (mut book, read) = Book::open(Some(b"something else"));
    assert!(read.is_err());
    book.follow(&key(), quota.scheme, BEGIN_S);
    assert_eq!(standing(&book), Some(quota.at_100));
    // It stays lost over a restart, until it is given.
    let (mut book, read) = Book::open(Some(&book.close()));
    read.unwrap();
    book.follow(&key(), quota.scheme, BEGIN_S);
    assert_eq!(standing(&book), Some(quota.at_100));
    book.set_used(&key(), 800_000_000);
    let usage = book.usage(&key()).unwrap();
    assert_eq!(
        (usage.used, quota.level(usage.used)),
        (800_000_000, Level::Nearly)
    );
    assert!(usage.unsure.is_none());
    let (book, read) = Book::open(Some(&file));
    read.unwrap();
    assert!(book.follows(&key()));
}

#[test]
fn a_store_that_does_not_return_is_one_that_failed() {
    let quota = Quota::new(1_000_000_000);
    let mut book = Book::default();
    book.follow(&key(), quota.scheme, BEGIN_S);
    book.poll_store().unwrap();
    book.stored(Ok(()));
    book.count(&key(), 1_000_000);
    book.poll_store().unwrap();
    book.observe([&key()], Duration::from_secs(9), BEGIN_S + 9);
    assert_eq!(book.usage(&key()).unwrap().unsure, None);
    book.observe([&key()], Duration::from_secs(1), BEGIN_S + 10);
    let usage = book.usage(&key()).unwrap();
    assert_eq!(quota.action(&usage), Some(quota.at_100));
    assert!(usage.unsure.unwrap().contains("does not answer"));
    book.stored(Ok(()));
    assert_eq!(book.usage(&key()).unwrap().unsure, None);
}

#[test]
fn another_day_of_the_bill_keeps_what_was_counted() {
    let mut book = Book::default();
    book.follow(&key(), Scheme::default(), BEGIN_S);
    book.count(&key(), 5_000);
    let other = Scheme {
        begins: 10,
        offset_s: 7200,
    };
    book.follow(&key(), other, BEGIN_S);
    let usage = book.usage(&key()).unwrap();
    assert_eq!(
        (usage.used, usage.month.to_string().as_str()),
        (5_000, "2026-10-10")
    );
    assert!(DOUBT > Duration::ZERO);
}
