//! +Grid links among satellites whose planes are not known: four lasers each, to both neighbours in the plane and to one
//! in each plane beside it.

use std::f64::consts::TAU;

use crate::{Position, geometry::EARTH_RADIUS_KM};

/// Satellites whose inclinations differ by no more are in one shell, degrees.
const SHELL_INCLINATION_DEG: f64 = 1.0;
/// Satellites whose semi-major axes differ by no more are in one shell, km.
const SHELL_ALTITUDE_KM: f64 = 15.0;
/// Satellites whose ascending nodes differ by no more are in one plane, degrees.
const PLANE_DEG: f64 = 1.0;
/// Planes whose ascending nodes differ by more are no neighbours: across the seam of a star, satellites meet head on.
const NEIGHBOUR_DEG: f64 = 90.0;
/// Standard gravitational parameter of the Earth, km³/s².
const MU: f64 = 398_600.441_8;
/// Light that passes lower is bent and absorbed by the air, km.
pub(crate) const LEAST_GRAZING_KM: f64 = 80.0;

/// Position and velocity in axes that do not turn, km and km/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) position: Position,
    pub(crate) velocity: Position,
}

/// The osculating elements that tell planes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orbit {
    pub(crate) inclination_deg: f64,
    semi_major_km: f64,
    /// Right ascension of the ascending node, degrees from 0 to 360.
    node_deg: f64,
    /// Angle from the ascending node, radians from 0 to 2π.
    latitude: f64,
}

impl State {
    pub(crate) fn orbit(self) -> Orbit {
        let Self { position, velocity } = self;
        let momentum = position.cross(velocity);
        let node = momentum.x.atan2(-momentum.y);
        let energy = velocity.dot(velocity) / 2.0 - MU / position.norm();
        let to_node = Position::up(0.0, node.to_degrees());
        let ahead = momentum.cross(to_node);
        let latitude = (position.dot(ahead) / momentum.norm()).atan2(position.dot(to_node));
        Orbit {
            inclination_deg: (momentum.z / momentum.norm()).acos().to_degrees(),
            semi_major_km: -MU / (2.0 * energy),
            node_deg: node.to_degrees().rem_euclid(360.0),
            latitude: latitude.rem_euclid(TAU),
        }
    }
}

/// Whether light passes between two satellites above the air.
pub(crate) fn sees(a: Position, b: Position) -> bool {
    a.closest_approach(b) > EARTH_RADIUS_KM + LEAST_GRAZING_KM
}

/// Pairs of satellites that keep a laser link. Satellites are grouped into shells by inclination and height, and into
/// planes by their ascending nodes; in a plane each is linked to the next, and between neighbouring planes the nearest in
/// phase are, each to at most one.
pub(crate) fn plus_grid(states: &[Option<State>]) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, State, Orbit)> = Vec::new();
    for (number, state) in (0..).zip(states) {
        all.extend(state.map(|state| (number, state, state.orbit())));
    }
    // Osculating elements of an escaping satellite make no plane.
    all.retain(|(_, _, orbit)| {
        orbit.semi_major_km > 0.0 && orbit.node_deg.is_finite() && orbit.latitude.is_finite()
    });
    let mut links = Vec::new();
    for inclined in clusters(all, SHELL_INCLINATION_DEG, |member| {
        member.2.inclination_deg
    }) {
        for shell in clusters(inclined, SHELL_ALTITUDE_KM, |member| member.2.semi_major_km) {
            let planes = planes(shell);
            planes
                .iter()
                .for_each(|plane| link_plane(plane, &mut links));
            link_planes(&planes, &mut links);
        }
    }
    links
}

type Member = (u32, State, Orbit);

/// Groups between which `value` has a gap of more than `gap`.
fn clusters(
    mut members: Vec<Member>,
    gap: f64,
    value: impl Fn(&Member) -> f64,
) -> Vec<Vec<Member>> {
    members.sort_by(|a, b| value(a).total_cmp(&value(b)).then(a.0.cmp(&b.0)));
    let mut groups: Vec<Vec<Member>> = Vec::new();
    for member in members {
        let last = groups.last().and_then(|group| group.last());
        match last.is_some_and(|last| value(&member) - value(last) <= gap) {
            true => groups
                .last_mut()
                .map(|group| group.push(member))
                .unwrap_or_default(),
            false => groups.push(vec![member]),
        }
    }
    groups
}

/// The planes of a shell by rising node, each by phase.
fn planes(shell: Vec<Member>) -> Vec<Vec<Member>> {
    let mut planes = clusters(shell, PLANE_DEG, |member| member.2.node_deg);
    // A plane around the node 0° was cut there.
    let ends = (node(planes.first()), node(planes.last()));
    if let (true, (Some(first), Some(_))) = (planes.len() > 1, ends) {
        let last = planes.last().and_then(|plane| plane.last());
        let last_deg = last.map_or(0.0, |member| member.2.node_deg);
        if first + 360.0 - last_deg <= PLANE_DEG
            && let Some(cut) = planes.pop()
            && let Some(plane) = planes.first_mut()
        {
            plane.extend(cut);
        }
    }
    for plane in &mut planes {
        plane.sort_by(|a, b| a.2.latitude.total_cmp(&b.2.latitude).then(a.0.cmp(&b.0)));
    }
    planes
}

fn node(plane: Option<&Vec<Member>>) -> Option<f64> {
    plane?.first().map(|member| member.2.node_deg)
}

fn link_plane(plane: &[Member], links: &mut Vec<(u32, u32)>) {
    let next = plane.iter().skip(1);
    links.extend(plane.iter().zip(next).map(|(a, b)| (a.0, b.0)));
    if let ([first, .., last], true) = (plane, plane.len() > 2) {
        links.push((last.0, first.0));
    }
}

/// Links each plane to the one that follows it eastwards. Of two planes each may be that one: where they lie to either side of
/// node 0°, the second comes first.
fn link_planes(planes: &[Vec<Member>], links: &mut Vec<(u32, u32)>) {
    if planes.len() < 2 {
        return;
    }
    let following = planes.iter().cycle().skip(1);
    for (plane, next) in planes.iter().zip(following) {
        let gap = match (node(Some(plane)), node(Some(next))) {
            (Some(here), Some(there)) => (there - here).rem_euclid(360.0),
            _ => continue,
        };
        if gap <= NEIGHBOUR_DEG {
            link_pair(plane, next, links);
        }
    }
}

/// How far the nearest satellite of the next plane is ahead, as the median of all, radians: where planes are half a slot
/// apart, all links then go to the same side, and none is left over.
fn shift(plane: &[Member], next: &[Member]) -> f64 {
    let ahead = |a: &Member| {
        let after = next.partition_point(|b| b.2.latitude < a.2.latitude);
        let first = next.get(after % next.len().max(1));
        first.map(|b| (b.2.latitude - a.2.latitude).rem_euclid(TAU))
    };
    let mut all: Vec<f64> = plane.iter().filter_map(ahead).collect();
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).copied().unwrap_or_default();
    let slot = TAU / f64::from(u16::try_from(next.len()).unwrap_or(u16::MAX).max(1));
    if median > slot / 2.0 {
        median - slot
    } else {
        median
    }
}

/// Links satellites of two planes, those first that are apart as most are.
fn link_pair(plane: &[Member], next: &[Member], links: &mut Vec<(u32, u32)>) {
    let shift = shift(plane, next);
    let mut pairs = Vec::new();
    for (here, a) in plane.iter().enumerate() {
        let wanted = (a.2.latitude + shift).rem_euclid(TAU);
        let after = next.partition_point(|b| b.2.latitude < wanted);
        // Two on each side: those beyond are nearer to others.
        for step in 0..4.min(next.len()) {
            let there = (after + next.len() + step - 2.min(next.len())) % next.len();
            let Some(b) = next.get(there) else { continue };
            let phase = (wanted - b.2.latitude).rem_euclid(TAU);
            if sees(a.1.position, b.1.position) {
                pairs.push((phase.min(TAU - phase), here, there, a.0, b.0));
            }
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let (mut taken, mut taken_next) = (vec![false; plane.len()], vec![false; next.len()]);
    for (_, here, there, a, b) in pairs {
        if !taken[here] && !taken_next[there] {
            taken[here] = true;
            taken_next[there] = true;
            links.push((a, b));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shell;

    /// States on circles, as two bodies move.
    fn states(shell: &Shell) -> Vec<Option<State>> {
        let radius = EARTH_RADIUS_KM + shell.altitude_km();
        let speed = (MU / radius).sqrt();
        let planes = (0..shell.planes)
            .flat_map(|plane| (0..shell.satellites).map(move |slot| (plane, slot)));
        let state = |(plane, slot)| {
            let orbit = shell.orbit(plane, slot);
            let ((sin, cos), (sin_i, cos_i)) =
                (orbit.mean_anomaly.sin_cos(), orbit.inclination.sin_cos());
            let place = |x: f64, y: f64| {
                Position::new([x, y * cos_i, y * sin_i]).turned(-orbit.right_ascension)
            };
            Some(State {
                position: place(radius * cos, radius * sin),
                velocity: place(-speed * sin, speed * cos),
            })
        };
        planes.map(state).collect()
    }

    #[test]
    fn planes_and_neighbours_are_found_without_their_numbers() {
        for text in [
            "starlink",
            "kuiper",
            "oneweb",
            "planes=9,satellites=14,altitude=900,inclination=70,phasing=2",
        ] {
            let shell: Shell = text.parse().unwrap();
            let sorted = |links: Vec<(u32, u32)>| {
                let mut links: Vec<_> = links
                    .into_iter()
                    .map(|(a, b)| (a.min(b), a.max(b)))
                    .collect();
                links.sort_unstable();
                links
            };
            let (found, real) = (sorted(plus_grid(&states(&shell))), sorted(shell.grid()));
            let planes = |links: &[(u32, u32)]| {
                let plane = |number: u32| number / u32::from(shell.satellites);
                links
                    .iter()
                    .filter(|(a, b)| plane(*a) == plane(*b))
                    .copied()
                    .collect::<Vec<_>>()
            };
            assert_eq!(planes(&found), planes(&real), "{text}: links within planes");
            // Where a neighbour is half a slot ahead and another behind, either will do.
            assert_eq!(found.len(), real.len(), "{text}");
        }
    }

    /// Where the first plane lies is no matter of how satellites are linked.
    #[test]
    fn planes_to_either_side_of_node_0_are_neighbours() {
        for (text, between) in [
            (
                "planes=2,satellites=12,altitude=550,inclination=53,spread=40",
                12,
            ),
            (
                "planes=3,satellites=12,altitude=550,inclination=53,spread=60",
                24,
            ),
            (
                "planes=2,satellites=12,altitude=550,inclination=53,spread=359",
                0,
            ),
        ] {
            let shell: Shell = text.parse().unwrap();
            for turned in [0.0, 90.0, 180.0, 270.0, 350.0_f64] {
                let turn = |at: Position| at.turned(-turned.to_radians());
                let states = states(&shell).into_iter().map(|state| {
                    state.map(|State { position, velocity }| State {
                        position: turn(position),
                        velocity: turn(velocity),
                    })
                });
                let links = plus_grid(&states.collect::<Vec<_>>());
                let across = links.iter().filter(|(a, b)| a / 12 != b / 12);
                assert_eq!(across.count(), between, "{text}, turned by {turned}°");
            }
        }
    }

    #[test]
    fn elements_are_those_of_the_orbit() {
        let shell: Shell = "planes=8,satellites=5,altitude=700,inclination=64.3"
            .parse()
            .unwrap();
        for (number, state) in states(&shell).into_iter().flatten().enumerate() {
            let orbit = state.orbit();
            let (plane, slot) = (number / 5, number % 5);
            assert!((orbit.inclination_deg - 64.3).abs() < 1e-6);
            assert!((orbit.semi_major_km - EARTH_RADIUS_KM - 700.0).abs() < 0.1);
            let apart = |a: f64, b: f64| (a - b + 180.0).rem_euclid(360.0) - 180.0;
            assert!(apart(orbit.node_deg, 45.0 * plane as f64).abs() < 1e-6);
            assert!(apart(orbit.latitude.to_degrees(), 72.0 * slot as f64).abs() < 1e-6);
        }
    }
}
