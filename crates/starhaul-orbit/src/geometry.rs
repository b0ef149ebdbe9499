//! Positions around the Earth, and what light and sight need between them.

use std::time::Duration;

/// Equatorial radius of the Earth (WGS 84), km.
pub const EARTH_RADIUS_KM: f64 = 6378.137;
/// First eccentricity of the Earth's ellipsoid, squared (WGS 84).
const ECCENTRICITY_2: f64 = 0.006_694_379_990_14;
/// Speed of light in vacuum, km/s.
pub const LIGHT_KM_PER_S: f64 = 299_792.458;

/// A position or a direction in Cartesian coordinates, km: from the Earth's centre, z to the north pole. Unless said
/// otherwise it turns with the Earth, x to the meridian of Greenwich.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Towards 0° N 0° E.
    pub x: f64,
    /// Towards 0° N 90° E.
    pub y: f64,
    /// Towards the north pole.
    pub z: f64,
}

impl Position {
    pub(crate) const fn new([x, y, z]: [f64; 3]) -> Self {
        Self { x, y, z }
    }

    /// A place on the ellipsoid by geodetic latitude and longitude in degrees.
    pub fn on_ground(latitude_deg: f64, longitude_deg: f64) -> Self {
        let up = Self::up(latitude_deg, longitude_deg);
        // Radius of curvature in the prime vertical.
        let radius = EARTH_RADIUS_KM / (1.0 - ECCENTRICITY_2 * up.z * up.z).sqrt();
        Self {
            x: radius * up.x,
            y: radius * up.y,
            z: radius * (1.0 - ECCENTRICITY_2) * up.z,
        }
    }

    /// The direction of the zenith at a geodetic latitude and longitude in degrees, of length 1.
    pub(crate) fn up(latitude_deg: f64, longitude_deg: f64) -> Self {
        let (north, east) = (latitude_deg.to_radians(), longitude_deg.to_radians());
        Self {
            x: north.cos() * east.cos(),
            y: north.cos() * east.sin(),
            z: north.sin(),
        }
    }

    /// Distance from the Earth's centre.
    pub fn norm(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// Distance from another position.
    pub fn distance(self, other: Self) -> f64 {
        self.minus(other).norm()
    }

    /// Geocentric latitude and longitude, degrees.
    pub fn latitude_longitude(self) -> (f64, f64) {
        let level = self.x.hypot(self.y);
        let degrees = |y: f64, x: f64| y.atan2(x).to_degrees();
        (degrees(self.z, level), degrees(self.y, self.x))
    }

    pub(crate) fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub(crate) fn cross(self, other: Self) -> Self {
        Self {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            x: self.x - other.x,
            y: self.y - other.y,
            z: self.z - other.z,
        }
    }

    /// The same direction seen from axes that are turned by `angle` to the east.
    pub(crate) fn turned(self, angle: f64) -> Self {
        let (sin, cos) = angle.sin_cos();
        Self {
            x: cos * self.x + sin * self.y,
            y: cos * self.y - sin * self.x,
            z: self.z,
        }
    }

    pub(crate) fn is_finite(self) -> bool {
        [self.x, self.y, self.z].into_iter().all(f64::is_finite)
    }

    /// The least distance of the straight line between two positions from the Earth's centre.
    pub(crate) fn closest_approach(self, other: Self) -> f64 {
        let along = other.minus(self);
        let length_2 = along.dot(along);
        if length_2 == 0.0 {
            return self.norm();
        }
        let share = (-self.dot(along) / length_2).clamp(0.0, 1.0);
        let nearest = Self {
            x: self.x + share * along.x,
            y: self.y + share * along.y,
            z: self.z + share * along.z,
        };
        nearest.norm()
    }
}

/// The time that light takes over a distance in vacuum, to a nanosecond; zero for what is no distance.
pub fn propagation(distance_km: f64) -> Duration {
    let seconds = distance_km / LIGHT_KM_PER_S;
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ellipsoid_has_its_axes() {
        let pole = Position::on_ground(90.0, 0.0);
        assert!((pole.z - 6_356.752_314).abs() < 1e-5 && pole.x.abs() < 1e-9);
        let equator = Position::on_ground(0.0, 90.0);
        assert!((equator.y - EARTH_RADIUS_KM).abs() < 1e-9 && equator.z.abs() < 1e-9);
        // Geodetic and geocentric latitude differ most at 45°, by 0.1924°.
        let (latitude, longitude) = Position::on_ground(45.0, -100.0).latitude_longitude();
        assert!((latitude - 44.807_576).abs() < 1e-5, "{latitude}");
        assert!((longitude + 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_passes_the_earth_where_geometry_says() {
        // Two satellites at equal height, a right angle apart: the middle is closer by √2.
        let (a, b) = (
            Position::new([7000.0, 0.0, 0.0]),
            Position::new([0.0, 7000.0, 0.0]),
        );
        assert!((a.closest_approach(b) - 7000.0 / 2f64.sqrt()).abs() < 1e-9);
        // One above the other: the lower one.
        let above = Position::new([8000.0, 0.0, 0.0]);
        assert!((a.closest_approach(above) - 7000.0).abs() < 1e-9);
        assert_eq!(a.closest_approach(a), 7000.0);
    }

    #[test]
    fn light_takes_a_second_for_its_speed() {
        assert_eq!(propagation(LIGHT_KM_PER_S), Duration::from_secs(1));
        assert_eq!(propagation(f64::NAN), Duration::ZERO);
    }
}
