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

fn link_planes(planes: &[Vec<Member>], links: &mut Vec<(u32, u32)>) {
    for (number, plane) in planes.iter().enumerate() {
        // Of two planes, each is the other's neighbour once.
        let last = number + 1 == planes.len();
        if last && planes.len() < 3 {
            break;
        }
        let Some(next) = planes.get((number + 1) % planes.len()) else {
            break;
        };
        let gap = match (node(Some(plane)), node(Some(next))) {
            (Some(here), Some(there)) => (there - here).rem_euclid(360.0),
            _ => continue,
        };
        if gap <= NEIGHBOUR_DEG {
            link_pair(plane, next, links);
        }
    }
}

/// Links satellites of two planes, the nearest in phase first.
fn link_pair(plane: &[Member], next: &[Member], links: &mut Vec<(u32, u32)>) {
    let mut pairs = Vec::new();
    for (here, a) in plane.iter().enumerate() {
        let after = next.partition_point(|b| b.2.latitude < a.2.latitude);
        // Two on each side: more are nearer to others.
        for step in 0..4.min(next.len()) {
            let there = (after + next.len() + step - 2.min(next.len())) % next.len();
            let Some(b) = next.get(there) else { continue };
            let phase = (a.2.latitude - b.2.latitude).rem_euclid(TAU);
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
