//! Contact plans in TOML. Times are absolute (RFC 3339) or count from the plan's epoch (`+2min`).

use std::{path::Path, time::Duration};

use starhaul_config::{Definition, Document, Error, Example, Key, Table};
use starhaul_units::parse_duration;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{Contact, ContactPlan, Moment, NodeId};

/// A file that holds a plan.
static PLAN: Definition = Definition {
    introduction: "",
    keys: &[&[EPOCH, CONTACTS]],
    examples: &[],
};
pub(crate) const EPOCH: Key = Key::text("epoch", "time (RFC 3339)")
    .or_none("the start of the node")
    .such_as("\"2027-03-01T12:00:00Z\"")
    .means("From when times like `+2min` count.");
pub(crate) const CONTACTS: Key = Key::tables("contact", &CONTACT).means("When the nodes can talk.");
static CONTACT: Definition = Definition {
    introduction: "When the nodes can talk. A neighbour that no contact names can be talked to at any time.",
    keys: &[&[
        Key::text("from", "node")
            .such_as("\"ipn:1.0\"")
            .means("The node that sends."),
        Key::text("to", "node")
            .such_as("\"ipn:2.0\"")
            .means("The node that receives."),
        Key::text("start", "time")
            .such_as("\"+0s\"")
            .means("When it begins: RFC 3339, or counted from `epoch` as `+2min`."),
        Key::text("end", "time")
            .such_as("\"+10min\"")
            .means("When it ends."),
        Key::rate("rate")
            .such_as("\"155mbit\"")
            .means("How much it carries."),
        LIGHT_TIME,
        Key::flag("both_ways")
            .or_flag(true)
            .means("The same contact backwards."),
        Key::duration(
            "every",
            Duration::from_millis(1)..=Duration::from_secs(86_400),
        )
        .or_none("it is not repeated")
        .such_as("\"95min\"")
        .means("It is repeated so often. Needs `count`."),
        // Greatest number of contacts that one table may stand for.
        Key::whole("count", 1..=100_000)
            .or_none("required with `every`")
            .such_as("15")
            .with(&[("every", "\"95min\"")])
            .means("How many contacts these are."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("from", "\"ipn:1.0\""),
            ("to", "\"ipn:2.0\""),
            ("start", "\"+0s\""),
            ("end", "\"+10min\""),
            ("rate", "\"155mbit\""),
            ("light_time", "\"1.28s\""),
            ("every", "\"95min\""),
            ("count", "15"),
        ],
    }],
};
/// Up to that of the solar system's edge, generously.
pub(crate) const LIGHT_TIME: Key =
    Key::duration("light_time", Duration::ZERO..=Duration::from_secs(86_400))
        .or_duration(Duration::ZERO)
        .such_as("\"1.28s\"")
        .means("How long a signal takes. Where it is not known, answers are measured.");

/// Greatest number of contacts of a plan.
const MOST_CONTACTS: usize = 1_000_000;
/// Reads a file that holds nothing but a plan. Times like `+2min` count from its `epoch`, else from `start`.
///
/// # Errors
/// Names line, key and the nearest valid key.
pub fn read_plan(text: &str, name: &Path, start: Moment) -> Result<ContactPlan, Error> {
    let document = Document::new(name, text);
    let tree = document.tree()?;
    let top = document.top(&tree, &PLAN)?;
    read_contacts(&top, start)
}

/// Reads the key `epoch` of a table; without it, times count from `start`.
///
/// # Errors
/// As [`read_plan`].
pub(crate) fn epoch(top: &Table<'_>, start: Moment) -> Result<Moment, Error> {
    Ok(top.text_if("epoch", absolute)?.unwrap_or(start))
}

/// Reads the keys `epoch` and `contact` of a table.
///
/// # Errors
/// As [`read_plan`].
pub(crate) fn read_contacts(top: &Table<'_>, start: Moment) -> Result<ContactPlan, Error> {
    let epoch = epoch(top, start)?;
    let mut contacts = Vec::new();
    for table in top.tables("contact")? {
        read_contact(&table, epoch, &mut contacts)?;
        if contacts.len() > MOST_CONTACTS {
            return Err(table.problem(format!("a plan has at most {MOST_CONTACTS} contacts")));
        }
    }
    Ok(ContactPlan::new(contacts))
}

fn read_contact(
    table: &Table<'_>,
    epoch: Moment,
    contacts: &mut Vec<Contact>,
) -> Result<(), Error> {
    let time = |text: &str| moment(text, epoch);
    let first = Contact {
        from: table.text("from", node)?,
        to: table.text("to", node)?,
        start: table.text("start", time)?,
        end: table.text("end", time)?,
        rate: table.rate("rate")?,
        light_time: table.duration("light_time")?,
    };
    if first.from == first.to {
        return Err(table.key_problem("to", "a node has no contact with itself"));
    }
    if first.end <= first.start {
        return Err(table.key_problem("end", "a contact ends after its start"));
    }
    let every = table.duration_if("every")?;
    let count = table.whole_if("count")?;
    let (every, count) = match (every, count) {
        (None, None) => (Duration::ZERO, 1),
        (Some(every), Some(count)) => (every, count),
        (Some(_), None) => return Err(table.missing("count")),
        (None, Some(_)) => return Err(table.missing("every")),
    };
    if count > 1 && every < first.end.since(first.start) {
        return Err(table.key_problem("every", "the next contact begins before this one ends"));
    }
    let both_ways = table.flag("both_ways")?;
    for index in 0..u32::try_from(count).unwrap_or(u32::MAX) {
        let later = every.saturating_mul(index);
        let contact = Contact {
            start: first.start.plus(later),
            end: first.end.plus(later),
            ..first.clone()
        };
        if both_ways {
            contacts.push(Contact {
                from: contact.to.clone(),
                to: contact.from.clone(),
                ..contact.clone()
            });
        }
        contacts.push(contact);
    }
    Ok(())
}

/// A node number or name: `ipn:2.0`, `dtn://orbiter/`.
pub(crate) fn node(text: &str) -> Result<NodeId, String> {
    let wrong =
        || format!("{text:?} is no node: write ipn:2.0 or dtn://orbiter/, without a service");
    match text.parse::<NodeId>() {
        Ok(NodeId::LocalNode) | Err(_) => Err(wrong()),
        Ok(node) => Ok(node),
    }
}

fn moment(text: &str, epoch: Moment) -> Result<Moment, String> {
    match text.trim().strip_prefix('+') {
        Some(later) => parse_duration(later)
            .map(|later| epoch.plus(later))
            .map_err(|error| error.to_string()),
        None => absolute(text),
    }
}

fn absolute(text: &str) -> Result<Moment, String> {
    let parsed = OffsetDateTime::parse(text.trim(), &Rfc3339).ok();
    let nanoseconds = parsed.and_then(|time| u128::try_from(time.unix_timestamp_nanos()).ok());
    let seconds = nanoseconds.and_then(|ns| u64::try_from(ns / 1_000_000_000).ok());
    let rest = nanoseconds.and_then(|ns| u32::try_from(ns % 1_000_000_000).ok());
    match (seconds, rest) {
        (Some(seconds), Some(rest)) => Ok(Moment(Duration::new(seconds, rest))),
        _ => Err(format!(
            "{text:?} is no time: write 2027-03-01T12:00:00Z, or +2min after the plan's epoch"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ContactPlan, String> {
        let start = Moment(Duration::from_secs(1_000));
        read_plan(text, Path::new("plan.toml"), start).map_err(|error| error.to_string())
    }

    #[test]
    fn times_count_from_the_epoch_and_contacts_repeat_both_ways() {
        let plan = read(
            "epoch = \"2027-03-01T12:00:00Z\"\n[[contact]]\nfrom = \"ipn:1.0\"\nto = \"dtn://moon/\"\nstart = \"+2min\"\n\
             end = \"2027-03-01T12:04:00Z\"\nrate = \"1mbit\"\nlight_time = \"1.28s\"\nevery = \"90min\"\ncount = 3\n",
        )
        .unwrap();
        assert_eq!(plan.contacts().len(), 6);
        let first = &plan.contacts()[1];
        assert_eq!(first.start.to_string(), "2027-03-01T12:02:00Z");
        assert_eq!(first.end.since(first.start), Duration::from_secs(120));
        assert_eq!(
            plan.contacts()[5].start.since(first.start),
            Duration::from_secs(3 * 3600)
        );
        let (earth, moon) = (&first.from, &first.to);
        let later = first.start.plus(Duration::from_secs(1));
        assert!(first.is_open(later) && plan.knows(earth, moon) && plan.knows(moon, earth));
        assert!(!plan.is_heard(earth, moon, later));
        assert!(plan.is_heard(earth, moon, later.plus(Duration::from_secs(120))));
        assert_eq!(
            plan.next_change(earth, first.start),
            Some(first.start.plus(Duration::from_millis(1280)))
        );
        // Without an epoch, from the start.
        let plan = read("[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+1s\"\nend = \"+2s\"\nrate = \"1kbit\"\nboth_ways = false").unwrap();
        assert_eq!(plan.contacts().len(), 1);
        assert_eq!(plan.contacts()[0].start, Moment(Duration::from_secs(1_001)));
    }

    #[test]
    fn errors_name_file_line_key_and_what_would_be_right() {
        let contact = "[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+1s\"\nend = \"+2s\"\nrate = \"1kbit\"\n";
        for (change, said) in [
            (
                ("rate", "rat"),
                "plan.toml:6: [[contact]]: unknown key \"rat\"; did you mean \"rate\"?",
            ),
            (
                ("+2s", "+1s"),
                "plan.toml:5: [[contact]]: end: a contact ends after its start",
            ),
            (
                ("+1s", "tomorrow"),
                "plan.toml:4: [[contact]]: start: \"tomorrow\" is no time",
            ),
            (("ipn:2.0", "ipn:1.0"), "a node has no contact with itself"),
            (("ipn:2.0", "ipn:2.7"), "is no node: write ipn:2.0"),
            (
                ("1kbit\"", "1kbit\"\nevery = \"1min\""),
                "the key \"count\" is missing",
            ),
        ] {
            let error = read(&contact.replace(change.0, change.1)).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
