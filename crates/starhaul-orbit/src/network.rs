//! Satellites, lasers and ground stations together, and the shortest paths among the stations over time.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    Constellation, Error, Figures, Graph, GroundStation, MAX_STEP, MAX_STEPS, PathOverTime,
    Position, Tree, grid::sees, propagation, setting,
};

/// Most ground stations of a network.
const MAX_STATIONS: usize = 1_000;

/// Rules for the links that exist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// A station uses satellites from this elevation above its horizon on, degrees.
    pub min_elevation_deg: f64,
    /// A station uses satellites up to this distance, if set, km.
    pub max_range_km: Option<f64>,
    /// Whether satellites have lasers to each other.
    pub lasers: bool,
    /// Whether paths may go down to a station and up again (bent pipe).
    pub relay: bool,
}

impl Default for Rules {
    /// 25 degrees, and lasers only.
    fn default() -> Self {
        Self {
            min_elevation_deg: 25.0,
            max_range_km: None,
            lasers: true,
            relay: false,
        }
    }
}

/// A constellation with its ground stations.
#[derive(Clone, Debug)]
pub struct Network {
    constellation: Constellation,
    stations: Vec<GroundStation>,
    rules: Rules,
}

/// A network at an instant. Nodes are the satellites by index, then the stations.
#[derive(Clone, Debug)]
pub struct Snapshot {
    positions: Vec<Option<Position>>,
    ground_links: Vec<(u32, u32, f64)>,
    laser_links: Vec<(u32, u32)>,
    graph: Graph,
    relay: bool,
}

/// A path at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Nodes of the network, the stations at both ends included.
    pub nodes: Vec<u32>,
    /// Time that light takes over each link; one less than there are nodes.
    pub delays: Vec<Duration>,
}

impl Route {
    /// Time that light takes over all links.
    pub fn propagation(&self) -> Duration {
        self.delays.iter().sum()
    }
}

impl Network {
    /// A network by its rules.
    ///
    /// # Errors
    /// [`Error::Setting`] for rules that no station can keep, and [`Error::Station`] for two stations of one name or too
    /// many of them.
    pub fn new(
        constellation: Constellation,
        stations: Vec<GroundStation>,
        rules: Rules,
    ) -> Result<Self, Error> {
        if !(0.0..90.0).contains(&rules.min_elevation_deg) {
            let range = "an elevation is at least 0 and less than 90 degrees";
            return Err(setting("elevation", rules.min_elevation_deg, range));
        }
        match rules.max_range_km {
            Some(range) if range.is_nan() || range <= 0.0 => {
                return Err(setting("range", range, "a range is more than 0 km"));
            }
            _ => {}
        }
        let named = |text: &str, reason: String| Error::Station {
            text: text.to_owned(),
            reason,
        };
        for (number, station) in stations.iter().enumerate() {
            let name = station.name();
            if number == MAX_STATIONS {
                return Err(named(name, format!("a network has at most {MAX_STATIONS}")));
            }
            if stations[..number].iter().any(|other| other.name() == name) {
                return Err(named(name, "it is given twice".to_owned()));
            }
        }
        Ok(Self {
            constellation,
            stations,
            rules,
        })
    }

    /// The satellites of the network.
    pub fn constellation(&self) -> &Constellation {
        &self.constellation
    }

    /// The ground stations; others name them by their index.
    pub fn stations(&self) -> &[GroundStation] {
        &self.stations
    }

    /// The node of a station.
    pub fn station_node(&self, station: usize) -> u32 {
        let node = self.constellation.satellites().len() + station;
        u32::try_from(node).unwrap_or(u32::MAX)
    }

    /// The name of a node; empty for none.
    pub fn node_name(&self, node: u32) -> &str {
        let satellites = self.constellation.satellites();
        let node = node as usize;
        match satellites.get(node) {
            Some(satellite) => satellite.name(),
            None => {
                let station = self.stations.get(node - satellites.len());
                station.map_or("", GroundStation::name)
            }
        }
    }

    /// The pairs of satellites that keep a laser link, in sight or not; none where the rules have no lasers.
    pub fn lasers(&self) -> &[(u32, u32)] {
        match self.rules.lasers {
            true => self.constellation.lasers(),
            false => &[],
        }
    }

    /// The links at an instant.
    pub fn at(&self, offset: Duration) -> Snapshot {
        let positions = self.constellation.positions(offset);
        let mut links = Vec::new();
        for &(a, b) in self.lasers() {
            let place = |node: u32| positions.get(node as usize).copied().flatten();
            if let (Some(from), Some(to)) = (place(a), place(b))
                && sees(from, to)
            {
                links.push((a, b, from.distance(to)));
            }
        }
        let laser_links = links.iter().map(|&(a, b, _)| (a, b)).collect();
        let mut ground_links = Vec::new();
        let least_sine = self.rules.min_elevation_deg.to_radians().sin();
        let range = self.rules.max_range_km.unwrap_or(f64::INFINITY);
        for (number, station) in self.stations.iter().enumerate() {
            let node = self.station_node(number);
            for (satellite, position) in (0..).zip(&positions) {
                let Some(position) = position else { continue };
                let (distance, sine) = station.view(*position);
                if sine >= least_sine && distance <= range {
                    ground_links.push((node, satellite, distance));
                }
            }
        }
        links.extend(&ground_links);
        let nodes = positions.len() + self.stations.len();
        Snapshot {
            graph: Graph::new(nodes, &links),
            positions,
            ground_links,
            laser_links,
            relay: self.rules.relay,
        }
    }

    /// The shortest path between two stations at each step: from 0 to `duration`, which is rounded up to whole steps.
    ///
    /// # Errors
    /// [`Error::Setting`] for stations that do not exist, or a duration of no or too many steps.
    pub fn path(
        &self,
        from: usize,
        to: usize,
        duration: Duration,
        step: Duration,
    ) -> Result<PathOverTime, Error> {
        let mut paths = self.paths(&[(from, to)], duration, step, |_, _| ())?;
        paths
            .pop()
            .ok_or_else(|| setting("station", from, "there is no such station"))
    }

    /// The paths of several pairs of stations, as [`Network::path`] each. Tells after each step how many are done, and of
    /// how many.
    ///
    /// # Errors
    /// As [`Network::path`].
    pub fn paths(
        &self,
        pairs: &[(usize, usize)],
        duration: Duration,
        step: Duration,
        told: impl FnMut(u32, u32),
    ) -> Result<Vec<PathOverTime>, Error> {
        let start = self.constellation.start();
        let names = |&(from, to): &(usize, usize)| {
            let name = |station| self.node_name(self.station_node(station));
            PathOverTime::new(name(from), name(to), start, step)
        };
        let mut paths: Vec<PathOverTime> = pairs.iter().map(names).collect();
        // Where each node of the network is in the list of nodes of a path.
        let mut places: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); pairs.len()];
        for (places, (from, to)) in places.iter_mut().zip(pairs) {
            places.extend([(self.station_node(*from), 0), (self.station_node(*to), 1)]);
        }
        self.walk(pairs, (duration, step), told, |pair, route| {
            let (path, places) = (&mut paths[pair], &mut places[pair]);
            let place = |node: u32| match places.get(&node) {
                Some(place) => *place,
                None => {
                    let place = path.add_node(self.node_name(node));
                    places.insert(node, place);
                    place
                }
            };
            match route {
                Some(Route { nodes, delays }) => {
                    let nodes = nodes.into_iter().map(place).collect();
                    path.push(nodes, delays);
                }
                None => path.push(Vec::new(), Vec::new()),
            }
        })?;
        Ok(paths)
    }

    /// The figures of several pairs of stations, without their paths; tells as [`Network::paths`].
    ///
    /// # Errors
    /// As [`Network::path`].
    pub fn figures(
        &self,
        pairs: &[(usize, usize)],
        duration: Duration,
        step: Duration,
        told: impl FnMut(u32, u32),
    ) -> Result<Vec<Figures>, Error> {
        let mut figures = vec![Figures::default(); pairs.len()];
        self.walk(pairs, (duration, step), told, |pair, route| match route {
            Some(route) => figures[pair].add(&route.nodes, route.propagation()),
            None => figures[pair].add(&[], Duration::ZERO),
        })?;
        Ok(figures)
    }

    /// Passes the route of each pair at each step to `visit`, step by step.
    fn walk(
        &self,
        pairs: &[(usize, usize)],
        (duration, step): (Duration, Duration),
        mut told: impl FnMut(u32, u32),
        mut visit: impl FnMut(usize, Option<Route>),
    ) -> Result<(), Error> {
        let steps = steps_of(duration, step)?;
        let mut targets: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
        for (pair, (from, to)) in pairs.iter().enumerate() {
            if from == to || *from.max(to) >= self.stations.len() {
                let problem = "a pair is two different stations of the network";
                return Err(setting("station", format!("{from} and {to}"), problem));
            }
            let target = (pair, self.station_node(*to));
            targets.entry(*from).or_default().push(target);
        }
        for number in 0..steps {
            let snapshot = self.at(step * number);
            for (from, pairs) in &targets {
                let nodes: Vec<u32> = pairs.iter().map(|(_, node)| *node).collect();
                let tree = snapshot.tree(self.station_node(*from), &nodes);
                for (pair, target) in pairs {
                    visit(*pair, snapshot.route(&tree, *target));
                }
            }
            told(number + 1, steps);
        }
        Ok(())
    }
}

fn steps_of(duration: Duration, step: Duration) -> Result<u32, Error> {
    let text = format!("{duration:?} in steps of {step:?}");
    let whole_ms = step.subsec_nanos().is_multiple_of(1_000_000);
    if step.is_zero() || step > MAX_STEP || !whole_ms || duration.is_zero() {
        let form =
            "a step is a whole number of milliseconds, at most a day, and there is at least one";
        return Err(setting("duration", text, form));
    }
    let steps = duration.as_nanos().div_ceil(step.as_nanos());
    let steps = u32::try_from(steps)
        .ok()
        .filter(|steps| *steps <= MAX_STEPS);
    steps.ok_or_else(|| {
        setting(
            "duration",
            text,
            format!("there are at most {MAX_STEPS} steps"),
        )
    })
}

impl Snapshot {
    /// Where the satellites are; `None` for one that has decayed.
    pub fn positions(&self) -> &[Option<Position>] {
        &self.positions
    }

    /// The links between stations and satellites: node of the station, satellite, and distance in km.
    pub fn ground_links(&self) -> &[(u32, u32, f64)] {
        &self.ground_links
    }

    /// The pairs of satellites whose laser link is in sight.
    pub fn laser_links(&self) -> &[(u32, u32)] {
        &self.laser_links
    }

    /// The shortest paths from a node to others.
    pub fn tree(&self, from: u32, targets: &[u32]) -> Tree {
        let satellites = self.positions.len();
        Tree::new(&self.graph, from, targets, |node| {
            self.relay || (node as usize) < satellites
        })
    }

    /// The path of a tree to a node.
    pub fn route(&self, tree: &Tree, to: u32) -> Option<Route> {
        let nodes = tree.nodes_to(to)?;
        let length = |pair: &[u32]| match pair {
            [a, b] => tree.distance(*b).unwrap_or_default() - tree.distance(*a).unwrap_or_default(),
            _ => 0.0,
        };
        let delays = nodes.windows(2).map(|pair| propagation(length(pair)));
        Some(Route {
            delays: delays.collect(),
            nodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shell;

    fn network(stations: &[&str], rules: Rules) -> Network {
        let shell: Shell = "starlink".parse().unwrap();
        let start = "2000-01-01T00:00:00Z".parse().unwrap();
        let constellation = Constellation::of_shells(&[shell], start).unwrap();
        let stations = stations.iter().map(|name| name.parse().unwrap()).collect();
        Network::new(constellation, stations, rules).unwrap()
    }

    #[test]
    fn a_path_goes_up_across_and_down_within_the_rules() {
        let network = network(&["Beijing", "Paris"], Rules::default());
        let (from, to) = (network.station_node(0), network.station_node(1));
        for second in [0, 100, 1000] {
            let snapshot = network.at(Duration::from_secs(second));
            let route = snapshot.route(&snapshot.tree(from, &[to]), to).unwrap();
            assert_eq!(
                (route.nodes[0], route.nodes[route.nodes.len() - 1]),
                (from, to)
            );
            let lasers = network.constellation().lasers();
            let inner = &route.nodes[1..route.nodes.len() - 1];
            for pair in inner.windows(2) {
                let linked =
                    lasers.contains(&(pair[0], pair[1])) || lasers.contains(&(pair[1], pair[0]));
                assert!(linked, "{pair:?} is no laser link");
            }
            for (station, satellite) in [(0, inner[0]), (1, inner[inner.len() - 1])] {
                let place = snapshot.positions()[satellite as usize].unwrap();
                let (_, sine) = network.stations()[station].view(place);
                assert!(sine.asin().to_degrees() >= 25.0);
            }
            let ends = network.stations()[0]
                .position()
                .distance(network.stations()[1].position());
            assert!(route.propagation() > propagation(ends), "faster than light");
        }
    }

    #[test]
    fn stations_relay_only_when_they_may() {
        let names = ["Beijing", "Seoul", "Osaka", "Tokyo"];
        let rules = Rules {
            lasers: false,
            ..Rules::default()
        };
        let second = Duration::from_secs(1);
        let (direct, bent) = (
            network(&names, rules),
            network(
                &names,
                Rules {
                    relay: true,
                    ..rules
                },
            ),
        );
        assert_eq!(
            direct
                .path(0, 3, second, second)
                .unwrap()
                .figures()
                .connected,
            0
        );
        let path = bent.path(0, 3, second, second).unwrap();
        let (_, step) = path.steps().next().unwrap();
        assert!(step.is_connected() && step.links() >= 4, "{step:?}");
    }

    #[test]
    fn wrong_rules_and_pairs_are_refused() {
        let network = network(&["Beijing", "Paris"], Rules::default());
        let second = Duration::from_secs(1);
        assert!(network.path(0, 0, second, second).is_err());
        assert!(network.path(0, 2, second, second).is_err());
        assert!(network.path(0, 1, second, Duration::ZERO).is_err());
        assert!(
            network
                .path(0, 1, Duration::from_secs(1 << 40), second)
                .is_err()
        );
        let constellation = network.constellation().clone();
        let twice = vec!["Paris".parse().unwrap(), "paris".parse().unwrap()];
        assert!(Network::new(constellation.clone(), twice, Rules::default()).is_err());
        let flat = Rules {
            min_elevation_deg: 90.0,
            ..Rules::default()
        };
        assert!(Network::new(constellation, Vec::new(), flat).is_err());
    }
}
