//! What LTP makes of contacts, of links without a way back, of a day with contacts every other hour, and of this computer.

mod contact;
mod day;
mod goals;
mod one_way;
mod pair;
mod speed;

pub use self::{
    contact::{Contact, Outcome, contacts, station},
    day::{Day, DayOutcome, days},
    one_way::{Arrived, OneWay, setups as one_way_files},
    speed::{Cost, Rate, Speed, costs, speeds},
};
use crate::kit::{Part, Plot, Study};

/// `starhaul lab ltp`.
pub fn study() -> Study {
    Study::new(
        "ltp",
        "",
        "LTP over long links with losses, over a day of contacts, and as fast as this computer can",
        "LTP",
        "With computed defaults. In virtual time: blocks of 1 MB, offered without end in the first minute of a contact at 20 Mbit/s, or in the first \
         seconds of one with the rates of the Space Station's link, and how long after its light time a block is there; files over a link \
         without a way back, which have to arrive by their repair segments alone; and a probe that makes data all day and has a contact of 8 \
         minutes at 1 Mbit/s every other hour. In real time, over loopback of this computer: how fast segments of each size are by each kind of \
         system calls, beside raw UDP datagrams of the same size by the same calls, and where the processor time of a segment goes: system \
         calls are what raw datagrams take, engine and checksum what the engines take that hand each other their segments in memory, and the \
         rest is what all together take beside that.",
    )
    .part(
        Part::new("contact", "", "link use and delivery by light time, loss and coding", contact::columns, contacts, |setup: &Contact| {
            Ok(vec![setup.run()?])
        })
        .plot(Plot {
            title: "what 99 of 100 blocks waited at most, by light time in s and whether there were repair segments",
            x: ("loss", "loss, %"),
            log_from: None,
            y: ("wait_p99_trips", "round trips"),
            by: &["light_s", "coding"],
        })
        .target(goals::USED)
        .target(goals::AT_ONCE),
    )
    .part(
        Part::new(
            "station",
            "",
            "the same over a link that is eight times as fast one way as the other",
            contact::columns,
            station,
            |setup: &Contact| Ok(vec![setup.run()?]),
        )
        .target(goals::USED),
    )
    .part(
        Part::new("one-way", "", "files that arrive without a way back, and what that takes", one_way::columns, one_way::setups, |setup: &OneWay| {
            Ok(vec![setup.run()?])
        })
        .plot(Plot {
            title: "bytes beside those of the files, by their length in kB",
            x: ("loss", "loss, %"),
            log_from: None,
            y: ("overhead", "%"),
            by: &["file_kb"],
        })
        .target(goals::ARRIVED)
        .target(goals::OVERHEAD),
    )
    .part(Part::new("day", "", "what a day of contacts delivers, and how old it is then", day::columns, days, |day: &Day| {
        Ok(vec![day.run()?])
    }))
    .part(
        Part::new("course", "", "delivery over that day, hour by hour", day::course_columns, day::courses, Day::course).plot(Plot {
            title: "data by hour, by light time in s",
            x: ("hour", "hours"),
            log_from: None,
            y: ("mb", "MB"),
            by: &["light_s", "what"],
        }),
    )
    .part(throughput("speed", "throughput by the size of segments and the system calls, beside raw UDP", speeds))
    .part(
        over_mtu("mtu-1500", "the same at Ethernet's MTU, as in HDTN's figures", speed::speeds_at::<1500>)
            .target(goals::RATE)
            .target(goals::SHARE)
            .target(goals::SEND_TIME)
            .target(goals::RECEIVE_TIME),
    )
    .part(over_mtu("mtu-4500", "the same at an MTU of 4500", speed::speeds_at::<4500>))
    .part(over_mtu("mtu-9702", "the same at an MTU of 9702", speed::speeds_at::<9702>))
    .part(
        Part::new("cpu", "", "where the processor time of a segment goes", speed::cost_columns, costs, Speed::cost)
            .in_real_time()
            .plot(Plot {
                title: "processor time per segment",
                x: ("segment_bytes", "bytes of data per segment"),
                log_from: Some(1000.0),
                y: ("total_us", "us"),
                by: &["end", "mode"],
            }),
    )
}

/// A part that measures how fast this computer is.
fn throughput(
    name: &'static str,
    shows: &'static str,
    setups: fn(bool, u64) -> Vec<Speed>,
) -> Part {
    Part::new(name, "", shows, speed::columns, setups, Speed::run)
        .in_real_time()
        .plot(Plot {
            title: "throughput over loopback",
            x: ("segment_bytes", "bytes of data per segment"),
            log_from: Some(1000.0),
            y: ("gbps", "Gbit/s"),
            by: &["mode", "what"],
        })
        .target(goals::LOST)
}

/// The same over a loopback interface of its own.
fn over_mtu(name: &'static str, shows: &'static str, setups: fn(bool, u64) -> Vec<Speed>) -> Part {
    throughput(name, shows, setups).unless(speed::no_mtu)
}
