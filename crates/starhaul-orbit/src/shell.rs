//! Shells of satellites by numbers: Walker's constellations (Walker 1984, JBIS 37) and the layouts of published ones.

use std::{f64::consts::TAU, fmt, str::FromStr};

use starhaul_units::parse_decimal;

use crate::{Error, geometry::EARTH_RADIUS_KM, setting};

/// How much later the satellites of the next plane pass the equator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phasing {
    /// Walker's phasing factor F: each plane is ahead of the one before by F / (planes × satellites) of a revolution.
    Walker(u16),
    /// Every second plane is ahead by half the distance between its satellites.
    Alternate,
}

/// A shell: satellites in circular orbits of one height and inclination, in planes at equal distances, at equal
/// distances in each plane.
///
/// As text, a name of [`Shell::PRESETS`], settings `KEY=VALUE`, or a name and settings that differ from it, separated by
/// commas: `starlink`, `planes=24,satellites=11,altitude=1200km,inclination=87.9,phasing=1`, `starlink,phasing=11`.
///
/// | setting | value |
/// |---|---|
/// | `planes` | 1 to 500 |
/// | `satellites` | in each plane, 1 to 500 |
/// | `altitude` | above the Earth's equatorial radius, 160 to 2000 km |
/// | `motion` | revolutions per day, in place of the altitude: 11.25 to 16.5 |
/// | `inclination` | 0 to 180 degrees |
/// | `phasing` | Walker's factor, less than the number of planes, or `alternate`; default 0 |
/// | `spread` | degrees of longitude over which the ascending nodes lie: 360 for Walker's delta, 180 for his star |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shell {
    /// Number of planes.
    pub planes: u16,
    /// Satellites in each plane.
    pub satellites: u16,
    /// Revolutions per day of the unperturbed orbit (Brouwer's mean motion).
    pub revolutions_per_day: f64,
    /// Inclination of the orbits, in degrees.
    pub inclination_deg: f64,
    /// Distance of satellites in neighbouring planes.
    pub phasing: Phasing,
    /// Range of the ascending nodes, degrees.
    pub spread_deg: f64,
}

impl Shell {
    /// Known shells by name. `starlink` is the first shell of Starlink as filed; `hypatia` the same as the Hypatia
    /// simulator generates it, by a mean motion of 15.19 revolutions per day.
    pub const PRESETS: [(&str, &str); 6] = [
        (
            "starlink",
            "planes=72,satellites=22,altitude=550km,inclination=53,phasing=alternate",
        ),
        (
            "hypatia",
            "planes=72,satellites=22,motion=15.19,inclination=53,phasing=alternate",
        ),
        (
            "kuiper",
            "planes=34,satellites=34,altitude=630km,inclination=51.9,phasing=alternate",
        ),
        (
            "telesat",
            "planes=27,satellites=13,altitude=1015km,inclination=98.98,phasing=alternate",
        ),
        (
            "oneweb",
            "planes=18,satellites=36,altitude=1200km,inclination=87.9,phasing=alternate,spread=180",
        ),
        (
            "iridium",
            "planes=6,satellites=11,altitude=780km,inclination=86.4,phasing=alternate,spread=190",
        ),
    ];

    /// Height of the unperturbed orbit above the equatorial radius, km.
    pub fn altitude_km(&self) -> f64 {
        let per_minute = self.revolutions_per_day * TAU / 1440.0;
        EARTH_RADIUS_KM * ((sgp4::WGS84.ke / per_minute).powf(2.0 / 3.0) - 1.0)
    }

    /// How far a satellite of `plane` is ahead of the one with the same number in plane 0, in radians.
    pub(crate) fn phase(&self, plane: u16) -> f64 {
        let slot = TAU / f64::from(self.satellites);
        match self.phasing {
            Phasing::Walker(factor) => {
                slot * f64::from(factor) * f64::from(plane) / f64::from(self.planes)
            }
            Phasing::Alternate => slot / 2.0 * f64::from(plane % 2),
        }
    }

    /// The elements of a satellite.
    pub(crate) fn orbit(&self, plane: u16, slot: u16) -> sgp4::Orbit {
        let share = f64::from(plane) / f64::from(self.planes);
        let anomaly = TAU * f64::from(slot) / f64::from(self.satellites) + self.phase(plane);
        sgp4::Orbit {
            inclination: self.inclination_deg.to_radians(),
            right_ascension: self.spread_deg.to_radians() * share,
            eccentricity: 0.0,
            argument_of_perigee: 0.0,
            mean_anomaly: anomaly % TAU,
            mean_motion: self.revolutions_per_day * TAU / 1440.0,
        }
    }

    /// The pairs of satellites that keep a laser link (+Grid), by their numbers `plane × satellites + slot`: with the next
    /// in the plane, and with the one of the same slot in the next plane. The last plane meets plane 0 only if the nodes
    /// lie all around the Earth; by then Walker's phasing is a whole number of slots, by which the numbers move.
    pub(crate) fn grid(&self) -> Vec<(u32, u32)> {
        let (planes, satellites) = (u32::from(self.planes), u32::from(self.satellites));
        let seam_slots = match self.phasing {
            Phasing::Walker(factor) => u32::from(factor),
            Phasing::Alternate => 0,
        };
        let number = |plane: u32, slot: u32| plane * satellites + slot % satellites;
        let mut links = Vec::new();
        for plane in 0..planes {
            for slot in 0..satellites {
                let here = number(plane, slot);
                // Of two in a ring, both have the same neighbour.
                if satellites > 2 || slot + 1 < satellites {
                    links.push((here, number(plane, slot + 1)));
                }
                if plane + 1 < planes {
                    links.push((here, number(plane + 1, slot)));
                } else if planes > 2 && self.spread_deg == 360.0 {
                    links.push((here, number(0, slot + seam_slots)));
                }
            }
        }
        links
    }
}

impl fmt::Display for Shell {
    /// What people call it: `72 × 22 satellites at 550 km and 53°`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            planes,
            satellites,
            inclination_deg,
            ..
        } = self;
        let altitude = self.altitude_km();
        write!(
            f,
            "{planes} × {satellites} satellites at {altitude:.0} km and {inclination_deg}°"
        )
    }
}

impl FromStr for Shell {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (first, rest) = text.split_once(',').unwrap_or((text, ""));
        let preset = Self::PRESETS.iter().find(|(name, _)| *name == first.trim());
        let (mut draft, own) = match preset {
            Some((_, settings)) => (Draft::default().with(settings)?, rest),
            None => (Draft::default(), text),
        };
        if !own.is_empty() || preset.is_none() {
            draft = draft.with(own)?;
        }
        draft.finish(text)
    }
}

/// A shell as far as it is described.
#[derive(Clone, Copy, Debug, Default)]
struct Draft {
    planes: Option<u16>,
    satellites: Option<u16>,
    revolutions_per_day: Option<f64>,
    inclination_deg: Option<f64>,
    phasing: Option<Phasing>,
    spread_deg: Option<f64>,
}

const KEYS: [&str; 7] = [
    "planes",
    "satellites",
    "altitude",
    "motion",
    "inclination",
    "phasing",
    "spread",
];

impl Draft {
    fn with(mut self, settings: &str) -> Result<Self, Error> {
        for part in settings.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(unknown(part));
            };
            let (key, value) = (key.trim(), value.trim());
            match key {
                "planes" => self.planes = Some(count("planes", value)?),
                "satellites" => self.satellites = Some(count("satellites", value)?),
                "altitude" => self.revolutions_per_day = Some(motion_at(value)?),
                "motion" => {
                    let motion = number("motion", value, value, 11.25..=16.5)?;
                    self.revolutions_per_day = Some(motion);
                }
                "inclination" => {
                    self.inclination_deg = Some(number("inclination", value, value, 0.0..=180.0)?);
                }
                "phasing" => self.phasing = Some(phasing(value)?),
                "spread" => self.spread_deg = Some(number("spread", value, value, 0.0..=360.0)?),
                _ => return Err(unknown(part)),
            }
        }
        Ok(self)
    }

    fn finish(self, text: &str) -> Result<Shell, Error> {
        let missing = |key| setting("shell", text, format!("{key} is missing"));
        let shell = Shell {
            planes: self.planes.ok_or_else(|| missing("planes"))?,
            satellites: self.satellites.ok_or_else(|| missing("satellites"))?,
            revolutions_per_day: self
                .revolutions_per_day
                .ok_or_else(|| missing("altitude"))?,
            inclination_deg: self.inclination_deg.ok_or_else(|| missing("inclination"))?,
            phasing: self.phasing.unwrap_or(Phasing::Walker(0)),
            spread_deg: self.spread_deg.unwrap_or(360.0),
        };
        match shell.phasing {
            Phasing::Walker(factor) if factor >= shell.planes => Err(setting(
                "phasing",
                factor,
                "Walker's factor is less than the number of planes",
            )),
            _ => Ok(shell),
        }
    }
}

fn unknown(part: &str) -> Error {
    let key = part.split_once('=').map_or(part, |(key, _)| key).trim();
    let names = Shell::PRESETS.map(|(name, _)| name);
    let distance = |known: &str| strsim::damerau_levenshtein(key, known);
    let known = KEYS.iter().chain(&names).copied();
    let near = known
        .min_by_key(|known| distance(known))
        .filter(|known| distance(known) <= 2);
    let suggestion = match near {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!(
            "write a name ({}) or settings ({}), for example planes=72,satellites=22,altitude=550km,inclination=53",
            names.join(", "),
            KEYS.join(", ")
        ),
    };
    Error::Shell {
        text: part.to_owned(),
        suggestion,
    }
}

fn count(key: &'static str, value: &str) -> Result<u16, Error> {
    let count = value.parse().ok().filter(|count| (1..=500).contains(count));
    count.ok_or_else(|| setting(key, value, "write a number from 1 to 500"))
}

fn number(
    key: &'static str,
    value: &str,
    digits: &str,
    range: std::ops::RangeInclusive<f64>,
) -> Result<f64, Error> {
    let number = parse_decimal(digits).filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let range = format!("write a number from {} to {}", range.start(), range.end());
        setting(key, value, range)
    })
}

/// Kepler's third law with SGP4's own constant.
fn motion_at(altitude: &str) -> Result<f64, Error> {
    let digits = altitude.strip_suffix("km").unwrap_or(altitude).trim_end();
    let altitude_km = number("altitude", altitude, digits, 160.0..=2000.0)?;
    let radii = 1.0 + altitude_km / EARTH_RADIUS_KM;
    Ok(sgp4::WGS84.ke * radii.powf(-1.5) * 1440.0 / TAU)
}

fn phasing(value: &str) -> Result<Phasing, Error> {
    match value.parse() {
        Ok(factor) => Ok(Phasing::Walker(factor)),
        Err(_) if value == "alternate" => Ok(Phasing::Alternate),
        Err(_) => Err(setting(
            "phasing",
            value,
            "write Walker's factor as a number, or alternate",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_settings_and_both_are_read() {
        let starlink: Shell = "starlink".parse().unwrap();
        assert_eq!((starlink.planes, starlink.satellites), (72, 22));
        assert!((starlink.altitude_km() - 550.0).abs() < 1e-6);
        // Kepler: a satellite at 550 km makes 15.05 revolutions a day.
        assert!((starlink.revolutions_per_day - 15.055).abs() < 2e-3);
        let other: Shell = "starlink,phasing=11,altitude=540km".parse().unwrap();
        assert_eq!(other.phasing, Phasing::Walker(11));
        assert!((other.altitude_km() - 540.0).abs() < 1e-6);
        let own: Shell = "planes=3,satellites=4,altitude=1000,inclination=60"
            .parse()
            .unwrap();
        assert_eq!((own.phasing, own.spread_deg), (Phasing::Walker(0), 360.0));
        for (name, settings) in Shell::PRESETS {
            assert_eq!(name.parse::<Shell>(), settings.parse(), "{name}");
        }
    }

    #[test]
    fn errors_name_the_setting_and_the_nearest() {
        for (text, part) in [
            ("", "planes=72"),
            ("starlnk", "did you mean \"starlink\""),
            ("starlink,plane=3", "did you mean \"planes\""),
            (
                "planes=3,satellites=4,inclination=60",
                "altitude is missing",
            ),
            ("starlink,planes=0", "1 to 500"),
            ("starlink,altitude=90km", "160 to 2000"),
            ("starlink,phasing=72", "less than the number of planes"),
            ("starlink,phasing=half", "alternate"),
            ("starlink,inclination=-3", "0 to 180"),
        ] {
            let error = text.parse::<Shell>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn each_satellite_has_four_links_to_its_neighbours() {
        for text in ["starlink", "starlink,phasing=7", "iridium"] {
            let shell: Shell = text.parse().unwrap();
            let total = usize::from(shell.planes) * usize::from(shell.satellites);
            let links = shell.grid();
            let mut degrees = vec![0; total];
            for (a, b) in &links {
                assert_ne!(a, b);
                degrees[*a as usize] += 1;
                degrees[*b as usize] += 1;
            }
            let delta = shell.spread_deg == 360.0;
            let ends = degrees.iter().filter(|degree| **degree == 3).count();
            assert_eq!(ends, if delta { 0 } else { 22 }, "{text}");
            let mut once = links.clone();
            once.iter_mut()
                .for_each(|link| *link = (link.0.min(link.1), link.0.max(link.1)));
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), links.len(), "{text}");
        }
    }

    #[test]
    fn phasing_goes_on_across_the_seam() {
        // The neighbour across the seam is as far ahead as that in any next plane: F / planes of a slot.
        let shell: Shell = "planes=8,satellites=10,altitude=700,inclination=60,phasing=3"
            .parse()
            .unwrap();
        let ahead = |a: u32, b: u32| {
            let place = |n: u32| {
                let (plane, slot) = (u16::try_from(n / 10).unwrap(), n % 10);
                f64::from(slot) / 10.0 + shell.phase(plane) / TAU
            };
            (place(b) - place(a)).rem_euclid(1.0)
        };
        for (a, b) in shell.grid().into_iter().filter(|(a, b)| a / 10 != b / 10) {
            assert!((ahead(a, b) - 0.3 / 8.0).abs() < 1e-9, "{a} {b}");
        }
    }
}
