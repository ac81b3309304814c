//! What each command may do on its machine: the capabilities, the user, the system calls and the folders that it keeps once it
//! is set up, and how it gives up the rest.
//!
//! One table says all of it ([`table`]); the reference page and the tests are made from that. Everything here concerns the
//! calling thread and the threads that it starts afterwards; a thread that runs already has to do the same.

mod calls;
mod files;
mod give_up;
mod identity;
pub mod table;

use rustix::thread::{CapabilitySet, capabilities};

pub use files::{Folders, Landlock};
pub use give_up::keep_only;
pub use identity::{Identity, IdentityError, may_change};
pub use table::Needs;

/// A right that an instrument may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// CAP_NET_RAW: raw and packet sockets.
    NetRaw,
    /// CAP_NET_ADMIN: large socket buffers, network settings.
    NetAdmin,
    /// CAP_SYS_NICE: SCHED_FIFO.
    SysNice,
    /// CAP_IPC_LOCK: more locked memory than the limit.
    IpcLock,
    /// CAP_BPF: programs in the kernel.
    Bpf,
    /// CAP_PERFMON: programs that go to places in a map which they themselves have computed.
    Perfmon,
    /// CAP_SYS_ADMIN: new namespaces, and much else.
    SysAdmin,
    /// CAP_DAC_OVERRIDE: files and folders of every user.
    DacOverride,
    /// CAP_NET_BIND_SERVICE: ports below 1024.
    NetBindService,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NetRaw,
        Self::NetAdmin,
        Self::SysNice,
        Self::IpcLock,
        Self::Bpf,
        Self::Perfmon,
        Self::SysAdmin,
        Self::DacOverride,
        Self::NetBindService,
    ];

    /// Returns its name, as `capabilities(7)` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetRaw => "CAP_NET_RAW",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
        }
    }

    /// Returns whether this thread holds it now.
    pub fn is_held(self) -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(self.set()))
    }

    /// Returns its bit in the masks of `/proc/PID/status`.
    pub const fn bit(self) -> u64 {
        self.set().bits()
    }

    const fn set(self) -> CapabilitySet {
        match self {
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::SysNice => CapabilitySet::SYS_NICE,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
            Self::Bpf => CapabilitySet::BPF,
            Self::Perfmon => CapabilitySet::PERFMON,
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
            Self::DacOverride => CapabilitySet::DAC_OVERRIDE,
            Self::NetBindService => CapabilitySet::NET_BIND_SERVICE,
        }
    }
}

/// The group whose members may run a copy of the program that has rights.
pub const GROUP: &str = "sojourn";

/// The commands that let a group, and nobody else, run a copy of this program with these rights, as dumpcap is installed: on a
/// program that everybody may run, file capabilities would be everybody's.
pub fn for_a_group(rights: &[Right]) -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "sojourn-instrument".to_owned(), |path| path.display().to_string());
    let names: Vec<String> = rights.iter().map(|right| right.name().to_lowercase()).collect();
    let copy = "/usr/local/libexec/sojourn-instrument";
    format!(
        "let the members of a group run a copy with it: `sudo groupadd --system {GROUP}; sudo install -D -o root -g {GROUP} -m \
         0750 {program} {copy} && sudo setcap {}=ep {copy} && sudo usermod -aG {GROUP} $USER`, and log in again",
        names.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_of_a_file_are_for_a_group_alone() {
        let advice = for_a_group(&[Right::NetRaw, Right::IpcLock]);
        assert!(advice.contains("-m 0750") && advice.contains("setcap cap_net_raw,cap_ipc_lock=ep"), "{advice}");
        assert_eq!(advice.lines().count(), 1);
    }
}
