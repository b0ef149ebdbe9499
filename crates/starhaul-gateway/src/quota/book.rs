//! The counts of all paths, and when they are to be stored: a state machine without a clock and without files.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    account::Account,
    file::{self, Entry, FileError, MAX_ACCOUNTS},
    period::{Period, Scheme},
};

/// Pause after a figure could not be stored.
const RETRY: Duration = Duration::from_secs(5);

/// A store that takes longer than this is one that failed, until it returns.
const PATIENCE: Duration = Duration::from_secs(10);

/// A path: the names of peer and path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Name of the peer.
    pub peer: String,
    /// Name of the path.
    pub path: String,
}

/// What is known of a path's month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the wire of the month.
    pub used: u64,
    /// The month that the clock shows.
    pub month: Period,
    /// When it ends, in seconds since 1970.
    pub ends: i64,
    /// Why the figure is not to be relied on: it was lost, or what was counted since cannot be stored.
    pub unsure: Option<String>,
}

impl Usage {
    /// The same once an operator has given the figure.
    #[must_use]
    pub(crate) fn given(self, used: u64) -> Self {
        Self {
            used,
            unsure: None,
            ..self
        }
    }
}

/// The counts of all paths.
#[derive(Debug, Default)]
pub struct Book {
    accounts: BTreeMap<Key, Account>,
    /// Why a former file was not read: paths without a figure begin with none.
    lost: Option<String>,
    /// The totals of what is being stored.
    storing: Option<Vec<(Key, u64)>>,
    /// How long that has taken so far.
    storing_for: Duration,
    /// An account was removed or added.
    changed: bool,
    /// Why the last figure could not be stored.
    trouble: Option<String>,
    retry_in: Duration,
}

impl Book {
    /// The counts of a file; `None` where there is none yet. With a file that cannot be trusted the figures of all paths are lost
    /// until they are given ([`Book::set_used`]).
    pub fn open(file: Option<&[u8]>) -> (Self, Result<(), FileError>) {
        let mut book = Self::default();
        let read = file.map_or(Ok(Vec::new()), file::read);
        match read {
            Ok(entries) => {
                let accounts = entries.into_iter().map(|entry| {
                    let Entry { peer, path, count } = entry;
                    (Key { peer, path }, Account::restore(count))
                });
                book.accounts = accounts.collect();
                (book, Ok(()))
            }
            Err(error) => {
                book.lost = Some(error.to_string());
                (book, Err(error))
            }
        }
    }

    /// Counts this path from now on, if it does not yet.
    pub fn follow(&mut self, key: &Key, scheme: Scheme, calendar: i64) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.set_scheme(scheme);
            account.awake(calendar);
            return;
        }
        self.make_room();
        let account = match self.lost {
            Some(_) => Account::lost(scheme, calendar),
            None => Account::new(scheme, calendar),
        };
        self.accounts.insert(key.clone(), account);
        self.changed = true;
    }

    /// Forgets the path whose clock was read longest ago if there are too many.
    fn make_room(&mut self) {
        if self.accounts.len() < MAX_ACCOUNTS {
            return;
        }
        let oldest = self
            .accounts
            .iter()
            .min_by_key(|(_, account)| account.shown());
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            self.accounts.remove(&oldest);
        }
    }

    /// Whether this path is counted.
    pub fn follows(&self, key: &Key) -> bool {
        self.accounts.contains_key(key)
    }

    /// Counts bytes of a path that is followed.
    pub fn count(&mut self, key: &Key, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.count(bytes);
        }
    }

    /// Takes the time of the calendar clock for these paths, in seconds since 1970, `elapsed` after the last call by a clock that
    /// never steps.
    pub fn observe<'k>(
        &mut self,
        paths: impl IntoIterator<Item = &'k Key>,
        elapsed: Duration,
        calendar: i64,
    ) {
        self.retry_in = self.retry_in.saturating_sub(elapsed);
        if self.storing.is_some() {
            self.storing_for = self.storing_for.saturating_add(elapsed);
            if self.storing_for >= PATIENCE && self.trouble.is_none() {
                self.trouble = Some("the disk does not answer".to_owned());
            }
        }
        for key in paths {
            if let Some(account) = self.accounts.get_mut(key) {
                account.observe(elapsed, calendar);
            }
        }
    }

    /// The month of a path that is followed.
    pub fn usage(&self, key: &Key) -> Option<Usage> {
        let account = self.accounts.get(key)?;
        let month = account.month();
        let unsure = match (account.is_lost(), &self.trouble) {
            (true, _) => Some(format!(
                "the file of the counts was not readable when they were to be read{}",
                self.lost
                    .iter()
                    .map(|why| format!(": {why}"))
                    .collect::<String>()
            )),
            (false, Some(why)) if account.is_short() => {
                Some(format!("its count cannot be stored: {why}"))
            }
            _ => None,
        };
        Some(Usage {
            used: account.used(),
            month,
            ends: account.scheme().end(month),
            unsure,
        })
    }

    /// The paths that are none of these and have used something in this month: a path that was renamed begins with nothing under its
    /// new name.
    pub fn unclaimed(&self, known: &BTreeSet<Key>, calendar: i64) -> Vec<(Key, u64)> {
        let others = self.accounts.iter().filter(|(key, _)| !known.contains(key));
        let used =
            others.filter_map(|(key, account)| Some((key.clone(), account.used_at(calendar)?)));
        used.filter(|(_, used)| *used > 0).collect()
    }

    /// Sets the bytes of the month, as the operator has them from the provider.
    pub fn set_used(&mut self, key: &Key, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.set_used(bytes);
        }
    }

    /// A file to be stored now, if one is due; tell the outcome by [`Book::stored`] before the next.
    pub fn poll_store(&mut self) -> Option<Vec<u8>> {
        let waits = self.storing.is_some() || !self.retry_in.is_zero();
        if waits || !(self.changed || self.accounts.values().any(Account::is_due)) {
            return None;
        }
        Some(self.write(true))
    }

    /// The last file, with what was counted and nothing ahead.
    pub fn close(&mut self) -> Vec<u8> {
        self.write(false)
    }

    fn write(&mut self, more_comes: bool) -> Vec<u8> {
        let (mut entries, mut totals) = (Vec::new(), Vec::new());
        for (key, account) in &mut self.accounts {
            let count = account.record(more_comes);
            account.storing();
            totals.push((key.clone(), count.total));
            let Key { peer, path } = key.clone();
            entries.push(Entry { peer, path, count });
        }
        self.changed = false;
        self.storing = Some(totals);
        self.storing_for = Duration::ZERO;
        file::write(entries)
    }

    /// The outcome of storing: `Err` says why not.
    pub fn stored(&mut self, outcome: Result<(), String>) {
        for (key, total) in self.storing.take().into_iter().flatten() {
            if let Some(account) = self.accounts.get_mut(&key) {
                match &outcome {
                    Ok(()) => account.stored(total),
                    Err(_) => account.not_stored(),
                }
            }
        }
        match outcome {
            Ok(()) => self.trouble = None,
            Err(why) => {
                self.trouble = Some(why);
                self.retry_in = RETRY;
            }
        }
    }

    /// Why figures are not stored at present.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}
