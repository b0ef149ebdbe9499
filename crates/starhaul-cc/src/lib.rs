//! Congestion controllers behind one sans-IO trait, independent of QUIC, sockets and clocks.
//!
//! A sender reports each packet and its fate, and stays within the window and the [`Pacer`]:
//!
//! ```
//! use std::time::{Duration, Instant};
//! use starhaul_cc::{AckedPacket, Controller, ControllerConfig, Pacer};
//! use starhaul_units::Bandwidth;
//!
//! let (start, mtu, bytes) = (Instant::now(), 1452, 1452);
//! let config: ControllerConfig = "bbr".parse()?;
//! let mut controller = config.build(start, mtu);
//! let mut pacer = Pacer::new(start, mtu);
//! let rate = controller.pacing_rate().unwrap_or(Bandwidth::from_mbit(1));
//! if bytes <= controller.cwnd() && pacer.next_send(start, rate, bytes).is_none() {
//!     controller.on_packet_sent(start, 0, bytes, 0, false);
//!     pacer.on_sent(start, bytes);
//! }
//! let now = start + Duration::from_millis(40);
//! controller.on_ack(AckedPacket { now, sent: start, packet_number: 0, bytes });
//! controller.on_end_of_acks(now, 0);
//! assert_eq!(controller.state(), "startup");
//! # Ok::<(), starhaul_cc::ControllerError>(())
//! ```

pub mod delivery_rate;
pub mod filter;
pub mod kalman;

mod aggregation;
mod announced;
mod bbr;
mod bbr3;
mod config;
mod controller;
mod copa;
mod cubic;
mod dedicated;
mod detection;
mod detector;
mod hybla;
mod hystart;
mod leocc;
mod limits;
mod new_reno;
mod pacer;
mod path_controller;
mod rate_feed;
mod reconfiguration;
mod rounds;
mod rtt;
mod satcp;
mod sent;
mod timetable;
mod vegas;
mod vivace;
mod window;
mod window_based;

pub use announced::{Announcements, KnownTimes, ParseTimesError};
pub use config::{ControllerConfig, ControllerError};
pub use controller::{AckedPacket, CongestionEvent, Controller, LostPacket};
pub use detection::{Detection, ParseProbeTargetError, ProbeMethod, ProbeTarget};
pub use detector::{Detector, DetectorConfig};
pub use leocc::LeoCcOptions;
pub use limits::{MAX_CWND_BYTES, MAX_PACING_RATE, MIN_PACING_RATE};
pub use pacer::Pacer;
pub use path_controller::{PathController, QueueWish};
pub use rate_feed::RateFeed;
pub use reconfiguration::{
    PathEnd, PathModel, PathSignal, Reconfiguration, ReconfigurationSource, Reconfigurations,
};
pub use timetable::{ParseTimetableError, Schedule, Timetable};
