//! `starhaul ltp receive`: files of any sender, until a signal ends it or, with `--once`, the first file is there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_ltp::{Engine, EngineConfig, Event, PeerConfig, UnknownPeers};
use starhaul_net::ltp::LtpDriver;
use starhaul_transfer::{FileReceiver, Received};

use super::{
    LinkOptions, MOST_PEERS, ReceiveArguments, explain, hex, progress::Arrivals, refusals::Refusals,
};
use crate::{
    output::{print, printable},
    signals,
};

/// Time until a receiver tries again to bind its address, which is gone.
const BIND_AGAIN: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &ReceiveArguments) -> anyhow::Result<()> {
    let link = &arguments.link;
    let config = link.peer_config()?;
    let engine_config = receiver_config(link, &config)?;
    if link.explain {
        return explain::receiver(link, &config, &engine_config);
    }
    let mut engine = Engine::new(engine_config);
    engine.open_service(starhaul_transfer::SERVICE);
    let driver = LtpDriver::bind(arguments.listen, link.mode.into(), engine)?;
    let mut files = FileReceiver::new(&arguments.into)?;
    if link.one_way {
        files = files.without_answers();
    }
    tracing::info!(address = %driver.local_addr(), "receives files");
    starhaul_net::sharpen_timers();
    // Parts of files that are unfinished go with the receiver.
    let ended = Arc::new(AtomicBool::new(false));
    let (end, waker) = (ended.clone(), driver.waker());
    signals::at_first(move || {
        end.store(true, Ordering::SeqCst);
        waker.wake();
    })?;
    let mut receiver = Receiver {
        driver,
        files,
        arrivals: Arrivals::new(),
        refusals: Refusals::default(),
        is_one_way: link.one_way,
        lost_blocks: 0,
        is_lost: false,
    };
    receiver.run(&ended, arguments.once)
}

/// The configuration of a receiver's engine, which serves senders of this one.
fn receiver_config(link: &LinkOptions, config: &PeerConfig) -> anyhow::Result<EngineConfig> {
    let mut engine_config = link.engine_config(Some(2))?;
    engine_config.unknown_peers = UnknownPeers::Accept {
        most: MOST_PEERS,
        config: Box::new(config.clone()),
    };
    Ok(engine_config)
}

struct Receiver {
    driver: LtpDriver,
    files: FileReceiver,
    arrivals: Arrivals,
    refusals: Refusals,
    is_one_way: bool,
    /// Blocks that did not arrive whole, and of which nothing more comes.
    lost_blocks: u64,
    /// Whether the address is gone.
    is_lost: bool,
}

impl Receiver {
    /// Receives until `ended` is true, or a file is complete where it is the only one; then until its sender knows that, too.
    fn run(&mut self, ended: &AtomicBool, once: bool) -> anyhow::Result<()> {
        let (mut is_done, mut told) = (false, Ok(()));
        while !ended.load(Ordering::SeqCst) {
            if is_done && self.driver.engine().sessions() == (0, 0) {
                break;
            }
            if !self.turn()? {
                std::thread::sleep(BIND_AGAIN);
                continue;
            }
            while let Some(event) = self.driver.poll_event() {
                if let Some(file) = self.take(event) {
                    self.arrivals.end(file.from);
                    let printed = print_file(&file);
                    // The sender learns what became of its file, whether or not this output is read.
                    is_done |= once || printed.is_err();
                    told = told.and(printed);
                }
            }
            self.arrivals.show(&self.files, self.driver.engine());
            self.refusals.tell(&self.driver.engine().stats().dropped);
            self.refusals.tell_lost(self.lost_blocks);
        }
        self.arrivals.clear();
        if once && !is_done {
            anyhow::bail!(
                "ended by a signal before a file was complete: nothing was stored, and parts of files are removed"
            );
        }
        told
    }

    /// Waits for what is next; `false` while the address is gone.
    fn turn(&mut self) -> anyhow::Result<bool> {
        let next_look = self.files.give_up(&mut self.driver);
        let is_busy = self.driver.engine().sessions().1 > 0;
        let next_show = self.arrivals.next(Instant::now(), is_busy);
        let next = [next_look, next_show].into_iter().flatten().min();
        if let Err(error) = self.driver.turn(next) {
            if self.driver.is_bound() {
                return Err(error.into());
            }
            if !std::mem::replace(&mut self.is_lost, true) {
                tracing::error!(%error, "nothing is received: the address of --listen is bound again until that works");
            }
            return Ok(false);
        }
        if std::mem::take(&mut self.is_lost) {
            tracing::info!(address = %self.driver.local_addr(), "receives files again");
        }
        Ok(true)
    }

    /// Handles what the engine tells; the file that is complete with it.
    fn take(&mut self, event: Event) -> Option<Received> {
        let is_lost_block = matches!(event, Event::ReceiveCancelled { .. });
        self.lost_blocks += u64::from(self.is_one_way && is_lost_block);
        self.files.handle(&mut self.driver, event)
    }
}

/// As the sender of a link without a way back prints it.
fn print_file(file: &Received) -> anyhow::Result<()> {
    let path = file.path.display().to_string();
    print(format!("{}  {}\n", hex(&file.hash), printable(&path)))
}
