//! The constellation, ground stations and rules of a command line.

use std::{fs::File, io::BufReader, path::PathBuf};

use starhaul_orbit::{
    CITIES, Constellation, Epoch, Error, GroundStation, LEOTP_SHELL, Network, Rules, Shell,
    leotp_rules, leotp_table_2, read_tles,
};

use crate::output::{Usage, tell};

const SOURCES: &str = "\
STATION is a city that `starhaul orbit info --cities` lists, coordinates in degrees north and east (39.9,116.4; south and west
as -33.9,18.4 or 33.9S,18.4E), or a name with coordinates (Cape=-33.9,18.4).

SHELL is starlink, hypatia, kuiper, telesat, oneweb or iridium, or settings, or a name and settings that differ:
planes=72,satellites=22,altitude=550km,inclination=53,phasing=alternate. Further settings: motion=15.19 (revolutions per day,
in place of the altitude), phasing=F (Walker's factor), spread=180 (degrees over which the planes lie, 180 for a star).";

#[derive(clap::Args)]
#[command(after_long_help = SOURCES)]
pub(super) struct Source {
    /// Ground stations: cities or coordinates
    #[arg(value_name = "STATION")]
    stations: Vec<GroundStation>,
    /// The constellation and the rules of a publication: leotp, those of LEOTP's table II (the shell hypatia, and the range of its 25 degrees), and
    /// its stations if none is named
    #[arg(long, value_name = "NAME", value_parser = ["leotp"],
        conflicts_with_all = ["shell", "tle", "elevation", "range", "no_lasers", "relay"])]
    preset: Option<String>,
    /// A shell by numbers; may be repeated [default: starlink]
    #[arg(long, value_name = "SHELL", conflicts_with = "tle")]
    shell: Vec<Shell>,
    /// A file of two-line elements; may be repeated
    #[arg(long, value_name = "FILE")]
    tle: Vec<PathBuf>,
    /// When it begins, UTC [default: 2000-01-01T00:00:00Z; of elements their latest epoch]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Epoch>,
    /// Least elevation of a satellite above the horizon of a station, degrees
    #[arg(long, value_name = "DEGREES", default_value_t = 25.0)]
    elevation: f64,
    /// Greatest distance of a satellite from a station, km
    #[arg(long, value_name = "KM")]
    range: Option<f64>,
    /// Satellites have no lasers
    #[arg(long)]
    no_lasers: bool,
    /// Paths may go down to a station and up again
    #[arg(long)]
    relay: bool,
    /// The first N known cities as stations, in addition
    #[arg(long = "add-cities", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=120))]
    add_cities: u16,
}

impl Source {
    /// What the command line describes; `stations` is the least number of ground stations.
    pub(super) fn network(&self, stations: usize) -> anyhow::Result<Network> {
        let mut all = self.stations.clone();
        if self.preset.is_some() && all.is_empty() {
            all = leotp_table_2()?.stations().to_vec();
        }
        for (name, latitude, longitude) in CITIES.iter().take(self.add_cities.into()) {
            if all.iter().all(|station| station.name() != *name) {
                all.extend(GroundStation::new(name, *latitude, *longitude));
            }
        }
        if all.len() < stations {
            let problem =
                "name two ground stations, for example: starhaul orbit paths Beijing Paris";
            return Err(Usage(problem.to_owned()).into());
        }
        let rules = match self.preset {
            Some(_) => leotp_rules(),
            None => Rules {
                min_elevation_deg: self.elevation,
                max_range_km: self.range,
                lasers: !self.no_lasers,
                relay: self.relay,
            },
        };
        Ok(Network::new(self.constellation()?, all, rules)?)
    }

    /// What people call the constellation.
    pub(super) fn name(&self) -> Result<String, Error> {
        if self.tle.is_empty() {
            let shells = self.shells()?;
            let names: Vec<String> = shells.iter().map(Shell::to_string).collect();
            return Ok(names.join(" and "));
        }
        let files = self
            .tle
            .iter()
            .map(|file| file.file_stem().unwrap_or_default());
        let files: Vec<_> = files
            .map(|stem| stem.to_string_lossy().into_owned())
            .collect();
        Ok(format!("the satellites of {}", files.join(" and ")))
    }

    fn shells(&self) -> Result<Vec<Shell>, Error> {
        match (&self.preset, self.shell.is_empty()) {
            (Some(_), _) => Ok(vec![LEOTP_SHELL.parse()?]),
            (None, true) => Ok(vec!["starlink".parse()?]),
            (None, false) => Ok(self.shell.clone()),
        }
    }

    fn constellation(&self) -> Result<Constellation, Error> {
        if self.tle.is_empty() {
            let start = self.at.map_or_else(|| "2000-01-01T00:00:00Z".parse(), Ok)?;
            return Constellation::of_shells(&self.shells()?, start);
        }
        let mut tles = Vec::new();
        for file in &self.tle {
            let name = file.to_string_lossy();
            let input = File::open(file).map_err(|error| Error::Read {
                file: name.clone().into_owned(),
                reason: error.to_string(),
            })?;
            tles.extend(read_tles(&name, BufReader::new(input))?);
        }
        let constellation = Constellation::of_tles(tles, self.at)?;
        if !constellation.is_in_service() {
            tell("note: no satellite is in service by its name, so all of them carry traffic\n");
        }
        Ok(constellation)
    }
}
