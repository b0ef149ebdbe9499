//! Satellites with their orbits, and where they are at an instant.

use std::{collections::BTreeMap, time::Duration};

use sgp4::MinutesSinceEpoch;

use crate::{
    EARTH_RADIUS_KM, Epoch, Error, Position, Shell, Tle,
    grid::{LEAST_GRAZING_KM, State, plus_grid},
    setting,
    tle::MAX_SATELLITES,
};

/// Greatest distance of a constellation's start from the epoch of a satellite's elements; a satellite whose elements
/// are older or younger is left out.
pub const MAX_AGE: Duration = Duration::from_secs(366 * 86_400);

/// A satellite of a constellation.
#[derive(Clone, Debug, PartialEq)]
pub struct Satellite {
    name: String,
    constants: sgp4::Constants,
    /// From the epoch of its elements to the start of the constellation.
    age_minutes: f64,
}

impl Satellite {
    /// None if the elements give no usable orbit, or are not of within a year from the start.
    fn of_tle(tle: Tle, start: Epoch) -> Option<Self> {
        let age_minutes = start.minutes_since(tle.epoch);
        (age_minutes.abs() <= MAX_AGE.as_secs_f64() / 60.0).then_some(Self {
            name: tle.name,
            constants: tle.constants?,
            age_minutes,
        })
    }

    /// The name of its elements, or `PLANE-SLOT` in a shell.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Position and velocity in axes that do not turn with the Earth (TEME), km and km/s. `None` once the satellite has
    /// decayed, which SGP4 does not always tell of one that is deep in the air.
    fn state(&self, offset: Duration) -> Option<State> {
        let minutes = self.age_minutes + offset.as_secs_f64() / 60.0;
        let predicted = self.constants.propagate(MinutesSinceEpoch(minutes)).ok()?;
        let state = State {
            position: Position::new(predicted.position),
            velocity: Position::new(predicted.velocity),
        };
        let in_orbit = state.position.norm() > EARTH_RADIUS_KM + LEAST_GRAZING_KM;
        (in_orbit && state.position.is_finite() && state.velocity.is_finite()).then_some(state)
    }
}

/// Satellites from a start on, and the pairs of them that keep a laser link.
#[derive(Clone, Debug)]
pub struct Constellation {
    start: Epoch,
    satellites: Vec<Satellite>,
    lasers: Vec<(u32, u32)>,
    left_out: usize,
    any_serves: bool,
}

impl Constellation {
    /// Shells by numbers, whose satellites stand at `start` where [`Shell`] says: the first one of plane 0 above the
    /// equator at the vernal equinox. Satellites are named `PLANE-SLOT`, with the number of the shell and a colon before
    /// if there are several.
    ///
    /// # Errors
    /// [`Error::Setting`] for too many satellites, or an orbit that SGP4 refuses.
    pub fn of_shells(shells: &[Shell], start: Epoch) -> Result<Self, Error> {
        let (mut satellites, mut lasers) = (Vec::new(), Vec::new());
        for (number, shell) in shells.iter().enumerate() {
            let total = usize::from(shell.planes) * usize::from(shell.satellites);
            if satellites.len() + total > MAX_SATELLITES {
                let most = format!("a constellation has at most {MAX_SATELLITES} satellites");
                return Err(setting("shell", total, most));
            }
            let first = u32::try_from(satellites.len()).unwrap_or(u32::MAX);
            let prefix = match shells.len() {
                1 => String::new(),
                _ => format!("{number}:"),
            };
            for plane in 0..shell.planes {
                for slot in 0..shell.satellites {
                    let name = format!("{prefix}{plane}-{slot}");
                    let orbit = shell.orbit(plane, slot);
                    let constants = sgp4::Constants::new(
                        sgp4::WGS84,
                        sgp4::iau_epoch_to_sidereal_time,
                        start.julian_years(),
                        0.0,
                        orbit,
                    );
                    satellites.push(Satellite {
                        constants: constants.map_err(|why| setting("shell", &name, why))?,
                        name,
                        age_minutes: 0.0,
                    });
                }
            }
            let links = shell.grid().into_iter();
            lasers.extend(links.map(|(a, b)| (first + a, first + b)));
        }
        Ok(Self {
            start,
            satellites,
            lasers,
            left_out: 0,
            any_serves: true,
        })
    }

    /// Satellites by their elements, each once with those nearest to `start`, which is by default the latest epoch of those
    /// with a usable orbit. Planes and neighbours are found from where the satellites are then; see the crate's guide. What is
    /// not in service ([`Tle::is_in_service`]) is left out, unless nothing in orbit is.
    ///
    /// # Errors
    /// [`Error::Setting`] when no satellite remains, or too many do.
    pub fn of_tles(tles: Vec<Tle>, start: Option<Epoch>) -> Result<Self, Error> {
        let read = tles.len();
        let usable = tles.iter().filter(|tle| tle.constants.is_some());
        let Some(start) = start.or(usable.map(Tle::epoch).max()) else {
            let none = format!("there are no satellites with a usable orbit ({read} were read)");
            return Err(setting("tle", "", none));
        };
        let nearest = nearest_elements(tles, start);
        let distinct = nearest.len();
        let known = nearest.into_values().filter_map(|tle| {
            let serves = tle.is_in_service();
            let satellite = Satellite::of_tle(tle, start)?;
            // One that has decayed serves no more, whatever its name says.
            satellite.state(Duration::ZERO)?;
            Some((serves, satellite))
        });
        let known: Vec<(bool, Satellite)> = known.collect();
        let any_serves = known.iter().any(|(serves, _)| *serves);
        let satellites: Vec<Satellite> = known
            .into_iter()
            .filter_map(|(serves, satellite)| (serves || !any_serves).then_some(satellite))
            .collect();
        if satellites.len() > MAX_SATELLITES {
            let most = format!("a constellation has at most {MAX_SATELLITES} satellites");
            return Err(setting("tle", satellites.len(), most));
        }
        if satellites.is_empty() {
            let none = format!(
                "no satellite is in orbit then by elements of within a year ({read} were read)"
            );
            return Err(setting("at", start, none));
        }
        let states = satellites
            .iter()
            .map(|satellite| satellite.state(Duration::ZERO));
        let lasers = plus_grid(&states.collect::<Vec<_>>());
        Ok(Self {
            start,
            left_out: distinct - satellites.len(),
            satellites,
            lasers,
            any_serves,
        })
    }

    /// The instant from which on offsets count.
    pub fn start(&self) -> Epoch {
        self.start
    }

    /// The satellites; others name them by their index.
    pub fn satellites(&self) -> &[Satellite] {
        &self.satellites
    }

    /// The pairs of satellites that keep a laser link (+Grid), where they see each other.
    pub fn lasers(&self) -> &[(u32, u32)] {
        &self.lasers
    }

    /// Number of satellites left out, since their elements give no orbit that SGP4 predicts or are more than [`MAX_AGE`] from
    /// the start, or since they have decayed by then or are not in service.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether satellites are in service by their names ([`Tle::is_in_service`]); otherwise all in orbit are taken.
    pub fn is_in_service(&self) -> bool {
        self.any_serves
    }

    /// Where the satellites are, in axes that turn with the Earth; `None` for one that has decayed.
    pub fn positions(&self, offset: Duration) -> Vec<Option<Position>> {
        let angle = self.start.after(offset).sidereal_angle();
        let states = self
            .satellites
            .iter()
            .map(|satellite| satellite.state(offset));
        states
            .map(|state| state.map(|state| state.position.turned(angle)))
            .collect()
    }

    /// Least and greatest height above the equatorial radius, and least and greatest inclination, at an instant: km and
    /// degrees.
    pub fn extent(&self, offset: Duration) -> Option<([f64; 2], [f64; 2])> {
        let states = self
            .satellites
            .iter()
            .filter_map(|satellite| satellite.state(offset));
        states.fold(None, |extent, state| {
            let altitude = state.position.norm() - EARTH_RADIUS_KM;
            let inclination = state.orbit().inclination_deg;
            let wider = |[least, most]: [f64; 2], value: f64| [least.min(value), most.max(value)];
            let (altitudes, inclinations) = extent.unwrap_or(([altitude; 2], [inclination; 2]));
            Some((wider(altitudes, altitude), wider(inclinations, inclination)))
        })
    }
}

/// Of each satellite the elements nearest to `start`, of two as near the later; by its number in the catalogue.
fn nearest_elements(tles: Vec<Tle>, start: Epoch) -> BTreeMap<u64, Tle> {
    let distance = |tle: &Tle| start.minutes_since(tle.epoch).abs();
    let mut nearest: BTreeMap<u64, Tle> = BTreeMap::new();
    for tle in tles {
        let known = nearest.get(&tle.number);
        let order = known.map(|known| {
            let nearer = distance(known).total_cmp(&distance(&tle));
            nearer.then(tle.epoch.cmp(&known.epoch))
        });
        if order.is_none_or(std::cmp::Ordering::is_ge) {
            nearest.insert(tle.number, tle);
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Orbit;

    #[test]
    fn a_shell_stands_where_its_numbers_say() {
        let shell: Shell = "starlink".parse().unwrap();
        let start: Epoch = "2000-01-01".parse().unwrap();
        let constellation = Constellation::of_shells(&[shell], start).unwrap();
        assert_eq!(constellation.satellites()[22 * 5 + 7].name(), "5-7");
        let positions: Vec<Position> = constellation
            .positions(Duration::ZERO)
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(positions.len(), 1584);
        // Plane 18 crosses the equator a quarter of the way around, and its slot 11 on the other side.
        let angle = |a: Position, b: Position| (a.dot(b) / a.norm() / b.norm()).acos().to_degrees();
        for (a, b, degrees) in [(0, 22 * 18, 90.0), (0, 11, 180.0), (3, 4, 360.0 / 22.0)] {
            assert!(
                (angle(positions[a], positions[b]) - degrees).abs() < 0.2,
                "{a} and {b}"
            );
        }
        // Half a slot ahead in every second plane: 8.18 degrees along the orbit, minus 5 degrees of node.
        let (latitude, _) = positions[22].latitude_longitude();
        let expected = (53f64.to_radians().sin() * (360.0f64 / 44.0).to_radians().sin()).asin();
        assert!((latitude - expected.to_degrees()).abs() < 0.1, "{latitude}");
        // The Earth's oblateness moves satellites by some kilometres around the unperturbed orbit.
        let ([low, high], [flat, steep]) = constellation.extent(Duration::ZERO).unwrap();
        assert!(low > 540.0 && high < 560.0, "{low} to {high} km");
        assert!(flat > 52.9 && steep < 53.1, "{flat} to {steep} degrees");
    }

    /// The elements of a satellite on a circle, of noon on a day of 2020.
    fn tle(number: u64, day: u32, phase_deg: f64) -> Tle {
        let epoch: Epoch = format!("2020-01-{day:02}T12:00:00Z").parse().unwrap();
        let orbit = sgp4::Orbit {
            inclination: 53f64.to_radians(),
            right_ascension: 0.0,
            eccentricity: 0.0,
            argument_of_perigee: 0.0,
            mean_anomaly: phase_deg.to_radians(),
            mean_motion: 15.0 * std::f64::consts::TAU / 1440.0,
        };
        let sidereal = sgp4::iau_epoch_to_sidereal_time;
        let years = epoch.julian_years();
        Tle {
            name: format!("{number} of day {day}"),
            number,
            epoch,
            constants: sgp4::Constants::new(sgp4::WGS84, sidereal, years, 0.0, orbit).ok(),
        }
    }

    #[test]
    fn of_the_elements_of_a_satellite_the_nearest_to_the_start_count() {
        let all = || [10, 14, 20].map(|day| tle(1, day, 0.0)).to_vec();
        let named = |start: Option<&str>| {
            let start = start.map(|start| start.parse().unwrap());
            let constellation = Constellation::of_tles(all(), start).unwrap();
            constellation.satellites()[0].name().to_owned()
        };
        assert_eq!(named(None), "1 of day 20");
        for (start, name) in [
            ("2020-01-13", "1 of day 14"),
            ("2020-01-01", "1 of day 10"),
            ("2020-01-12T12:00:00Z", "1 of day 14"),
            ("2020-01-19", "1 of day 20"),
        ] {
            assert_eq!(named(Some(start)), name, "{start}");
        }
    }

    #[test]
    fn what_is_not_in_service_carries_nothing_beside_what_is() {
        let named = |number: u32, name: &str| Tle {
            name: name.to_owned(),
            ..tle(number.into(), 10, f64::from(number) * 20.0)
        };
        let satellites = |names: &[&str]| {
            let tles = (1..).zip(names).map(|(number, name)| named(number, name));
            let constellation = Constellation::of_tles(tles.collect(), None).unwrap();
            let names = constellation.satellites().iter().map(Satellite::name);
            let names: Vec<String> = names.map(str::to_owned).collect();
            (names, constellation.left_out())
        };
        let mixed = ["A [+]", "B [-]", "FALCON 9 DEB", "SL-16 R/B", "C"];
        assert_eq!(
            satellites(&mixed),
            (vec!["A [+]".to_owned(), "C".to_owned()], 3)
        );
        let dead = ["A [-]", "B [-]"];
        assert_eq!(satellites(&dead), (dead.map(str::to_owned).to_vec(), 0));
    }

    #[test]
    fn what_is_in_service_by_its_name_alone_leaves_nothing_out() {
        let dead = |number: u32| Tle {
            name: format!("{number} [-]"),
            ..tle(number.into(), 10, f64::from(number) * 20.0)
        };
        // SGP4 knows no orbit of the one that serves.
        let serves = Tle {
            name: "3 [+]".to_owned(),
            constants: None,
            ..tle(3, 10, 0.0)
        };
        let constellation = Constellation::of_tles(vec![dead(1), dead(2), serves], None).unwrap();
        let counts = (constellation.satellites().len(), constellation.left_out());
        assert_eq!((counts, constellation.is_in_service()), ((2, 1), false));
    }

    #[test]
    fn heights_and_inclinations_are_the_same_all_along_an_orbit() {
        let elements = tle(1, 10, 0.0);
        let start = elements.epoch();
        let satellite = Satellite::of_tle(elements, start).unwrap();
        let minutes = (0..96).map(|minute| Duration::from_secs(60 * minute));
        let orbits: Vec<_> = minutes
            .map(|at| satellite.state(at).unwrap().orbit())
            .collect();
        let varies = |of: fn(&Orbit) -> f64| {
            let least = orbits.iter().map(of).fold(f64::MAX, f64::min);
            orbits.iter().map(of).fold(0.0, f64::max) - least
        };
        let (height, inclination) = (
            varies(|orbit| orbit.semi_major_km),
            varies(|orbit| orbit.inclination_deg),
        );
        assert!(height < 0.5, "{height} km");
        assert!(inclination < 0.005, "{inclination} degrees");
    }

    #[test]
    fn more_satellites_than_a_constellation_has_are_an_error_and_not_left_out() {
        let most = u64::try_from(MAX_SATELLITES).unwrap();
        let tles = (0..=most).map(|number| tle(number, 10, number as f64 / 60.0));
        let error = Constellation::of_tles(tles.collect(), None).unwrap_err();
        assert!(error.to_string().contains("at most 20000"), "{error}");
    }

    #[test]
    fn several_shells_are_named_apart_and_linked_within() {
        let shells = [
            "iridium",
            "planes=2,satellites=3,altitude=500,inclination=10",
        ]
        .map(|text| text.parse().unwrap());
        let constellation =
            Constellation::of_shells(&shells, "2000-01-01".parse().unwrap()).unwrap();
        assert_eq!(constellation.satellites()[0].name(), "0:0-0");
        assert_eq!(constellation.satellites()[66].name(), "1:0-0");
        let across = constellation
            .lasers()
            .iter()
            .filter(|(a, b)| (*a < 66) != (*b < 66));
        assert_eq!(across.count(), 0);
        let many: Shell = "planes=500,satellites=500,altitude=500,inclination=10"
            .parse()
            .unwrap();
        assert!(Constellation::of_shells(&[many], "2000-01-01".parse().unwrap()).is_err());
    }
}
