//! `--trace`: both directions of a link from one folder or file, in the form of `--up` and `--down`.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde_json::Value;
use starhaul_link::{Format, Recording};

use super::Usage;

/// Settings of one direction, by their names.
type Settings = Vec<(&'static str, String)>;

/// The two directions of `PATH[,SETTING…]`, up and down: of a folder of `starhaul record`, of a folder with one
/// LeoReplayer pair, or of a file. Given settings replace those of PATH.
pub(super) fn directions(text: &str) -> anyhow::Result<[String; 2]> {
    let (name, given) = text.split_once(',').unwrap_or((text, ""));
    let path = Path::new(name);
    let found = if path.is_dir() {
        folder(path)?
    } else if path.exists() {
        let settings = file(path)?;
        [settings.clone(), settings]
    } else {
        return Err(usage(format!(
            "--trace {name}: no such file or folder; a link without any, such as synth=leo or rate=50mbit,delay=25ms, belongs to \
             --up and --down"
        )));
    };
    let is_given = |key: &str| {
        let mut keys = given.split(',').filter_map(|item| item.split_once('='));
        keys.any(|(other, _)| other.trim() == key)
    };
    Ok(found.map(|settings| {
        let kept = settings.into_iter().filter(|(key, _)| !is_given(key));
        let kept = kept.map(|(key, value)| format!("{key}={value}"));
        let rest = (!given.is_empty()).then(|| given.to_owned());
        kept.chain(rest).collect::<Vec<_>>().join(",")
    }))
}

fn folder(folder: &Path) -> anyhow::Result<[Settings; 2]> {
    let has = |name: &str| folder.join(name).exists();
    match (has("up-bw.txt"), has("down-bw.txt")) {
        (true, true) => Ok([recorded(folder, "up")?, recorded(folder, "down")?]),
        (false, false) if has("up-journal.jsonl") || has("down-journal.jsonl") => {
            Err(usage(format!(
                "--trace {0}: the recording was not finished: starhaul record finish {0}",
                folder.display()
            )))
        }
        (false, false) => {
            let pair = pair(folder)?;
            Ok([pair.clone(), pair])
        }
        (up, _) => {
            let (there, missing) = if up { ("up", "down") } else { ("down", "up") };
            Err(usage(format!(
                "--trace {0}: only the way {there} was recorded; write --{there} bw={0}/{there}-bw.txt,delay={0}/{there}-delay.txt and \
                 what you want as --{missing}",
                folder.display()
            )))
        }
    }
}

/// The settings of one direction from a folder of `starhaul record`.
fn recorded(folder: &Path, way: &str) -> anyhow::Result<Settings> {
    let file = |ending: &str| {
        folder
            .join(format!("{way}-{ending}.txt"))
            .display()
            .to_string()
    };
    let mut settings = vec![("bw", file("bw")), ("delay", file("delay"))];
    let summary = folder.join("summary.json");
    if let Ok(text) = fs::read(&summary) {
        let directions: Vec<Value> = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no summary of a recording", summary.display()))?;
        let direction = directions
            .iter()
            .find(|summary| summary["direction"] == way);
        let loss = direction.and_then(|summary| summary["loss_setting"].as_str());
        settings.extend(loss.map(|loss| ("loss", loss.to_owned())));
    }
    Ok(settings)
}

/// The one capacity and the one delay file of a folder.
fn pair(folder: &Path) -> anyhow::Result<Settings> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let only = |beginning: &str| {
        let mut found = names.iter().filter(|name| name.starts_with(beginning));
        found.next().filter(|_| found.next().is_none())
    };
    match (only("bw"), only("delay")) {
        (Some(bw), Some(delay)) => {
            let file = |name: &str| folder.join(name).display().to_string();
            Ok(vec![("bw", file(bw)), ("delay", file(delay))])
        }
        _ => Err(usage(format!(
            "--trace {}: neither a folder of starhaul record (up-bw.txt, down-bw.txt…) nor one with a single pair bw*, delay*; name \
             a file in it",
            folder.display()
        ))),
    }
}

fn file(file: &Path) -> anyhow::Result<Settings> {
    let (_, format) = Recording::read(file, None)?;
    let key = match format {
        Format::Csv => "csv",
        Format::Mahimahi => "bw",
        Format::Delay | Format::Leoem => "delay",
    };
    Ok(vec![(key, file.display().to_string())])
}

fn usage(problem: String) -> anyhow::Error {
    Usage(problem).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, rest: &str) -> Result<[String; 2], String> {
        let name = folder.display().to_string();
        let directions = directions(&format!("{name}{rest}"));
        directions
            .map(|directions| directions.map(|text| text.replace(&name, "DIR")))
            .map_err(|error| error.to_string().replace(&name, "DIR"))
    }

    #[test]
    fn a_recording_gives_each_direction_its_own_trace_and_loss() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["up-journal.jsonl", "down-journal.jsonl"] {
            fs::write(folder.join(name), "").unwrap();
        }
        assert!(
            written(folder, "")
                .unwrap_err()
                .contains("record finish DIR")
        );
        fs::write(folder.join("up-bw.txt"), "1\n").unwrap();
        assert!(
            written(folder, "")
                .unwrap_err()
                .contains("--up bw=DIR/up-bw.txt,")
        );
        fs::write(folder.join("down-bw.txt"), "1\n").unwrap();
        let summary = r#"[{"direction":"down","loss_setting":"0.3%"},{"direction":"up","loss_setting":"ge:1%:5"}]"#;
        fs::write(folder.join("summary.json"), summary).unwrap();
        let up = "bw=DIR/up-bw.txt,delay=DIR/up-delay.txt,loss=ge:1%:5";
        let down = "bw=DIR/down-bw.txt,delay=DIR/down-delay.txt,loss=0.3%";
        assert_eq!(written(folder, "").unwrap(), [up, down]);
        // A given setting applies to both directions.
        let up = "bw=DIR/up-bw.txt,delay=DIR/up-delay.txt,loss=0%,queue=codel";
        let down = up.replace("up-", "down-");
        assert_eq!(
            written(folder, ",loss=0%,queue=codel").unwrap(),
            [up, &down]
        );
    }

    #[test]
    fn a_pair_or_a_file_serves_both_directions() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(
            written(folder, "")
                .unwrap_err()
                .contains("name a file in it")
        );
        fs::write(folder.join("bw_example.txt"), "1\n2\n").unwrap();
        fs::write(folder.join("delay_example.txt"), "10\n11\n").unwrap();
        let pair = "bw=DIR/bw_example.txt,delay=DIR/delay_example.txt";
        assert_eq!(written(folder, "").unwrap(), [pair; 2]);
        let table = "t_s,capacity_mbps\n0,10\n1,20\n";
        fs::write(folder.join("table"), table).unwrap();
        for (name, both) in [
            ("/table", "csv=DIR/table"),
            (
                "/bw_example.txt,delay=20ms",
                "bw=DIR/bw_example.txt,delay=20ms",
            ),
            (
                "/delay_example.txt,rate=5mbit",
                "delay=DIR/delay_example.txt,rate=5mbit",
            ),
        ] {
            assert_eq!(written(folder, name).unwrap(), [both; 2]);
        }
        fs::write(folder.join("bw_two.txt"), "1\n").unwrap();
        assert!(written(folder, "").is_err());
        assert!(
            written(folder, "/none")
                .unwrap_err()
                .contains("--up and --down")
        );
        assert!(
            written(folder, "/table,rate=1mbit").is_ok(),
            "judged as a link"
        );
    }
}
