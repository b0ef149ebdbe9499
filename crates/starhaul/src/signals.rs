//! Signals that end a command that has no runtime of its own.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Calls `stop` at the first signal, and ends the program at the second.
pub(crate) fn at_first(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    std::thread::Builder::new()
        .name("starhaul-signals".into())
        .spawn(move || {
            runtime.block_on(async {
                for again in [false, true] {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    match again {
                        false => stop(),
                        true => std::process::exit(1),
                    }
                }
            });
        })
        .context("cannot start a thread")?;
    Ok(())
}
