//! The qdiscs of `--backend kernel`: added under a handle of their own, and removed when this program ends, however it ends.
//!
//! A shell waits at a pipe that only this program, and each `tc` that it starts, holds open. When the pipe closes, the
//! shell removes the qdiscs, even after SIGKILL of this program. The shell also holds the ports' locks, so that the
//! next emulator begins after the shell has ended. Qdiscs are removed by handle: a qdisc that another program put in
//! place stays. If the shell was killed too, the next emulator at the port finds the qdiscs by the record
//! (`netem_record`), and removes them. A port with a qdisc other than the kernel's default is refused, because it could
//! not be restored. Does not decide what netem does; `bridged` watches that the qdiscs stay in place.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Stdio};

use anyhow::{Context, anyhow};
use sojourn_emulate::kernel::{Command, port_of, under};
use sojourn_port::bridge::{Lock, reserve};
use sojourn_port::kernel::Interface;

use super::netem_record::Record;
use crate::secret;

/// The range of handles: the kernel assigns 8000 and above itself, and users tend to choose small ones.
const HANDLES: Range<u16> = 0x1000..0x8000;

/// $1 is the handle, followed by each port and the path of its record. Signals to this program's process group or terminal do not
/// end the shell. Its outputs are the ports' locks. A record stays unless `tc` confirms that the qdisc is gone.
const REMOVER: &str = r#"
exec 8>&1 9>&2 >/dev/null 2>&1
trap '' HUP INT TERM
handle=$1; shift
while read -r _; do :; done
while [ $# -gt 0 ]; do
    tc qdisc del dev "$1" root handle "$handle"
    shown=$(tc qdisc show dev "$1") && case $shown in *" $handle root "*) ;; *) rm -f -- "$2" ;; esac
    shift 2
done
"#;

/// The qdiscs of this program; dropping removes them.
pub struct Qdiscs {
    handle: String,
    ports: Vec<Port>,
    /// The qdiscs of an emulator that was killed together with its shell.
    left_over: Vec<(Port, Command)>,
    /// When it closes, the shell removes the qdiscs.
    pipe: Option<OwnedFd>,
    remover: Child,
    _locks: Vec<Lock>,
}

/// A port, and the record of its qdisc.
#[derive(Clone)]
struct Port {
    name: String,
    record: Option<Record>,
}

impl Qdiscs {
    /// Locks both ports, and starts the removing shell for those that the commands configure; adds no qdisc yet.
    ///
    /// # Errors
    /// If another emulator has locked a port, or a port has another qdisc than the default.
    pub fn begin(both: [&str; 2], commands: &[Command]) -> anyhow::Result<Self> {
        let (mut ports, mut left_over, mut locks, mut taken) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for name in both {
            let interface = Interface::named(name)?;
            locks.extend(reserve(&interface)?);
            let record = Record::of(&interface).with_context(|| format!("find the record of {name}"))?;
            let port = Port { name: name.to_owned(), record };
            let is_needed = commands.iter().any(|command| port_of(command) == name);
            if let Some(root) = port.root()? {
                taken.push(root.number);
                match port.remove_if_ours(&root) {
                    Some(remove) => left_over.push((port.clone(), remove)),
                    None if is_needed => root.check_default(name)?,
                    None => {}
                }
            }
            ports.extend(is_needed.then_some(port));
        }
        let handle = format!("{:x}:", free_handle(secret::random()?, &taken));
        let mut remover = remover(&handle, &ports, &locks)?;
        let pipe = remover.stdin.take().map(OwnedFd::from);
        Ok(Self { handle, ports, left_over, pipe, remover, _locks: locks })
    }

    /// Removes leftover qdiscs, and adds those of this program; returns the commands that were run.
    ///
    /// # Errors
    /// If the kernel refuses a command, or another qdisc has been added since.
    pub fn put(&self, commands: &[Command]) -> anyhow::Result<Vec<Command>> {
        for (port, remove) in &self.left_over {
            self.carry_out(remove)?;
            port.forget();
        }
        let commands: Vec<_> = commands.iter().map(|command| added(&under(&self.handle, command))).collect();
        for command in &commands {
            let name = port_of(command);
            let port = self.ports.iter().find(|port| port.name == name).context("a port that was not taken")?;
            port.write_down(&self.handle)?;
            if let Err(error) = self.carry_out(command) {
                port.root()?.map_or(Ok(()), |root| root.check_default(&port.name))?;
                return Err(error);
            }
        }
        Ok(commands)
    }

    /// Passes the pipe to `tc`: if `tc` outlives this program, the shell waits for it before it removes the qdiscs.
    fn carry_out(&self, command: &[String]) -> anyhow::Result<()> {
        let pipe = self.pipe.as_ref().map(OwnedFd::try_clone).transpose().context("keep the pipe open for tc")?;
        carry_out(command, pipe.map_or_else(Stdio::null, Stdio::from))
    }

    /// Returns the handle of the qdisc at a port; `None` if it gets none.
    pub fn handle_at(&self, name: &str) -> Option<&str> {
        self.ports.iter().any(|port| port.name == name).then_some(&self.handle)
    }
}

impl Drop for Qdiscs {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let has_removed = self.remover.wait().is_ok_and(|status| status.code().is_some());
        for port in self.ports.iter().filter(|_| !has_removed) {
            // The shell was killed, so remove the qdiscs here. One that was never added cannot be removed.
            let _ = output(&removal(&self.handle, &port.name), Stdio::null());
            if port.root().is_ok_and(|root| root.is_none_or(|root| root.handle != self.handle)) {
                port.forget();
            }
        }
    }
}

/// Starts the shell that removes the qdiscs at the end.
fn remover(handle: &str, ports: &[Port], locks: &[Lock]) -> anyhow::Result<Child> {
    let held = |nth: usize| {
        let shared = locks.get(nth).map(Lock::share).transpose().context("share the locks of the ports")?;
        anyhow::Ok(shared.flatten().map_or_else(Stdio::null, Stdio::from))
    };
    let mut shell = process::Command::new("sh");
    shell.args(["-c", REMOVER, "sojourn-netem", handle]);
    for port in ports {
        shell.arg(&port.name).arg(port.record.as_ref().map_or(Path::new(""), Record::path));
    }
    shell
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(held(0)?)
        .stderr(held(1)?)
        .spawn()
        .context("run sh, which removes the qdiscs in the end")
}

/// The root qdisc of a port.
pub struct Root {
    kind: String,
    handle: String,
    /// The major number of the handle; 0 for the kernel's default qdisc.
    number: u16,
}

impl Root {
    /// Reads the root qdisc in the output of `tc -json qdisc show`; `None` if it shows none.
    pub fn of(shown: &[u8]) -> serde_json::Result<Option<Self>> {
        let all: Vec<serde_json::Value> = serde_json::from_slice(shown)?;
        Ok(all.iter().find(|one| one["root"] == true).map(|root| {
            let word = |key: &str| root[key].as_str().unwrap_or_default().to_owned();
            let handle = word("handle");
            let number = u16::from_str_radix(handle.trim_end_matches(':'), 16).unwrap_or(u16::MAX);
            Self { kind: word("kind"), handle, number }
        }))
    }

    /// Refuses a qdisc other than the kernel's default: it could not be restored.
    pub fn check_default(&self, port: &str) -> anyhow::Result<()> {
        if self.number == 0 {
            return Ok(());
        }
        Err(anyhow!(
            "{port}: the port has a queueing discipline of somebody else ({} {}), which netem would replace and nobody could \
             put back: `tc qdisc del dev {port} root`, or use --backend user",
            self.kind,
            self.handle
        ))
    }
}

impl Port {
    /// Returns the port's root qdisc from `tc`; `None` if it shows none.
    fn root(&self) -> anyhow::Result<Option<Root>> {
        let port = self.name.as_str();
        let show = ["tc", "-json", "qdisc", "show", "dev", port].map(str::to_owned);
        let shown = output(&show, Stdio::null())?;
        let problem = || format!("ask tc what qdiscs {port} has: {}", String::from_utf8_lossy(&shown.stderr).trim());
        Root::of(&shown.stdout).with_context(problem)
    }

    /// Returns the command that removes the root qdisc if the record names it; otherwise removes the outdated record.
    fn remove_if_ours(&self, root: &Root) -> Option<Command> {
        let recorded = self.record.as_ref().and_then(Record::handle);
        if root.kind == "netem" && recorded.as_ref() == Some(&root.handle) {
            return Some(removal(&root.handle, &self.name));
        }
        self.forget();
        None
    }

    fn write_down(&self, handle: &str) -> anyhow::Result<()> {
        let Some(record) = &self.record else { return Ok(()) };
        let shown = record.path().display();
        record.write(handle).with_context(|| format!("write {shown}, which says whose netem {} has", self.name))
    }

    /// Best effort: the next emulator detects a stale record.
    fn forget(&self) {
        let _ = self.record.as_ref().map(Record::remove);
    }
}

fn removal(handle: &str, port: &str) -> Command {
    under(handle, &["tc", "qdisc", "del", "dev", port, "root"].map(str::to_owned))
}

/// Returns `tc qdisc replace …` as `tc qdisc add …`, which the kernel refuses if a qdisc exists.
fn added(command: &[String]) -> Command {
    let mut command = command.to_vec();
    command.iter_mut().filter(|word| *word == "replace").take(1).for_each(|word| "add".clone_into(word));
    command
}

/// Chooses a handle that is not in use.
fn free_handle(random: u64, taken: &[u16]) -> u16 {
    let count = HANDLES.len() as u64;
    let nth = |offset: u64| HANDLES.start + ((random % count + offset) % count) as u16;
    (0..count).map(nth).find(|handle| !taken.contains(handle)).unwrap_or(HANDLES.start)
}

fn carry_out(command: &[String], input: Stdio) -> anyhow::Result<()> {
    let done = output(command, input)?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', " ");
    Err(anyhow!(
        "{}: {said}; this kernel may have no netem (`modprobe sch_netem`): use --backend user",
        command.join(" ")
    ))
}

fn output(command: &[String], input: Stdio) -> anyhow::Result<process::Output> {
    let (program, arguments) = command.split_first().context("a command")?;
    process::Command::new(program).args(arguments).stdin(input).output().with_context(|| format!("run {program}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_handle_is_neither_in_use_nor_in_the_automatic_range_of_the_kernel() {
        assert_eq!(free_handle(7, &[]), 0x1007);
        assert_eq!(free_handle(7, &[0, 0x1007, 0x1008]), 0x1009);
        assert_eq!(free_handle(0x6FFF, &[0x7FFF]), 0x1000);
        assert!((0..100_000).step_by(97).all(|random| HANDLES.contains(&free_handle(random, &[0x7000]))));
    }

    #[test]
    fn qdisc_is_added_and_replaces_no_other() {
        let command = ["tc", "qdisc", "replace", "dev", "replace", "root", "netem"].map(str::to_owned);
        assert_eq!(added(&command).join(" "), "tc qdisc add dev replace root netem");
    }
}
