//! Orders that outlive the gateway, in a file of its state folder.

use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::Mutex;

use crate::{
    path_change::PathChange,
    sealed::{SealError, seal, unseal},
    state_folder::StateFolder,
};

const FILE: &str = "orders";
const KIND: &str = "starhaul-orders 1";
/// Longest file that is written and read, and most orders that are kept.
const MAX_BYTES: u64 = 1 << 20;
const MAX_ORDERS: usize = 1024;

/// The orders that are kept, each as the change that makes it of none, by peer and path.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    orders: Mutex<BTreeMap<(String, String), PathChange>>,
    /// One file at a time; who only reads the orders does not wait for the disk.
    writing: Mutex<()>,
    folder: Option<Arc<StateFolder>>,
}

impl Kept {
    /// Reads the orders of former lives.
    ///
    /// # Errors
    /// The file cannot be opened. One that cannot be trusted is set aside and told.
    pub(crate) fn open(folder: Option<Arc<StateFolder>>) -> io::Result<Self> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        let bytes = folder.read(FILE, MAX_BYTES)?;
        let orders = match bytes.as_deref().map(read) {
            None => Vec::new(),
            Some(Ok(orders)) => orders,
            Some(Err(error)) => {
                let file = folder.file(FILE);
                let aside = folder.set_aside(FILE)?;
                tracing::error!(file = %file.display(), aside = %aside.display(), error,
                    "kept orders cannot be read: no path is changed by one; order again with --keep");
                Vec::new()
            }
        };
        let orders = orders.into_iter().filter_map(|order| {
            let peer = order.peer.clone()?;
            Some(((peer, order.path.clone()), order))
        });
        Ok(Self {
            orders: Mutex::new(orders.collect()),
            writing: Mutex::default(),
            folder: Some(folder),
        })
    }

    /// Whether there is a folder to keep something in.
    pub(crate) fn has_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// What is kept of the paths to a peer.
    pub(crate) fn of_peer(&self, peer: &str) -> Vec<PathChange> {
        let orders = self.orders.lock();
        let of_peer = orders.iter().filter(|((of, _), _)| of == peer);
        of_peer.map(|(_, order)| order.clone()).collect()
    }

    /// Keeps an order of a path, or forgets what was kept of it.
    ///
    /// # Errors
    /// It cannot be stored; then what was kept stays.
    pub(crate) fn keep(
        &self,
        peer: &str,
        path: &str,
        order: Option<PathChange>,
    ) -> Result<(), String> {
        let Some(folder) = &self.folder else {
            return Err("there is no folder of state".to_owned());
        };
        let _writing = self.writing.lock();
        let mut next = self.orders.lock().clone();
        let key = (peer.to_owned(), path.to_owned());
        match order {
            Some(order) => _ = next.insert(key, order),
            None => _ = next.remove(&key),
        }
        if next.len() > MAX_ORDERS {
            return Err(format!("{MAX_ORDERS} orders are kept already"));
        }
        let all: Vec<_> = next.values().collect();
        // Neither a map with other keys than texts nor a failing writer is involved.
        let text = serde_json::to_string_pretty(&all).unwrap_or_default();
        let file = seal(KIND, &text);
        if file.len() as u64 > MAX_BYTES {
            return Err(format!(
                "the order holds, but is not kept: all kept orders together would be longer than {MAX_BYTES} bytes"
            ));
        }
        folder
            .write(FILE, &file)
            .map_err(|error| format!("the order holds, but is not kept: {error}"))?;
        *self.orders.lock() = next;
        Ok(())
    }
}

/// The orders of a file.
fn read(bytes: &[u8]) -> Result<Vec<PathChange>, String> {
    let text = unseal(KIND, bytes).map_err(|error: SealError| error.to_string())?;
    let orders: Vec<PathChange> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for order in &orders {
        if order.peer.is_none() || order.keep || order.used.is_some() {
            return Err(format!("what it says of path {:?} is no order", order.path));
        }
    }
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_in_the_next_life_until_it_is_forgotten() {
        let parent = tempfile::tempdir().unwrap();
        let open = || {
            let folder = StateFolder::open(parent.path()).unwrap();
            Kept::open(Some(Arc::new(folder))).unwrap()
        };
        let order = PathChange {
            path: "lte".to_owned(),
            peer: Some("far".to_owned()),
            down: Some(true),
            ..PathChange::default()
        };
        open().keep("far", "lte", Some(order.clone())).unwrap();
        let kept = open();
        assert_eq!(kept.of_peer("far"), std::slice::from_ref(&order));
        assert!(kept.of_peer("near").is_empty());
        kept.keep("far", "lte", None).unwrap();
        drop(kept);
        assert!(open().of_peer("far").is_empty());
        // What was damaged is set aside, and no order.
        open().keep("far", "lte", Some(order)).unwrap();
        let file = parent.path().join(FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("true", "null")).unwrap();
        assert!(open().of_peer("far").is_empty());
        assert!(parent.path().join("orders.damaged").exists());
        Kept::default().keep("far", "lte", None).unwrap_err();
        // What would not be read back is not written.
        let kept = open();
        let long = |path: &str| {
            let order = PathChange {
                path: path.to_owned(),
                peer: Some("far".to_owned()),
                active: Some("daily ".repeat(100_000)),
                ..PathChange::default()
            };
            kept.keep("far", path, Some(order))
        };
        long("a").unwrap();
        assert!(long("b").unwrap_err().contains("longer"));
        assert_eq!(kept.of_peer("far").len(), 1);
        drop(kept);
        assert_eq!(open().of_peer("far").len(), 1);
    }
}
