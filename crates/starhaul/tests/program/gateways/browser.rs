//! Chromium without a screen, driven over the DevTools protocol: JSON objects with a zero byte after each, over two pipes.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use starhaul_needs::{Need, skip};

use super::network::Network;

/// A browser with one page, in the field's namespace; it ends with the test.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    page: Option<String>,
}

impl Browser {
    /// Starts one that keeps its files in `directory`; `None`, with a reported reason, where it is not installed.
    pub(crate) fn start(network: &Network, directory: &Path) -> Option<Self> {
        if !Command::new("chromium")
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
        {
            skip(Need::Chromium, "it is not installed (Debian's chromium)");
            return None;
        }
        // The browser reads from file 3 and writes to file 4.
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null",
                "sh",
            ])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
            ])
            .arg("--no-first-run")
            .arg(format!("--user-data-dir={}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = network.field.inside(|| command.spawn()).unwrap();
        let (to, from) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        let from = BufReader::new(from);
        Some(Self {
            process,
            to,
            from,
            calls: 0,
            page: None,
        })
    }

    /// Opens this address.
    pub(crate) fn open(&mut self, address: &str) {
        let page = self.call("Target.createTarget", json!({ "url": address }));
        let target = &page["targetId"];
        let attached = self.call(
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        );
        self.page = attached["sessionId"].as_str().map(str::to_owned);
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", asked);
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].take()
    }

    /// Bytes of memory that all its processes have now; what several share counts once.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let mut parents = BTreeMap::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            // Others end meanwhile.
            let process = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let stat = fs::read_to_string(entry.path().join("stat"));
            if let (Some(process), Ok(stat)) = (process, stat) {
                // The program's name, in parentheses, may hold anything.
                let mut fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
                parents.insert(process, fields.nth(1).unwrap().parse::<u32>().unwrap());
            }
        }
        let is_ours = |process: &u32| {
            let line = std::iter::successors(Some(*process), |child| parents.get(child).copied());
            line.take(parents.len()).any(|one| one == self.process.id())
        };
        let ours: Vec<_> = parents.keys().copied().filter(is_ours).collect();
        assert!(ours.len() >= 3, "it is several processes: {ours:?}");
        ours.into_iter().filter_map(proportional_bytes).sum()
    }

    /// Calls a method of the protocol and waits for its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut asked = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(page) = &self.page {
            asked["sessionId"] = json!(page);
        }
        let mut asked = serde_json::to_vec(&asked).unwrap();
        asked.push(0);
        self.to.write_all(&asked).unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser ended");
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.calls {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }
}

/// `Pss` of a process: its resident memory, with its part of what it shares.
fn proportional_bytes(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self
            .to
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
