use hardy_bpv7::eid::Eid;
use proptest::prelude::*;
use starhaul_units::Bandwidth;

use super::*;
use crate::plan::{
    route::{Query, earliest_over},
    trials::{self, node, second},
};

/// An endpoint of a node.
fn endpoint(number: u32) -> Eid {
    format!("ipn:{number}.5").parse().unwrap()
}

fn contact(from: u32, to: u32, seconds: std::ops::Range<u64>, rate: Bandwidth) -> Contact {
    Contact {
        from: node(from),
        to: node(to),
        start: second(seconds.start),
        end: second(seconds.end),
        rate,
        light_time: Duration::ZERO,
    }
}

#[test]
fn a_neighbour_that_does_not_answer_is_left_out_while_there_is_another_way() {
    let rate = Bandwidth::from_mbit(1);
    // To 4 over 2, later over 3; to 5 over 2 alone.
    let plan = vec![
        contact(1, 2, 0..1000, rate),
        contact(2, 4, 0..1000, rate),
        contact(2, 5, 0..1000, rate),
        contact(1, 3, 0..1000, rate),
        contact(3, 4, 200..1000, rate),
    ];
    let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
    let via = |to: u32, now: Moment| {
        let routes = schedule.routes(now);
        routes[&node(to)].first(schedule.plan()).unwrap().to.clone()
    };
    let now = second(1);
    assert_eq!((via(4, now), via(5, now)), (node(2), node(2)));
    schedule.failed(&node(2), now);
    // A stranger takes no memory.
    schedule.failed(&node(9), now);
    assert_eq!((via(4, now), via(5, now)), (node(3), node(2)));
    let later = schedule.next_attempt(now).unwrap();
    assert_eq!(via(4, later), node(2));
    assert_eq!(schedule.next_attempt(later), None);
    schedule.failed(&node(2), later);
    assert_eq!(via(4, later), node(3));
    assert!(schedule.worked(&node(2), later));
    assert_eq!(via(4, later), node(2));
}

/// There is no other way, and the pass is not to be lost.
#[test]
fn a_later_contact_with_a_silent_neighbour_is_not_waited_for() {
    let rate = Bandwidth::from_mbit(1);
    let passes = [0..600, 5400..6000].map(|seconds| contact(1, 2, seconds, rate));
    let schedule = Schedule::new(node(1), ContactPlan::new(passes.to_vec()), Vec::new());
    let now = second(1);
    schedule.failed(&node(2), now);
    let hops = schedule.look(now);
    assert_eq!(hops.get(&node(2)), Some(&node(2)));
    assert!(schedule.is_shown(&node(2), now));
    assert!(!schedule.is_shown(&node(2), second(601)));
}

#[test]
fn a_neighbour_of_a_configured_route_is_shown_whatever_arrives_first() {
    let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
    let plan = vec![
        contact(1, 2, 0..1000, slow),
        contact(1, 3, 0..1000, fast),
        contact(3, 2, 0..1000, fast),
    ];
    for via in [None, Some(node(2))] {
        let route = via.clone().map(|via| ("ipn:9.*".parse().unwrap(), via));
        let schedule =
            Schedule::new(node(1), ContactPlan::new(plan.clone()), Vec::new()).with_routes(route);
        let now = second(1);
        assert_eq!(schedule.look(now)[&node(2)], node(3));
        assert_eq!(schedule.is_shown(&node(2), now), via.is_some());
        assert!(!schedule.is_shown(&node(2), second(1001)));
    }
}

#[test]
fn a_neighbour_is_shown_while_what_goes_there_arrives_first() {
    let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
    let plan = vec![
        contact(1, 2, 0..1000, slow),
        contact(1, 3, 0..500, fast),
        contact(3, 2, 0..500, fast),
    ];
    // Over 4, which is always there, 5 is reached.
    let plan = ContactPlan::new([plan, vec![contact(4, 5, 0..1000, slow)]].concat());
    let always = Contact {
        end: Moment::MAX,
        ..contact(1, 4, 0..1, fast)
    };
    let schedule = Schedule::new(node(1), plan, vec![always]);
    let shown = |now: Moment| {
        schedule.look(now);
        let all = [2, 3, 4, 6].into_iter();
        let shown = all.filter(|number| schedule.is_shown(&node(*number), now));
        shown.collect::<Vec<_>>()
    };
    let now = second(1);
    // 6 is a stranger.
    assert_eq!(shown(now), [3, 4, 6]);
    let hops = schedule.look(now);
    assert_eq!((&hops[&node(2)], &hops[&node(5)]), (&node(3), &node(4)));
    assert!(!schedule.is_due(&node(2), now));
    schedule.failed(&node(3), now);
    assert_eq!(shown(now), [2, 3, 4, 6]);
    assert!(schedule.is_due(&node(3), now));
    assert_eq!(shown(second(600)), [2, 4, 6]);
    assert_eq!(schedule.next_change(second(1000)), None);
}

/// Small bundles go where the light takes less, large ones where the rate is higher.
#[test]
fn bundles_go_where_those_of_their_size_arrive_first() {
    let (slow, fast) = (
        Bandwidth::from_bits_per_second(9600),
        Bandwidth::from_mbit(100),
    );
    let far = |from, to| Contact {
        light_time: Duration::from_secs(2),
        ..contact(from, to, 0..3600, fast)
    };
    let plan = vec![
        contact(1, 2, 0..3600, slow),
        contact(2, 4, 0..3600, slow),
        far(1, 3),
        far(3, 4),
    ];
    let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
    let now = second(1);
    assert_eq!(schedule.look(now)[&node(4)], node(2));
    let way = |bytes: u64| schedule.way(&endpoint(4), bytes, now);
    for (bytes, hop) in [(100, 2), (1024, 2), (3000, 3), (1_000_000, 3)] {
        assert_eq!(way(bytes), Way::Over(node(hop)), "{bytes}");
    }
    assert_eq!(way(1 << 40), Way::Never);
    assert_eq!(schedule.way(&endpoint(9), 100, now), Way::Any);
    // Large ones have asked.
    schedule.look(now);
    assert!(
        [2, 3]
            .into_iter()
            .all(|hop| schedule.is_shown(&node(hop), now))
    );
    schedule.failed(&node(3), now);
    assert_eq!(way(1_000_000), Way::Over(node(2)));
    // The agent asks for them where small ones wait, too, when one has come.
    let later = vec![
        far(1, 3),
        far(3, 4),
        contact(1, 2, 2..5, fast),
        contact(2, 4, 2..5, fast),
    ];
    let schedule = Schedule::new(node(1), ContactPlan::new(later), Vec::new());
    let way = |bytes: u64| schedule.way(&endpoint(4), bytes, now);
    assert_eq!(way(1024), Way::Later);
    assert_eq!(way(60_000_000), Way::Over(node(3)));
    let schedule = Schedule::new(node(1), schedule.plan().clone(), Vec::new());
    assert_eq!(schedule.look(now).get(&node(4)), None);
    schedule.meet(1000, now);
    assert_eq!(schedule.look(now).get(&node(4)), None);
    schedule.meet(60_000_000, now);
    assert_eq!(schedule.look(now)[&node(4)], node(3));
    assert!(schedule.is_shown(&node(3), now));
}

/// Where there are bundles of very many sizes.
#[test]
fn a_size_that_just_fits_leaves_although_larger_ones_wait() {
    // Of 1000 bytes in a second.
    let rate = Bandwidth::from_kbit(8);
    let passes = [0..1000, 2000..4000].map(|seconds| contact(1, 2, seconds, rate));
    let now = second(0);
    for (passes, larger) in [(&passes[..1], Way::Never), (&passes[..], Way::Later)] {
        let plan = ContactPlan::new(passes.to_vec());
        let schedule = Schedule::new(node(1), plan, Vec::new());
        let way = |bytes: u64| schedule.way(&endpoint(2), bytes, now);
        for bytes in 1..100 {
            assert_eq!(way(bytes), Way::Over(node(2)), "{bytes}");
        }
        assert!(schedule.table().is_full());
        // The next size that is told apart has 1 048 576 bytes.
        let searches = schedule.table().searches;
        for _ in 0..2 {
            assert_eq!(way(999_000), Way::Over(node(2)));
            assert_eq!(way(1_001_000), larger);
        }
        assert_eq!(schedule.table().searches - searches, 1);
        assert_eq!(way(3_000_000), Way::Never);
        assert_eq!(schedule.way(&endpoint(9), 999_000, now), Way::Any);
        assert!(schedule.look(now).contains_key(&node(2)));
        assert!(schedule.is_shown(&node(2), now));
    }
}

/// Each time the agent hears that one has gone, it takes back all that waits for it.
#[test]
fn a_neighbour_is_shown_for_a_while_after_bookings_have_led_over_it() {
    let (slow, fast) = (Bandwidth::from_kbit(8), Bandwidth::from_kbit(80));
    let plan = vec![
        contact(1, 2, 0..1000, slow),
        contact(1, 3, 0..1000, fast),
        contact(3, 2, 0..1000, fast),
    ];
    let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
    let shown = |at: u64| {
        schedule.look(second(at));
        let shown = [2, 3].into_iter();
        let shown = shown.filter(|number| schedule.is_shown(&node(*number), second(at)));
        shown.collect::<Vec<_>>()
    };
    // It takes 5 s to leave.
    let book = |at| schedule.book(&node(3), second(at), 50_000).unwrap();
    assert_eq!(shown(1), [3]);
    book(1);
    for (at, wanted) in [(3, &[2, 3][..]), (20, &[2, 3][..]), (100, &[3][..])] {
        assert_eq!(shown(at), wanted, "{at}");
    }
    // What waits for one that does not answer is taken back at once.
    book(100);
    assert_eq!(shown(102), [2, 3]);
    schedule.failed(&node(2), second(103));
    assert_eq!(shown(103), [3]);
}

/// The agent does not come to it while it has a route of the plan.
#[test]
fn a_bundle_takes_the_configured_route_where_the_plan_has_none_for_its_size() {
    let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
    let plan = vec![
        contact(1, 2, 0..1000, slow),
        contact(2, 4, 0..1000, slow),
        contact(1, 3, 500..1000, fast),
        contact(3, 4, 500..1000, fast),
    ];
    for (via, large, larger) in [
        (None, Way::Later, Way::Never),
        (Some(7), Way::Over(node(7)), Way::Over(node(7))),
        // By way of the plan.
        (Some(2), Way::Over(node(2)), Way::Over(node(2))),
    ] {
        let route = via.map(|via| ("ipn:4.*".parse().unwrap(), node(via)));
        let schedule = Schedule::new(node(1), ContactPlan::new(plan.clone()), Vec::new());
        let schedule = schedule.with_routes(route);
        let way = |bytes: u64| schedule.way(&endpoint(4), bytes, second(1));
        assert_eq!(way(100), Way::Over(node(2)), "{via:?}");
        assert_eq!(way(100_000), large, "{via:?}");
        assert_eq!(way(100_000_000_000), larger, "{via:?}");
    }
}

/// Both neighbours are always there, and no contact begins or ends here.
#[test]
fn routes_follow_contacts_between_other_nodes() {
    let rate = Bandwidth::from_mbit(1);
    let far = Contact {
        light_time: Duration::from_secs(1),
        ..contact(3, 4, 0..7200, rate)
    };
    let plan = vec![
        contact(2, 4, 0..20, rate),
        contact(2, 4, 3600..3620, rate),
        far,
    ];
    let always = [2, 3].map(|to| Contact {
        end: Moment::MAX,
        ..contact(1, to, 0..1, Bandwidth::MAX)
    });
    let schedule = Schedule::new(node(1), ContactPlan::new(plan), always.to_vec());
    let (mut now, mut found) = (second(0), Vec::new());
    while now < second(7000) {
        let hop = schedule.look(now)[&node(4)].clone();
        if found.last().is_none_or(|(_, last)| *last != hop) {
            found.push((now, hop));
        }
        now = schedule.next_look(now).unwrap();
    }
    // 1 KiB takes 8.192 ms to leave. Over 3 it arrives a second and that later; over 2 that later than the contact begins.
    let at = |milliseconds: u64, nanoseconds: u64| {
        Moment(Duration::from_millis(milliseconds) + Duration::from_nanos(nanoseconds))
    };
    let wanted = [
        (second(0), node(2)),
        (at(19_991, 808_001), node(3)),
        (at(3_599_000, 1), node(2)),
        (at(3_619_991, 808_001), node(3)),
    ];
    assert_eq!(found, wanted);
    assert!(schedule.table().searches < 40);
}

/// Whether a bundle of so many bytes arrives first on this way, by a search of its own.
fn is_best(schedule: &Schedule, way: &Way, to: u32, bytes: u64, now: Moment) -> bool {
    let own = node(1);
    let query = Query {
        from: &own,
        now,
        bytes,
        expiry: Moment::MAX,
    };
    let best = |may_be_first: &dyn Fn(&Contact) -> bool| {
        let may_be_used = |contact: &Contact| contact.from != own || may_be_first(contact);
        let found = earliest_over(schedule.plan(), query, &Bookings::default(), may_be_used);
        found.routes.get(&node(to)).map(|route| route.arrival)
    };
    let all = best(&|_| true);
    match way {
        Way::Over(hop) => {
            all.is_some() && all == best(&|contact| contact.to == *hop && contact.is_open(now))
        }
        Way::Later => all.is_some() && all == best(&|contact| !contact.is_open(now)),
        Way::Never | Way::Any => all.is_none(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Of all ways through plans of ten nodes.
    #[test]
    fn each_size_takes_the_neighbour_over_which_it_arrives_first(
        contacts in prop::collection::vec(trials::contact(), 0..24),
        times in prop::collection::vec(0u64..200_000, 2),
        sizes in prop::collection::vec(1u64..60_000, 3),
    ) {
        let schedule = Schedule::new(node(1), ContactPlan::new(contacts), Vec::new());
        let (own, mut times) = (node(1), times);
        times.sort_unstable();
        for time in times {
            let now = Moment(Duration::from_millis(time));
            schedule.look(now);
            for bytes in sizes.iter().copied() {
                let query = Query { from: &own, now, bytes, expiry: Moment::MAX };
                let arrivals = trials::arrivals_over(schedule.plan(), &query);
                for number in 2..=10 {
                    let to = &node(number);
                    let ways = || arrivals.iter().filter(move |((at, _), _)| at == to);
                    let best = ways().map(|(_, arrival)| *arrival).min();
                    let is_best = |may_be_first: &dyn Fn(&Contact) -> bool| {
                        let mut best = ways().filter(|(_, arrival)| Some(**arrival) == best);
                        best.any(|((_, first), _)| may_be_first(&schedule.plan().contacts()[*first]))
                    };
                    let way = schedule.way(&endpoint(number), bytes, now);
                    let is_right = match &way {
                        Way::Over(hop) => is_best(&|contact| contact.to == *hop && contact.is_open(now)),
                        Way::Later => is_best(&|contact| !contact.is_open(now)),
                        Way::Never | Way::Any => best.is_none(),
                    };
                    prop_assert!(is_right, "{:?} for {} bytes to {} at {:?}", way, bytes, to, now);
                    if let Way::Over(hop) = way {
                        // The agent gives it to some neighbour.
                        prop_assert!(schedule.look(now).contains_key(to), "{}", to);
                        // Where it fits in, a small one does.
                        prop_assert!(bytes < SMALL || schedule.is_shown(&hop, now), "{}", hop);
                    }
                }
            }
        }
    }

    /// Whenever a bundle leaves, and when nothing has asked since the last look.
    #[test]
    fn routes_are_those_of_a_new_search_at_any_time(
        contacts in prop::collection::vec(trials::contact(), 0..40),
        start in 0u64..100_000,
        sizes in prop::collection::vec(1u64..60_000, 2),
        parts in prop::collection::vec(0.0f64..1.0, 3),
    ) {
        let schedule = Schedule::new(node(1), ContactPlan::new(contacts), Vec::new());
        let mut now = Moment(Duration::from_millis(start));
        for part in parts {
            schedule.look(now);
            let bundles = sizes.iter().flat_map(|bytes| (2..=10).map(move |to| (*bytes, to)));
            let bundles: Vec<(u64, u32)> = bundles.collect();
            let way = |(bytes, to): (u64, u32), at| schedule.way(&endpoint(to), bytes, at);
            let ways: Vec<Way> = bundles.iter().map(|bundle| way(*bundle, now)).collect();
            let Some(next) = schedule.next_look(now) else {
                break;
            };
            prop_assert!(next > now);
            let last = next.before(Duration::from_nanos(1));
            let at = now.plus(next.since(now).mul_f64(part)).min(last);
            for ((bytes, to), former) in bundles.iter().copied().zip(&ways) {
                prop_assert!(is_best(&schedule, former, to, bytes, at), "{:?} of {:?}: {} bytes to {} at {:?}", former, now, bytes, to, at);
            }
            // Between two looks, and after the next one was missed.
            for at in [at, next.plus(Duration::from_millis(700))] {
                for (bytes, to) in bundles.iter().copied() {
                    let found = way((bytes, to), at);
                    prop_assert!(is_best(&schedule, &found, to, bytes, at), "{:?}: {} bytes to {} at {:?}", found, bytes, to, at);
                }
                now = at;
            }
        }
    }
}

/// Ten thousand contacts of a day: thousands of bundles leave, and few searches are made.
#[test]
fn a_large_plan_is_searched_once_for_each_size_and_not_again_at_once() {
    let rate = Bandwidth::from_mbit(1);
    let pass = |number: u32, from: u32, to: u32| {
        let start = u64::from(number) * 43;
        contact(from, to, start..start + 60, rate)
    };
    let legs = [(1, 2), (2, 3), (3, 4), (1, 5), (5, 4)];
    let passes = (0..2000).flat_map(|number| legs.map(|(from, to)| pass(number, from, to)));
    let schedule = Schedule::new(node(1), ContactPlan::new(passes.collect()), Vec::new());
    let mut now = second(1000);
    schedule.look(now);
    let searches = || schedule.table().searches;
    let before = searches();
    for _ in 0..1000 {
        for bytes in [1000, 10_000, 100_000] {
            assert_eq!(schedule.way(&endpoint(4), bytes, now), Way::Over(node(5)));
        }
    }
    assert_eq!(searches() - before, 3);
    let (until, before) = (second(1020), searches());
    while now < until {
        now = schedule.next_look(now).unwrap();
        schedule.look(now);
    }
    // Those of a size at most every 0.9 s for each size, and for the agent there are two more.
    assert!(searches() - before <= 5 * 6);
}

#[test]
fn a_bundle_is_booked_over_the_open_contact_over_which_it_arrives_first() {
    let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
    let plan = vec![contact(1, 2, 0..86_400, slow), contact(1, 2, 0..600, fast)];
    let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
    let rate = |at: u64, bytes: u64| {
        let booking = schedule.book(&node(2), second(at), bytes)?;
        Some(schedule.plan().contacts()[booking.place?].rate)
    };
    assert_eq!(rate(0, 1000), Some(fast));
    // 8 s for each: after 74 the rest of the fast one is too short, and for the slow one each is too much.
    let large = (0..100).take_while(|_| rate(1, 100_000_000) == Some(fast));
    assert_eq!(large.count(), 74);
    assert_eq!(rate(1, 100_000_000), None);
    // What does not fit into the fast one any more goes over the slow one.
    assert_eq!(rate(595, 60_000_000), Some(fast));
    assert_eq!(rate(595, 3_000_000), Some(slow));
    assert!(schedule.is_open(&node(2), second(700)));
    assert!(!schedule.is_open(&node(2), second(86_399)));
}

/// A link that is always there beside passes of years: each bundle looks for the open ones.
#[test]
fn a_long_contact_does_not_make_the_search_for_open_ones_slow() {
    const PASSES: u64 = 10_000;
    let rate = Bandwidth::from_mbit(1);
    let passes = (0..PASSES).map(|pass| contact(1, 2, pass * 100..pass * 100 + 10, rate));
    let long = contact(1, 2, 0..PASSES * 100, rate);
    let plan = ContactPlan::new(passes.chain([long]).collect());
    let schedule = Schedule::new(node(1), plan, Vec::new());
    let ways = &schedule.neighbours[&node(2)];
    for (at, open) in [
        (5, 2),
        (50, 1),
        (PASSES * 100 - 95, 2),
        (PASSES * 100 - 5, 1),
        (PASSES * 100, 0),
    ] {
        let now = second(at);
        let mut begun = ways.begun(now);
        let found: BTreeSet<usize> = begun.by_ref().collect();
        let wanted = schedule.plan().contacts().iter().enumerate();
        let wanted = wanted.filter(|(_, contact)| contact.is_open(now));
        assert_eq!(found, wanted.map(|(place, _)| place).collect(), "{at}");
        assert_eq!(found.len(), open, "{at}");
        assert!(begun.steps < 200, "{at}: {} steps", begun.steps);
    }
}

#[test]
fn files_are_cut_by_a_contact_that_is_left_and_carries_some_of_them() {
    let rate = Bandwidth::from_bits_per_second(9600);
    let plan = [
        contact(2, 3, 0..100, rate),
        contact(2, 3, 200..680, rate),
        contact(5, 6, 200..201, rate),
        contact(1, 2, 200..1200, rate),
    ];
    let schedule = Schedule::new(node(1), ContactPlan::new(plan.to_vec()), Vec::new());
    let least = |at, least| schedule.least_contact(second(at), least);
    assert_eq!(least(0, 65_536), Some(120_000));
    assert_eq!(least(100, 65_536), Some(576_000));
    assert_eq!(least(680, 65_536), Some(1_200_000));
    // Where none carries so much, the largest.
    assert_eq!(least(680, 2_000_000), Some(1_200_000));
    assert_eq!(least(1200, 65_536), None);
}

#[test]
fn how_far_a_neighbour_is_says_the_open_contact() {
    let far = Contact {
        light_time: Duration::from_secs(8),
        ..contact(1, 2, 0..100, Bandwidth::from_mbit(1))
    };
    let schedule = Schedule::new(node(1), ContactPlan::new(vec![far]), Vec::new());
    let light_time = |to, at| schedule.light_time(&node(to), second(at));
    assert_eq!(light_time(2, 1), Duration::from_secs(8));
    assert_eq!([light_time(2, 100), light_time(3, 1)], [Duration::ZERO; 2]);
}

#[test]
fn a_bundle_that_no_contact_carries_is_told_from_one_that_waits_for_the_next() {
    // Passes of 8 minutes carry 576 000 bytes each, a short one between them 60 000.
    let rate = Bandwidth::from_bits_per_second(9600);
    let passes = [0..480, 1000..1050, 6000..6480].map(|pass| contact(1, 2, pass, rate));
    let schedule = Schedule::new(node(1), ContactPlan::new(passes.to_vec()), Vec::new());
    let fit = |at: u64, bytes: u64| schedule.fit(&node(2), second(at), bytes);
    assert_eq!(fit(0, 576_000), Fit::Now);
    assert_eq!(fit(0, 576_001), Fit::Never);
    // It waits for the next pass, the last one.
    assert_eq!(
        (fit(100, 500_000), fit(1001, 500_000)),
        (Fit::Later, Fit::Later)
    );
    assert_eq!(
        (fit(6100, 500_000), fit(6100, 400_000)),
        (Fit::Never, Fit::Now)
    );
    // What is booked may be given back.
    let booking = schedule.book(&node(2), second(6100), 400_000).unwrap();
    assert_eq!(fit(6100, 400_000), Fit::Later);
    schedule.give_back(&booking, second(6100));
    assert_eq!(fit(6100, 400_000), Fit::Now);
    // After the last one it is not known whether it was too large.
    assert_eq!(fit(6480, 500_000), Fit::Later);
    // A neighbour that the plan does not name takes any.
    assert_eq!(schedule.fit(&node(7), second(0), u64::MAX), Fit::Now);
}
