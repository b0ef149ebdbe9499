//! +Grid links among satellites whose planes are not known: four lasers each, to both neighbours in the plane and to one
//! in each plane beside it.

use std::f64::consts::TAU;

use crate::{Position, geometry::EARTH_RADIUS_KM};

/// Between two shells there is at least this much inclination without satellites, degrees: Starlink's of 53.05 and 53.22 are at
/// nearly the same height.
const SHELL_GAP_DEG: f64 = 0.1;
/// Satellites whose inclinations differ by more are not in one shell, degrees.
const SHELL_WIDTH_DEG: f64 = 1.0;
/// Between two shells there is at least this much height without satellites, km. The planes of one are set some kilometres
/// apart on purpose, so that satellites do not meet at the poles: OneWeb's by 4.
const SHELL_GAP_KM: f64 = 5.0;
/// Satellites whose heights differ by more are not in one shell, km: those on their way up or down lie close to each other.
const SHELL_WIDTH_KM: f64 = 50.0;
/// Satellites whose ascending nodes differ by no more are in one plane, degrees.
const PLANE_DEG: f64 = 1.0;
/// Planes whose ascending nodes differ by more are no neighbours: across the seam of a star, satellites meet head on.
const NEIGHBOUR_DEG: f64 = 90.0;
/// Standard gravitational parameter of the Earth, km³/s².
const MU: f64 = 398_600.441_8;
/// Second zonal harmonic of the Earth's field (WGS 84): its oblateness.
const J2: f64 = 0.001_082_629_989;
/// Light that passes lower above the equator's radius is bent and absorbed by the air, km: satellites between which the
/// straight line does are out of sight of each other.
pub const LEAST_GRAZING_KM: f64 = 80.0;

/// Position and velocity in axes that do not turn, km and km/s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) position: Position,
    pub(crate) velocity: Position,
}

/// The elements that tell planes apart: osculating ones, but for the inclination and the axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orbit {
    /// That of the mean orbit; the osculating one varies by 0.04 degrees along an orbit at 53.
    pub(crate) inclination_deg: f64,
    /// Semi-major axis by the energy in the field of an oblate Earth, which stays the same all along an orbit; the osculating
    /// one varies by 12 km at an inclination of 53 degrees.
    pub(crate) semi_major_km: f64,
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
        let energy = velocity.dot(velocity) / 2.0 + potential(position);
        let to_node = Position::up(0.0, node.to_degrees());
        let ahead = momentum.cross(to_node);
        let latitude = (position.dot(ahead) / momentum.norm()).atan2(position.dot(to_node));
        let semi_major_km = -MU / (2.0 * energy);
        let tilt = (momentum.z / momentum.norm()).acos();
        // What the oblateness adds twice in a revolution (Hoots and Roehrich 1980, as SGP4 does).
        let flat = EARTH_RADIUS_KM / semi_major_km;
        let periodic = 0.375 * J2 * flat * flat * (2.0 * tilt).sin() * (2.0 * latitude).cos();
        Orbit {
            inclination_deg: (tilt - periodic).to_degrees(),
            semi_major_km,
            node_deg: node.to_degrees().rem_euclid(360.0),
            latitude: latitude.rem_euclid(TAU),
        }
    }
}

/// Energy of position per mass in the field of an oblate Earth, km²/s².
fn potential(position: Position) -> f64 {
    let radius = position.norm();
    let (flat, sine) = (EARTH_RADIUS_KM / radius, position.z / radius);
    -MU / radius * (1.0 - J2 / 2.0 * flat * flat * (3.0 * sine * sine - 1.0))
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
    // The elements of an escaping satellite make no plane.
    all.retain(|(_, _, orbit)| {
        orbit.semi_major_km > 0.0 && orbit.node_deg.is_finite() && orbit.latitude.is_finite()
    });
    let mut links = Vec::new();
    let inclinations = [SHELL_GAP_DEG, SHELL_WIDTH_DEG];
    for inclined in groups(all, inclinations, |member| member.2.inclination_deg) {
        let heights = [SHELL_GAP_KM, SHELL_WIDTH_KM];
        for shell in groups(inclined, heights, |member| member.2.semi_major_km) {
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

/// Groups by a rising `value` with more than `gap` between them. One wider than `width` is cut where it is sparsest: a shell is
/// denser than what is on its way to or from it.
fn groups(
    members: Vec<Member>,
    [gap, width]: [f64; 2],
    value: impl Fn(&Member) -> f64,
) -> Vec<Vec<Member>> {
    let mut wide = clusters(members, [gap, f64::INFINITY], &value);
    wide.reverse();
    let mut narrow = Vec::new();
    while let Some(mut group) = wide.pop() {
        match widest_gap(&group, width, &value) {
            Some(place) => {
                wide.push(group.split_off(place));
                wide.push(group);
            }
            None => narrow.push(group),
        }
    }
    narrow
}

/// The member that follows the widest gap in the middle half of a group wider than `width`: an end would be cut off member by
/// member otherwise.
fn widest_gap(group: &[Member], width: f64, value: impl Fn(&Member) -> f64) -> Option<usize> {
    let (least, most) = (value(group.first()?), value(group.last()?));
    if most - least <= width {
        return None;
    }
    let following = group.iter().enumerate().skip(1);
    let gaps = group.iter().zip(following).map(|(before, (place, after))| {
        let (before, after) = (value(before), value(after));
        let off = (f64::midpoint(before, after) - f64::midpoint(least, most)).abs();
        (after - before, off, place)
    });
    let inner = gaps.filter(|(_, off, _)| *off <= (most - least) / 4.0);
    let widest = inner.max_by(|a, b| a.0.total_cmp(&b.0));
    widest.map(|(_, _, place)| place)
}

/// Groups by a rising `value`: in each it is at most `gap` more than that of the member before, and at most `width` more than
/// that of the first.
fn clusters(
    mut members: Vec<Member>,
    [gap, width]: [f64; 2],
    value: impl Fn(&Member) -> f64,
) -> Vec<Vec<Member>> {
    members.sort_by(|a, b| value(a).total_cmp(&value(b)).then(a.0.cmp(&b.0)));
    let mut groups: Vec<Vec<Member>> = Vec::new();
    for member in members {
        let within = |other: Option<&Member>, distance: f64| {
            other.is_some_and(|other| value(&member) - value(other) <= distance)
        };
        match groups.last_mut() {
            Some(group) if within(group.last(), gap) && within(group.first(), width) => {
                group.push(member);
            }
            _ => groups.push(vec![member]),
        }
    }
    groups
}

/// The planes of a shell by rising node, each by phase.
fn planes(shell: Vec<Member>) -> Vec<Vec<Member>> {
    let begin = after_widest_gap(&shell);
    let mut planes = clusters(shell, [PLANE_DEG; 2], |member| {
        (member.2.node_deg - begin).rem_euclid(360.0)
    });
    for plane in &mut planes {
        plane.sort_by(|a, b| a.2.latitude.total_cmp(&b.2.latitude).then(a.0.cmp(&b.0)));
    }
    planes
}

/// The node that follows the widest gap of them, degrees: counted from there no plane is cut, as one around 0° would be.
fn after_widest_gap(shell: &[Member]) -> f64 {
    let mut nodes: Vec<f64> = shell.iter().map(|member| member.2.node_deg).collect();
    nodes.sort_by(f64::total_cmp);
    let before = nodes.iter().cycle().skip(nodes.len().saturating_sub(1));
    let gaps = nodes
        .iter()
        .zip(before)
        .map(|(node, before)| ((node - before).rem_euclid(360.0), *node));
    let widest = gaps.max_by(|a, b| a.0.total_cmp(&b.0));
    widest.map_or(0.0, |(_, node)| node)
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

    /// States on orbits that are nearly circles.
    fn states(shell: &Shell) -> Vec<Option<State>> {
        states_at(shell, |_| shell.altitude_km())
    }

    /// The same, with a height of its own for each plane.
    fn states_at(shell: &Shell, altitude_km: impl Fn(u16) -> f64) -> Vec<Option<State>> {
        let planes = (0..shell.planes)
            .flat_map(|plane| (0..shell.satellites).map(move |slot| (plane, slot)));
        let state = |(plane, slot)| {
            let orbit = shell.orbit(plane, slot);
            let radius = EARTH_RADIUS_KM + altitude_km(plane);
            let ((sin, cos), (sin_i, cos_i)) =
                (orbit.mean_anomaly.sin_cos(), orbit.inclination.sin_cos());
            let place = |x: f64, y: f64| {
                Position::new([x, y * cos_i, y * sin_i]).turned(-orbit.right_ascension)
            };
            let position = place(radius * cos, radius * sin);
            // As fast as the energy of the orbit allows there.
            let speed = (-MU / radius - 2.0 * potential(position)).sqrt();
            Some(State {
                position,
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

    /// Number of links between planes of a star of 12 satellites each that rise by `rise_km` each.
    fn links_across(planes: u16, rise_km: f64) -> usize {
        let text =
            format!("planes={planes},satellites=12,altitude=1100,inclination=87.9,spread=180");
        let shell: Shell = text.parse().unwrap();
        let states = states_at(&shell, |plane| 1100.0 + rise_km * f64::from(plane));
        let links = plus_grid(&states).into_iter();
        links.filter(|(a, b)| a / 12 != b / 12).count()
    }

    #[test]
    fn planes_set_apart_are_one_shell_and_what_climbs_through_many_heights_is_none() {
        // OneWeb's planes are set apart like this.
        assert_eq!(links_across(12, 4.0), 11 * 12);
        // Each is a shell of its own.
        assert_eq!(links_across(6, 10.0), 0);
        // 76 km are two groups, or three.
        assert!([17 * 12, 18 * 12].contains(&links_across(20, 4.0)));
    }

    #[test]
    fn what_climbs_towards_a_shell_does_not_cut_it() {
        let text = "planes=20,satellites=12,altitude=1100,inclination=87.9,spread=180";
        // Each 4 km above the one before, and from the 13th on half a kilometre: from 49 to 52 km above the first.
        let states = states_at(&text.parse().unwrap(), |plane| match f64::from(plane) {
            climbing if climbing < 13.0 => 1100.0 + 4.0 * climbing,
            there => 1149.0 + 0.5 * (there - 13.0),
        });
        let links = plus_grid(&states).into_iter();
        let planes = links.map(|(a, b)| (a / 12, b / 12));
        let across: Vec<_> = planes.filter(|(a, b)| a != b).collect();
        assert_eq!(across.len(), 18 * 12, "two groups");
        let of_shell = across.iter().filter(|(a, b)| *a.min(b) >= 13);
        assert_eq!(of_shell.count(), 6 * 12, "all of the shell");
    }

    #[test]
    fn two_shells_of_nearly_the_same_inclination_and_height_share_no_link() {
        let states: Vec<_> = [
            "altitude=547,inclination=53.05",
            "altitude=545,inclination=53.22",
        ]
        .iter()
        .flat_map(|of| states(&format!("planes=12,satellites=12,{of}").parse().unwrap()))
        .collect();
        let links = plus_grid(&states);
        assert_eq!(links.len(), 2 * 2 * 144);
        let shared = links.iter().filter(|(a, b)| (*a < 144) != (*b < 144));
        assert_eq!(shared.count(), 0);
    }

    #[test]
    fn elements_are_those_of_the_orbit() {
        let shell: Shell = "planes=8,satellites=5,altitude=700,inclination=64.3"
            .parse()
            .unwrap();
        for (number, state) in states(&shell).into_iter().flatten().enumerate() {
            let orbit = state.orbit();
            let (plane, slot) = (number / 5, number % 5);
            // A circle is no mean orbit: the oblateness turns its plane a little on the way.
            assert!((orbit.inclination_deg - 64.3).abs() < 0.02);
            assert!((orbit.semi_major_km - EARTH_RADIUS_KM - 700.0).abs() < 0.1);
            let apart = |a: f64, b: f64| (a - b + 180.0).rem_euclid(360.0) - 180.0;
            assert!(apart(orbit.node_deg, 45.0 * plane as f64).abs() < 1e-6);
            assert!(apart(orbit.latitude.to_degrees(), 72.0 * slot as f64).abs() < 1e-6);
        }
    }
}
