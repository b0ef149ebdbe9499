//! The group that may read the control socket.

use std::io;

use crate::Error;

/// Where the names of groups are: group(5).
const GROUPS: &str = "/etc/group";

/// A group's name or number, as far as its text tells.
pub(super) fn group_name(text: &str) -> Result<String, &'static str> {
    match text.is_empty() || text.contains([':', '\n']) {
        true => Err("write the name of a group, or its number"),
        false => Ok(text.to_owned()),
    }
}

/// The number of a group of this host.
///
/// # Errors
/// There is none of this name.
pub(crate) fn group_number(group: &str) -> Result<u32, Error> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let unknown = |reason| Error::ControlGroup {
        group: group.to_owned(),
        reason,
    };
    let groups = std::fs::read_to_string(GROUPS).map_err(|error| {
        unknown(io::Error::new(
            error.kind(),
            format!("cannot read {GROUPS}: {error}"),
        ))
    })?;
    let mut lines = groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|line| line.first() == Some(&group));
    let number = line.and_then(|line| line.get(2)?.parse().ok());
    number.ok_or_else(|| {
        unknown(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{GROUPS} has no group of this name"),
        ))
    })
}
