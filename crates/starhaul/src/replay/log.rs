//! The file of `--log`, in which an earlier log stays until the first packet of this run, or its end.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context as _;

use super::{Written, empty, open_as_it_is};
use crate::output::command_line;

/// A log, opened before the run so that a failure costs nothing.
pub(super) struct Log {
    name: PathBuf,
    file: File,
    head: String,
    has_begun: Arc<AtomicBool>,
}

impl Log {
    pub(super) fn begin(name: &Path, links: &[Written], seed: u64) -> anyhow::Result<Self> {
        let file = open_as_it_is(name);
        let mut head = format!(
            "# starhaul {} replay log\n# command: {}\n# seed: {seed}\n",
            env!("CARGO_PKG_VERSION"),
            command_line()
        );
        for link in links {
            head += &format!(
                "# link {0}: up {1}\n# link {0}: down {2}\n",
                link.name, link.up, link.down
            );
        }
        Ok(Self {
            name: name.to_owned(),
            file: file.with_context(|| format!("cannot write the log {}", name.display()))?,
            head,
            has_begun: Arc::default(),
        })
    }

    /// What takes the lines of the packets.
    pub(super) fn writer(&self) -> anyhow::Result<Box<dyn Write + Send>> {
        let lines = Lines {
            file: self.file.try_clone()?,
            head: self.head.clone(),
            has_begun: self.has_begun.clone(),
        };
        Ok(Box::new(BufWriter::with_capacity(1 << 20, lines)))
    }

    /// Of a run without packets the file has the head alone.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let begun = begin(&mut self.file, &self.head, &self.has_begun);
        begun.with_context(|| format!("cannot write the log {}", self.name.display()))
    }
}

struct Lines {
    file: File,
    head: String,
    has_begun: Arc<AtomicBool>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        begin(&mut self.file, &self.head, &self.has_begun)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn begin(file: &mut File, head: &str, has_begun: &AtomicBool) -> io::Result<()> {
    if has_begun.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    empty(file)?;
    file.write_all(head.as_bytes())
}
