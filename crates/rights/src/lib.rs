//! The privileges of each command: the capabilities, the user, the system calls and the writable folders that it keeps
//! after its set-up, and how it drops the rest.
//!
//! They are declared in one table ([`table`]), from which the reference page and the tests are derived. All functions
//! apply to the calling thread and the threads that it starts later; a running thread must call them itself.

mod calls;
mod files;
mod give_up;
mod identity;
pub mod table;

use rustix::thread::{CapabilitySet, capabilities};

pub use files::{Folders, Landlock};
pub use give_up::{keep_only, lend_nothing};
pub use identity::{Identity, IdentityError, may_change};
pub use table::Needs;

/// A capability that an instrument may need.
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
    /// CAP_BPF: BPF programs.
    Bpf,
    /// CAP_PERFMON: BPF programs that compute offsets into map values.
    Perfmon,
    /// CAP_SYS_ADMIN: new namespaces and many other operations.
    SysAdmin,
    /// CAP_DAC_OVERRIDE: files and folders of every user.
    DacOverride,
    /// CAP_NET_BIND_SERVICE: ports below 1024.
    NetBindService,
}

impl Right {
    /// All capabilities.
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

    /// Return the name as in `capabilities(7)`.
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

    /// Return whether this thread has the capability in its effective set.
    pub fn is_held(self) -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(self.set()))
    }

    /// Return the bit in the masks of `/proc/PID/status`.
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

/// The group whose members may run a copy of the program that has file capabilities.
pub const GROUP: &str = "sojourn";

/// The copy that the Debian package makes for the members of the group, and its capabilities.
const PACKAGED: &str = "/usr/libexec/sojourn/sojourn-instrument";
const PACKAGED_RIGHTS: [Right; 3] = [Right::NetRaw, Right::SysNice, Right::IpcLock];

/// Return the commands that let only the members of a group run a copy of this program with these capabilities, as
/// dumpcap is installed. File capabilities on a program that everybody may execute would apply to everybody. Where the
/// Debian package has made such a copy, to join the group is enough.
pub fn for_a_group(rights: &[Right]) -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "sojourn-instrument".to_owned(), |path| path.display().to_string());
    advice(rights, &program, std::path::Path::new(PACKAGED).exists())
}

fn advice(rights: &[Right], program: &str, packaged: bool) -> String {
    if packaged && rights.iter().all(|right| PACKAGED_RIGHTS.contains(right)) {
        return format!(
            "join the group whose members may run {PACKAGED}, which has it: `sudo usermod -aG {GROUP} $USER`, and log in again"
        );
    }
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
    fn advice_for_file_capabilities_restricts_the_program_to_a_group() {
        let advice = advice(&[Right::NetRaw, Right::IpcLock], "sojourn-instrument", false);
        assert!(advice.contains("-m 0750") && advice.contains("setcap cap_net_raw,cap_ipc_lock=ep"), "{advice}");
        assert_eq!(advice.lines().count(), 1);
    }

    #[test]
    fn where_the_package_made_the_copy_its_group_is_joined() {
        let advised = advice(&[Right::NetRaw], "sojourn-instrument", true);
        assert!(advised.contains("usermod -aG sojourn") && !advised.contains("setcap"), "{advised}");
        let beyond = advice(&[Right::NetRaw, Right::SysAdmin], "sojourn-instrument", true);
        assert!(beyond.contains("setcap"), "its copy has not all of them: {beyond}");
    }
}
