//! Ground stations, by the name of a city or by coordinates.

use std::str::FromStr;

use crate::{CITIES, Error, Position};

/// A place on the ground.
///
/// As text, a city of [`CITIES`] (`Beijing`, `new york`), coordinates in degrees north and east (`39.9,116.4`, and
/// `-33.9,18.4` or `33.9S,18.4E`), or a name with coordinates (`Camp=-75.1,123.3`).
#[derive(Clone, Debug, PartialEq)]
pub struct GroundStation {
    name: String,
    latitude_deg: f64,
    longitude_deg: f64,
    position: Position,
    up: Position,
}

impl GroundStation {
    /// A station by its geodetic coordinates in degrees; `None` when they are no place.
    pub fn new(name: &str, latitude_deg: f64, longitude_deg: f64) -> Option<Self> {
        let on_earth =
            (-90.0..=90.0).contains(&latitude_deg) && (-180.0..=180.0).contains(&longitude_deg);
        on_earth.then(|| Self {
            name: name.to_owned(),
            latitude_deg,
            longitude_deg,
            position: Position::on_ground(latitude_deg, longitude_deg),
            up: Position::up(latitude_deg, longitude_deg),
        })
    }

    /// Name of the station.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Geodetic latitude and longitude, degrees north and east.
    pub fn coordinates(&self) -> (f64, f64) {
        (self.latitude_deg, self.longitude_deg)
    }

    /// Position of the station on the ground.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Distance of a satellite in km, and the sine of its elevation above the horizon.
    pub(crate) fn view(&self, satellite: Position) -> (f64, f64) {
        let sight = satellite.minus(self.position);
        let distance = sight.norm();
        (distance, sight.dot(self.up) / distance)
    }
}

impl FromStr for GroundStation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let error = |reason: String| Error::Station {
            text: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let (name, place) = match trimmed.split_once('=') {
            Some((name, place)) => (name.trim(), place.trim()),
            None => (trimmed, trimmed),
        };
        let plain = |c: char| !c.is_control();
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(error("its name has 1 to 64 characters".to_owned()));
        }
        if let Some((latitude, longitude)) = place.split_once(',') {
            let station = || {
                Self::new(
                    name,
                    degrees(latitude, 'N', 'S')?,
                    degrees(longitude, 'E', 'W')?,
                )
            };
            return station().ok_or_else(|| {
                error(
                    "write degrees north (-90 to 90) and east (-180 to 180), as 39.9,116.4 or 33.9S,18.4E"
                        .to_owned(),
                )
            });
        }
        let wanted = letters(place);
        let city = CITIES.iter().find(|(known, ..)| letters(known) == wanted);
        let station = city.and_then(|(known, latitude, longitude)| {
            let name = if name == place { known } else { name };
            Self::new(name, *latitude, *longitude)
        });
        station.ok_or_else(|| error(suggestion(&wanted)))
    }
}

/// The letters of a name in lower case, so that `new-york` is `New York`.
fn letters(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

fn suggestion(wanted: &str) -> String {
    let distance = |name: &str| strsim::damerau_levenshtein(&letters(name), wanted);
    let nearest = CITIES
        .iter()
        .map(|(name, ..)| (distance(name), *name))
        .min();
    let near = (wanted.chars().count() / 3).max(1);
    match nearest {
        Some((distance, name)) if distance <= near => format!("did you mean {name:?}?"),
        _ => "write a city of `starhaul orbit info --cities`, or coordinates as 39.9,116.4 or NAME=39.9,116.4".to_owned(),
    }
}

/// A number in plain decimal notation; if south or west with a sign before it, or with the letter of any direction behind it.
fn degrees(text: &str, positive: char, negative: char) -> Option<f64> {
    let text = text.trim();
    let lettered = |letter: char| text.strip_suffix([letter, letter.to_ascii_lowercase()]);
    if let Some(digits) = lettered(positive) {
        return starhaul_units::parse_decimal(digits.trim_end());
    }
    let digits = lettered(negative).map(str::trim_end);
    match digits.or_else(|| text.strip_prefix('-')) {
        Some(digits) => starhaul_units::parse_decimal(digits).map(|degrees| -degrees),
        None => starhaul_units::parse_decimal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_cities_or_coordinates() {
        let parse = |text: &str| text.parse::<GroundStation>().unwrap();
        assert_eq!(parse("new-york").name(), "New York");
        assert_eq!(parse("Home=Paris").name(), "Home");
        assert_eq!(parse("Home=Paris").position(), parse("paris").position());
        assert_eq!(parse("-33.9,18.4").coordinates(), (-33.9, 18.4));
        assert_eq!(parse(" -33.9,18.4").coordinates(), (-33.9, 18.4));
        assert_eq!(parse("33.9S,18.4E").coordinates(), (-33.9, 18.4));
        assert_eq!(parse("Rio=22.9 s, 43.2 w").coordinates(), (-22.9, -43.2));
        assert_eq!(parse("39.9n,116.4e").coordinates(), (39.9, 116.4));
        assert_eq!(parse("Camp = -75.1, 123.3").name(), "Camp");
        for (text, part) in [
            ("Pariss", "did you mean \"Paris\""),
            ("Nowhere at all", "orbit info --cities"),
            ("91,0", "-90 to 90"),
            ("1e1,0", "degrees north"),
            ("-33.9S,18.4", "degrees north"),
            ("33.9E,18.4S", "degrees north"),
            ("", "1 to 64"),
        ] {
            let error = text.parse::<GroundStation>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn every_city_is_found_by_its_name_and_is_on_earth() {
        for (number, (name, latitude, longitude)) in CITIES.iter().enumerate() {
            let station: GroundStation = name.parse().unwrap();
            assert_eq!(station.coordinates(), (*latitude, *longitude), "{name}");
            let same = CITIES
                .iter()
                .position(|(other, ..)| letters(other) == letters(name));
            assert_eq!(same, Some(number), "{name} is listed twice");
        }
        assert!(CITIES.len() >= 100);
    }

    #[test]
    fn a_satellite_stands_as_high_as_the_triangle_says() {
        // Over the equator, seen from it at a distance of `angle` along the ground.
        let station = GroundStation::new("x", 0.0, 0.0).unwrap();
        for angle in [0.0_f64, 5.0, 15.0] {
            let radius = crate::EARTH_RADIUS_KM;
            let orbit = radius + 550.0;
            let (sin, cos) = angle.to_radians().sin_cos();
            let (distance, sine) = station.view(Position::new([orbit * cos, orbit * sin, 0.0]));
            let expected = (radius * radius + orbit * orbit - 2.0 * radius * orbit * cos).sqrt();
            assert!((distance - expected).abs() < 1e-6);
            assert!((sine - (orbit * cos - radius) / expected).abs() < 1e-9);
        }
    }
}
