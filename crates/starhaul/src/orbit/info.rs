//! `starhaul orbit info`: what a constellation consists of, and what stations see of it.

use std::{fmt::Write as _, time::Duration};

use serde_json::json;
use starhaul_orbit::{CITIES, Network};

use super::InfoArguments;
use crate::output::print;

pub(super) fn run(arguments: &InfoArguments) -> anyhow::Result<()> {
    if arguments.cities {
        return print(cities(arguments.json));
    }
    let network = arguments.source.network(0)?;
    let facts = Facts::of(&network);
    print(match arguments.json {
        true => facts.json(&network),
        false => facts.text(&network),
    })
}

fn cities(as_json: bool) -> String {
    if as_json {
        let city = |(name, latitude, longitude): &(&str, f64, f64)| json!({ "name": name, "latitude_deg": latitude, "longitude_deg": longitude });
        return format!("{:#}\n", json!(CITIES.iter().map(city).collect::<Vec<_>>()));
    }
    let mut text = String::new();
    for (name, latitude, longitude) in &CITIES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<18} {latitude:>7.2} {longitude:>8.2}");
    }
    text
}

/// A constellation at its start.
struct Facts {
    lasers: usize,
    lasers_seeing: usize,
    extent: Option<([f64; 2], [f64; 2])>,
    /// Of each station: satellites in reach, and the nearest, km.
    reach: Vec<(usize, Option<f64>)>,
}

impl Facts {
    fn of(network: &Network) -> Self {
        let snapshot = network.at(Duration::ZERO);
        let constellation = network.constellation();
        let reach = (0..network.stations().len()).map(|number| {
            let node = network.station_node(number);
            let links = snapshot.ground_links().iter().filter(|link| link.0 == node);
            let distances: Vec<f64> = links.map(|link| link.2).collect();
            let nearest = distances.iter().copied().reduce(f64::min);
            (distances.len(), nearest)
        });
        Self {
            lasers: constellation.lasers().len(),
            lasers_seeing: snapshot.laser_links().len(),
            extent: constellation.extent(Duration::ZERO),
            reach: reach.collect(),
        }
    }

    fn text(&self, network: &Network) -> String {
        let constellation = network.constellation();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<16} {value}");
        };
        line("begins", constellation.start().to_string());
        line("satellites", constellation.satellites().len().to_string());
        if constellation.left_out() > 0 {
            let left_out = constellation.left_out();
            line(
                "left out",
                format!(
                    "{left_out}, not in service, decayed, without a usable orbit or with elements of another year"
                ),
            );
        }
        if let Some(([low, high], [flat, steep])) = self.extent {
            line(
                "altitude",
                format!("{low:.0} to {high:.0} km above the equator's radius"),
            );
            line("inclination", format!("{flat:.1} to {steep:.1} degrees"));
        }
        line(
            "laser links",
            format!("{}, of which {} in sight", self.lasers, self.lasers_seeing),
        );
        for (station, (satellites, nearest)) in network.stations().iter().zip(&self.reach) {
            let nearest =
                nearest.map_or_else(String::new, |km| format!(", the nearest at {km:.0} km"));
            line(
                station.name(),
                format!("{satellites} satellites in reach{nearest}"),
            );
        }
        text
    }

    fn json(&self, network: &Network) -> String {
        let constellation = network.constellation();
        let stations = network.stations().iter().zip(&self.reach);
        let stations = stations.map(|(station, (satellites, nearest))| {
            let (latitude, longitude) = station.coordinates();
            json!({
                "name": station.name(),
                "latitude_deg": latitude,
                "longitude_deg": longitude,
                "satellites_in_reach": satellites,
                "nearest_km": nearest,
            })
        });
        let facts = json!({
            "start": constellation.start().to_string(),
            "satellites": constellation.satellites().len(),
            "left_out": constellation.left_out(),
            "altitude_km": self.extent.map(|extent| extent.0),
            "inclination_deg": self.extent.map(|extent| extent.1),
            "laser_links": self.lasers,
            "laser_links_in_sight": self.lasers_seeing,
            "stations": stations.collect::<Vec<_>>(),
        });
        format!("{facts:#}\n")
    }
}
