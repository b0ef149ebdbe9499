//! The folder of a recording: journals during the recording, traces and a summary afterwards.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use starhaul_record::{DelaySource, Direction, Recording, Summary, parse_journal};

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

fn journal(folder: &Path, direction: Direction) -> PathBuf {
    folder.join(format!("{}-journal.jsonl", direction.name()))
}

/// Creates an empty journal; an existing one is not touched.
pub(crate) fn new_journal(folder: &Path, direction: Direction) -> anyhow::Result<BufWriter<File>> {
    let file = journal(folder, direction);
    File::create_new(&file)
        .map(BufWriter::new)
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                "{} is a recording already: choose another --out, or see `starhaul record finish`",
                file.display()
            ),
            _ => anyhow::Error::new(error).context(format!("cannot write {}", file.display())),
        })
}

/// Removes journals that have just been made.
pub(crate) fn remove_journals(folder: &Path, directions: &[Direction]) {
    for file in directions
        .iter()
        .map(|direction| journal(folder, *direction))
    {
        if let Err(error) = std::fs::remove_file(&file) {
            tracing::warn!(file = %file.display(), %error, "an empty journal stays");
        }
    }
}

/// Removes the journals of directions of which nothing was recorded: they would keep a second attempt from the folder.
pub(crate) fn remove_empty(folder: &Path) {
    for file in DIRECTIONS.map(|direction| journal(folder, direction)) {
        if std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() == 0)
            && let Err(error) = std::fs::remove_file(&file)
        {
            tracing::warn!(file = %file.display(), %error, "an empty journal stays");
        }
    }
}

/// Converts the journals in a folder to traces; returns their summary.
pub(crate) fn finish(folder: &Path, json: bool) -> anyhow::Result<String> {
    let (mut summaries, mut unfinished) = (Vec::new(), Vec::new());
    for direction in DIRECTIONS {
        let file = journal(folder, direction);
        let Ok(input) = File::open(&file) else {
            continue;
        };
        let name = file.to_string_lossy();
        let recording = match parse_journal(&name, BufReader::new(input)) {
            // A direction that was not started is no failure of the other.
            Ok(entries) if entries.is_empty() => continue,
            Ok(entries) => Recording::from_journal(&name, &entries),
            Err(error) => Err(error),
        };
        let recording = match recording {
            Ok(recording) => recording,
            // One direction was interrupted early, or its journal is damaged; the other is still of use.
            Err(error) => {
                unfinished.push(error);
                continue;
            }
        };
        let write = |ending: &str, content: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>| {
            let file = folder.join(format!("{}{ending}", direction.name()));
            File::create(&file)
                .map(BufWriter::new)
                .and_then(|mut out| content(&mut out).and_then(|()| out.flush()))
                .with_context(|| format!("cannot write {}", file.display()))
        };
        write("-bw.txt", &|out| recording.write_capacity(out))?;
        write("-delay.txt", &|out| recording.write_delay(out))?;
        write(".csv", &|out| recording.write_table(out))?;
        summaries.push(recording.summary());
    }
    if summaries.is_empty() {
        match unfinished.into_iter().next() {
            Some(error) => return Err(error.into()),
            None => bail!("{}: no recording is here", folder.display()),
        }
    }
    for error in &unfinished {
        tracing::warn!("{error}; there is no trace of this direction");
    }
    let file = folder.join("summary.json");
    let summary = serde_json::to_string_pretty(&summaries)?;
    std::fs::write(&file, format!("{summary}\n"))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(match json {
        true => format!("{}\n", serde_json::to_string(&summaries)?),
        false => summaries
            .iter()
            .map(|summary| describe(folder, summary))
            .collect(),
    })
}

fn describe(folder: &Path, summary: &Summary) -> String {
    let name = summary.direction.name();
    let [least, median, most] = summary.delay_ms;
    let loss = &summary.loss;
    let of_loss = match &summary.loss_setting {
        Some(setting) => format!(
            "loss {setting} ({:.3} to {:.3} % with 95 % confidence, {} packets)",
            loss.low * 100.0,
            loss.high * 100.0,
            loss.packets
        ),
        None => "loss unknown".to_owned(),
    };
    let mut text = format!(
        "{name}: {:.1} s, {:.1} Mbit/s on average, one-way delay {median:.1} ms ({least:.1} to {most:.1}), {of_loss}, {} outages\n",
        summary.seconds,
        summary.mean_capacity_mbit,
        summary.outages_s.len(),
    );
    let mut note = |said: String| text.push_str(&format!("  {said}\n"));
    note(match summary.delay_source {
        DelaySource::Icmp => "delay: ICMP echo beside the heavy flow, in a band of its own".to_owned(),
        DelaySource::IcmpAlone => "delay: ICMP echo shares the queue here, so it was measured after the heavy flow".to_owned(),
        DelaySource::UdpAlone => "delay: UDP echo, measured after the heavy flow (no ICMP)".to_owned(),
        DelaySource::Constant => "delay: interrupted before it was measured; half of the idle round trip stands for all of the time".to_owned(),
    });
    if !summary.unsaturated_seconds.is_empty() {
        let count = summary.unsaturated_seconds.len();
        note(match summary.limited_by_max_rate {
            true => format!(
                "{count} s were limited by --max-rate {:.0}mbit: the capacity is greater there",
                summary.max_rate_mbit
            ),
            false => format!(
                "{count} s without any sign of a full queue: the capacity may be greater there"
            ),
        });
    }
    if summary.loss_setting.is_none() {
        note("loss: the queue was never empty while packets could be counted, so a replay loses none by itself".to_owned());
    }
    if summary.missing_ms > 0 {
        note(format!(
            "{} ms of arrivals are unknown and count as an outage",
            summary.missing_ms
        ));
    }
    if !summary.complete {
        note("the recording was interrupted".to_owned());
    }
    let file = |ending: &str| folder.join(format!("{name}{ending}")).display().to_string();
    let loss = summary.loss_setting.as_ref();
    note(format!(
        "replay: bw={},delay={}{}",
        file("-bw.txt"),
        file("-delay.txt"),
        loss.map_or_else(String::new, |loss| format!(",loss={loss}"))
    ));
    text
}
