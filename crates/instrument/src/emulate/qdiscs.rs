//! The qdiscs of `--backend kernel`: put in place under a handle of their own, and removed when this program ends, however it ends.
//!
//! A shell waits at a pipe that only this program holds open, and each `tc` that it starts; at the pipe's end it removes the qdiscs.
//! So one that is killed (SIGKILL) leaves none behind. They are removed by their handle: what somebody else has put in their place
//! stays. Where the shell was killed too, the next emulator at the port knows them by their handles, and replaces or removes
//! them. A port that has another qdisc than the kernel's default is refused, for that could not be put back. While they are
//! needed, they can be asked for: somebody may have removed them. Does not decide what netem does.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Stdio};

use anyhow::{Context, anyhow};
use sojourn_emulate::kernel::{Command, port_of, under};
use sojourn_port::bridge::{Lock, reserve};
use sojourn_port::kernel::Interface;

use crate::failure::NotTrusted;

/// Handles that are ours: the kernel gives 8000 and more by itself, and people give small ones.
const HANDLES: Range<u16> = 0x5000..0x6000;

/// $1 the handle, then the ports. What ends this program's process group, or its terminal, does not end the shell.
const REMOVER: &str = r#"
trap '' HUP INT TERM
handle=$1; shift
while read -r _; do :; done
for port; do tc qdisc del dev "$port" root handle "$handle"; done
"#;

/// Qdiscs of ours; dropped: none of them is there any more.
pub struct Qdiscs {
    handle: String,
    ports: Vec<String>,
    /// What an emulator left that was killed with its shell, at ports that nothing is put at now.
    left_over: Vec<Command>,
    /// At its end the shell removes them.
    pipe: Option<OwnedFd>,
    remover: Child,
    _locks: Vec<Lock>,
}

impl Qdiscs {
    /// Takes both ports, and has those looked after that these commands configure; puts nothing in place yet.
    ///
    /// # Errors
    /// When another emulator has one of them, or one has a qdisc of somebody's.
    pub fn begin(both: [&str; 2], commands: &[Command]) -> anyhow::Result<Self> {
        let ports: Vec<String> = commands.iter().map(|command| port_of(command).to_owned()).collect();
        let mut locks = Vec::new();
        for port in both {
            locks.extend(reserve(&Interface::named(port)?)?);
        }
        let mut taken = Vec::new();
        for port in &ports {
            taken.push(replaceable_root(port)?);
        }
        let mut left_over = Vec::new();
        for port in both.into_iter().filter(|port| !ports.iter().any(|one| one == port)) {
            if let Some(root) = root_of(port)?.filter(Root::is_ours) {
                left_over.push(under(&root.handle, &["tc", "qdisc", "del", "dev", port, "root"].map(str::to_owned)));
                taken.push(root.number);
            }
        }
        let handle = format!("{:x}:", free_handle(process::id(), &taken));
        let mut remover = process::Command::new("sh")
            .args(["-c", REMOVER, "sojourn-netem", &handle])
            .args(&ports)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("run sh, which removes the qdiscs in the end")?;
        let pipe = remover.stdin.take().map(OwnedFd::from);
        Ok(Self { handle, ports, left_over, pipe, remover, _locks: locks })
    }

    /// Puts them in place, and removes what was left over; returns the commands that put them.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn put(&self, commands: &[Command]) -> anyhow::Result<Vec<Command>> {
        let commands: Vec<_> = commands.iter().map(|command| under(&self.handle, command)).collect();
        for command in self.left_over.iter().chain(&commands) {
            // A `tc` that outlives this program holds the pipe: what it does is removed as well.
            let pipe = self.pipe.as_ref().map(OwnedFd::try_clone).transpose().context("keep the pipe open for tc")?;
            carry_out(command, pipe.map_or_else(Stdio::null, Stdio::from))?;
        }
        Ok(commands)
    }

    /// Looks whether each is still in its place.
    ///
    /// # Errors
    /// [`NotTrusted`] where one is not, or its port is not there by that name: packets pass there unemulated.
    pub fn check(&self) -> anyhow::Result<()> {
        for port in &self.ports {
            let root = root_of(port).map_err(|error| gone(port, &format!("{error:#}")))?;
            let handle = root.as_ref().map_or("none", |root| &root.handle);
            if handle != self.handle {
                return Err(gone(port, &format!("the root qdisc there is {handle}, not {}", self.handle)));
            }
        }
        Ok(())
    }
}

fn gone(port: &str, why: &str) -> anyhow::Error {
    NotTrusted(format!("{port}: its netem is not there any more, so packets pass as they are: {why}")).into()
}

impl Drop for Qdiscs {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let has_removed = self.remover.wait().is_ok_and(|status| status.code().is_some());
        for port in self.ports.iter().filter(|_| !has_removed) {
            // The shell was killed. What was never put in place cannot be removed.
            let remove = ["tc", "qdisc", "del", "dev", port, "root"].map(str::to_owned);
            let _ = output(&under(&self.handle, &remove), Stdio::null());
        }
    }
}

/// The root qdisc of a port.
struct Root {
    kind: String,
    handle: String,
    /// The major number of the handle; 0 of the kernel's default one.
    number: u16,
}

impl Root {
    fn is_ours(&self) -> bool {
        self.kind == "netem" && HANDLES.contains(&self.number)
    }
}

/// Asks `tc` for the root qdisc of a port; None where it shows none.
fn root_of(port: &str) -> anyhow::Result<Option<Root>> {
    let show = ["tc", "-json", "qdisc", "show", "dev", port].map(str::to_owned);
    let shown = output(&show, Stdio::null())?;
    let problem = || format!("ask tc what qdiscs {port} has: {}", String::from_utf8_lossy(&shown.stderr).trim());
    let all: Vec<serde_json::Value> = serde_json::from_slice(&shown.stdout).with_context(problem)?;
    Ok(all.iter().find(|one| one["root"] == true).map(|root| {
        let word = |key: &str| root[key].as_str().unwrap_or_default().to_owned();
        let handle = word("handle");
        let number = u16::from_str_radix(handle.trim_end_matches(':'), 16).unwrap_or(u16::MAX);
        Root { kind: word("kind"), handle, number }
    }))
}

/// Returns the handle of a port's root qdisc, which may be replaced: the kernel's default one (0), or one of ours that was left.
fn replaceable_root(port: &str) -> anyhow::Result<u16> {
    let Some(root) = root_of(port)? else { return Ok(0) };
    if root.number == 0 || root.is_ours() {
        return Ok(root.number);
    }
    Err(anyhow!(
        "{port}: it has a qdisc of its own ({} {}), which netem would replace and nobody could put back: \
         `tc qdisc del dev {port} root`, or use --backend user",
        root.kind,
        root.handle
    ))
}

/// Chooses a handle that none of these is: a shell of an emulator that was killed just now must not remove ours.
fn free_handle(seed: u32, taken: &[u16]) -> u16 {
    let count = HANDLES.len() as u32;
    let nth = |offset: u32| HANDLES.start + ((seed % count + offset) % count) as u16;
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
    fn a_handle_is_ours_and_none_that_is_there() {
        assert_eq!(free_handle(7, &[]), 0x5007);
        assert_eq!(free_handle(7, &[0, 0x5007, 0x5008]), 0x5009);
        assert_eq!(free_handle(0x1FFF, &[0x5FFF]), 0x5000);
    }
}
