//! Runs a command as the only child of a small first process in a process namespace of its own: when that process or
//! its parent ends, the kernel ends every process that the command has started.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicBool, AtomicI32, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open,
        set_parent_process_death_signal, test_kill_process, wait,
    },
    thread::UnshareFlags,
};

use starhaul_net::{run_as_others, run_first};

use crate::{
    Error,
    namespace::{NetworkNamespace, unshare},
    network,
};

/// How long the processes left by a command may take to terminate.
const GRACE: Duration = Duration::from_millis(500);
/// How long a server may take until it listens.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);
/// Signals that a process waiting for a command forwards to it.
const HANDED_ON: [i32; 7] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
];
/// Those of them by which the program that started this process ends it.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// The exit codes of a shell for a command that cannot be started.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// A command under its supervisor.
pub(crate) struct Running {
    pid: Pid,
    thread: JoinHandle<io::Result<ExitStatus>>,
}

/// The command to run, and its namespace.
pub(crate) struct Start<'a> {
    /// The arguments with which this program calls [`supervise`].
    pub(crate) supervisor: &'a [OsString],
    pub(crate) network: &'a NetworkNamespace,
    pub(crate) command: &'a [OsString],
    pub(crate) environment: &'a [(String, String)],
    pub(crate) stdin: Stdio,
    pub(crate) stdout: Stdio,
    /// Real-time priority, as links have it, if this user may give it.
    pub(crate) runs_first: bool,
}

impl Start<'_> {
    /// Starts it. Signals to this process are forwarded if `hand_on_signals`.
    pub(crate) fn spawn(self, hand_on_signals: bool) -> io::Result<Running> {
        let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
        // The executable by its running image: the file may have been replaced since.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("starhaul")
            .args(self.supervisor)
            .arg("--")
            .args(self.command)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(self.stdin)
            .stdout(self.stdout);
        end_with(&mut command, this_process);
        if hand_on_signals {
            hand_on()?;
        }
        let network = self.network.try_clone()?;
        let (started, start) = mpsc::sync_channel(1);
        // The kernel takes the end of this thread for the end of the parent, so it lives as long as the command.
        let thread = std::thread::Builder::new()
            .name("starhaul-command".into())
            .spawn(move || {
                // What this thread starts has its priority, and it has that of the thread that started it.
                let _ = if self.runs_first {
                    run_first()
                } else {
                    run_as_others()
                };
                let child = network
                    .enter()
                    .and_then(|()| unshare(UnshareFlags::NEWPID))
                    .and_then(|()| command.spawn());
                let mut child = match child {
                    Ok(child) => child,
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return Err(io::Error::other("not started"));
                    }
                };
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                if let (true, Some(pid)) = (hand_on_signals, pid) {
                    hand_on_to(pid);
                }
                let _ = started.send(pid.ok_or_else(|| io::Error::other("no process id")));
                let status = child.wait();
                if hand_on_signals {
                    TARGET.store(0, Ordering::SeqCst);
                }
                status
            })?;
        let pid = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        Ok(Running { pid, thread })
    }
}

impl Running {
    /// Waits for its end; returns the exit code as a shell reports it.
    pub(crate) fn wait(self) -> io::Result<u8> {
        let status = self
            .thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        Ok(exit_code(status.code(), status.signal()))
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until more than `before` sockets listen for TCP or receive UDP in `network`, but not for ever; returns whether they do.
    pub(crate) fn until_it_listens(
        self,
        network: &NetworkNamespace,
        before: usize,
    ) -> Result<(Self, bool), Error> {
        let deadline = Instant::now() + SERVER_PATIENCE;
        loop {
            match network::listeners(network) {
                Ok(listeners) if listeners > before => break,
                Ok(_) => {}
                Err(error) => {
                    self.end();
                    return Err(Error::Network(error));
                }
            }
            if self.is_over() {
                let code = self.wait().map_err(Error::Command)?;
                return Err(Error::Server { code });
            }
            if Instant::now() > deadline {
                return Ok((self, false));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok((self, true))
    }

    /// Kills it and all that it started, without a chance to say goodbye.
    pub(crate) fn kill(self) {
        // The number of one that is over may be another's.
        if !self.is_over() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let _ = self.wait();
    }

    /// Terminates it, and kills it after a grace time.
    pub(crate) fn end(self) {
        if !self.is_over() {
            let _ = kill_process(self.pid, Signal::TERM);
        }
        let deadline = Instant::now() + 2 * GRACE;
        while !self.is_over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.is_over() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let _ = self.wait();
    }
}

/// Says what failed; where standard error is closed the exit code alone does.
fn tell(error: &str) {
    let _ = io::stderr().write_all(format!("error: {error}\n").as_bytes());
}

/// Runs `command` as its supervisor: forwards signals to it, collects the processes that it leaves, and returns its
/// exit code as a shell reports it. Call it from a single-threaded process that [`crate::run`] started for it.
pub fn supervise(command: &[OsString]) -> u8 {
    // Only programs that show process numbers would notice a failure.
    if let Err(error) = show_own_processes() {
        tracing::debug!(%error, "/proc shows the processes outside");
    }
    if let Err(error) = hand_on() {
        tell(&format!("cannot hand signals on: {error}"));
    }
    let [program, arguments @ ..] = command else {
        return NOT_FOUND;
    };
    let child = match Command::new(program).args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = program.to_string_lossy();
            tell(&format!("cannot start {program}: {error}"));
            return match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
        }
    };
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return NOT_EXECUTABLE;
    };
    hand_on_to(pid);
    let code = wait_for(pid);
    TARGET.store(0, Ordering::SeqCst);
    end_the_rest();
    code
}

fn wait_for(command: Pid) -> u8 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                return exit_code(status.exit_status(), status.terminating_signal());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}

/// Terminates every other process of the namespace, and waits a moment.
#[expect(unsafe_code, reason = "kill(2) of all processes has no safe binding")]
fn end_the_rest() {
    if getpid() != Pid::INIT {
        // Not in a namespace of its own: the other processes are foreign.
        return;
    }
    // SAFETY: a plain system call; as the first process of a namespace it reaches that namespace's processes alone.
    unsafe { libc::kill(-1, libc::SIGTERM) };
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        match wait(WaitOptions::NOHANG) {
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn exit_code(code: Option<i32>, signal: Option<i32>) -> u8 {
    let code = code.or(signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Mounts a `/proc` of this process namespace.
fn show_own_processes() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    // Mounts here must not propagate outside.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}

/// Makes the kernel kill the command's process when this one ends.
#[expect(unsafe_code, reason = "a step between fork and exec")]
fn end_with(command: &mut Command, this_process: rustix::fd::OwnedFd) {
    let step = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent had ended before that call, no signal would come.
        let mut parent = [PollFd::from_borrowed_fd(
            this_process.as_fd(),
            PollFlags::IN,
        )];
        match poll(&mut parent, Some(&Timespec::default())) {
            Ok(0) => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    };
    // SAFETY: the step makes system calls only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(step) };
}

/// The process to forward signals to, 0 for none.
static TARGET: AtomicI32 = AtomicI32::new(0);
/// A signal that arrived before there was a process.
static PENDING: AtomicI32 = AtomicI32::new(0);
/// A signal to end came to this process, for a command or since.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The command has ended, and what remains may wait for a reader of a file.
static FINISHING: AtomicBool = AtomicBool::new(false);

/// Whether signals end this process, as before its first command, while there is no other.
pub(crate) fn may_end(may: bool) {
    FINISHING.store(may, Ordering::SeqCst);
}

/// Whether this process was told to end, by a terminal or another process, since it ran its first command: signals are handed on to
/// commands from then on, and end this process no more.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

fn hand_on_to(pid: Pid) {
    TARGET.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
    let signal = PENDING.swap(0, Ordering::SeqCst);
    if let Some(signal) = Signal::from_named_raw(signal)
        && test_kill_process(pid).is_ok()
    {
        let _ = kill_process(pid, signal);
    }
}

/// Forwards signals sent to this process to [`TARGET`]. Those of a terminal reach the command directly, since it is in
/// the same process group.
#[expect(unsafe_code, reason = "sigaction(2) has no safe binding here")]
fn hand_on() -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this plain structure: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    action.sa_sigaction = on_signal as *const () as usize;
    for signal in HANDED_ON {
        // SAFETY: as for `action`.
        let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel only writes `present`, which lives across the call.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut present) };
        if present.sa_sigaction == libc::SIG_IGN {
            // nohup(1) and shells without job control set this for the command.
            continue;
        }
        // SAFETY: the kernel only reads `action`, and the handler does nothing that a handler may not.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "a signal handler")]
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if ENDING.contains(&signal) {
        INTERRUPTED.store(true, Ordering::SeqCst);
    }
    if ENDING.contains(&signal) && FINISHING.load(Ordering::SeqCst) {
        // SAFETY: _exit(2) is allowed in a handler.
        unsafe { libc::_exit(128 + signal) };
    }
    // SAFETY: the kernel passes a valid `siginfo_t` for the time of the call.
    let sent_by_a_process = unsafe { (*info).si_code } <= 0;
    if !sent_by_a_process {
        return;
    }
    match TARGET.load(Ordering::SeqCst) {
        0 => PENDING.store(signal, Ordering::SeqCst),
        // SAFETY: kill(2) is allowed in a handler. Interrupted code does not read `errno` of this call: it sees EINTR
        // or continues.
        target => unsafe {
            libc::kill(target, signal);
        },
    }
}
