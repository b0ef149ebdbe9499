//! Programs at the nodes of emulated networks.

use std::{ffi::OsString, io, process::Stdio};

use crate::{
    Error,
    namespace::NetworkNamespace,
    network,
    supervisor::{Running, Start},
};

/// A program at a node; it ends with this value, and so does all that it started.
pub struct Program(Option<Running>);

/// How programs are started at the nodes of one network.
pub(crate) struct Programs {
    /// The command that starts and ends programs: [`ReplaySpec::supervisor`](crate::ReplaySpec::supervisor).
    pub(crate) supervisor: Vec<OsString>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Programs {
    /// Starts a program that serves, and waits until it listens for TCP or receives UDP in `network`, for some seconds at most.
    pub(crate) fn serve(
        &self,
        network: &NetworkNamespace,
        command: &[OsString],
    ) -> Result<Program, Error> {
        // Others may serve at the same node.
        let before = network::listeners(network).map_err(Error::Network)?;
        let server = self.spawn(network, command, Stdio::from(io::stderr()), (false, true))?;
        let (server, _) = server.until_it_listens(network, before)?;
        Ok(Program(Some(server)))
    }

    /// Starts a program that nothing is waited for, with ordinary priority: it may be any program, and one that spins with real-time
    /// priority takes the whole computer.
    pub(crate) fn start(
        &self,
        network: &NetworkNamespace,
        command: &[OsString],
    ) -> Result<Program, Error> {
        let running = self.spawn(network, command, Stdio::from(io::stderr()), (false, false))?;
        Ok(Program(Some(running)))
    }

    /// Starts a program to which signals to this process are forwarded.
    pub(crate) fn command(
        &self,
        network: &NetworkNamespace,
        command: &[OsString],
        stdout: Stdio,
    ) -> Result<Program, Error> {
        let running = self.spawn(network, command, stdout, (true, true))?;
        Ok(Program(Some(running)))
    }

    /// With real-time priority, as links have, if this user may give it: relays forward packets as links do, and TCP that the
    /// kernel forwards waits for no scheduler either.
    fn spawn(
        &self,
        network: &NetworkNamespace,
        command: &[OsString],
        stdout: Stdio,
        (hand_on_signals, runs_first): (bool, bool),
    ) -> Result<Running, Error> {
        let start = Start {
            supervisor: &self.supervisor,
            network,
            command,
            environment: &self.environment,
            stdin: Stdio::null(),
            stdout,
            runs_first,
        };
        start.spawn(hand_on_signals).map_err(Error::Command)
    }
}

impl Program {
    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(Running::is_over)
    }

    /// Waits for its end; returns the exit code as a shell reports it.
    ///
    /// # Errors
    /// [`Error::Command`] if it could not be waited for.
    pub fn wait(mut self) -> Result<u8, Error> {
        let running = self.0.take();
        running.map_or(Ok(0), |running| running.wait().map_err(Error::Command))
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(mut self) {
        if let Some(running) = self.0.take() {
            running.kill();
        }
    }
}

impl Drop for Program {
    /// Terminates it, and kills it after a grace time.
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.end();
        }
    }
}
