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

pub use files::Landlock;
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
    /// CAP_SYS_RESOURCE: limits beyond the hard ones.
    SysResource,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NetRaw,
        Self::NetAdmin,
        Self::SysNice,
        Self::IpcLock,
        Self::Bpf,
        Self::Perfmon,
        Self::SysAdmin,
        Self::SysResource,
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
            Self::SysResource => "CAP_SYS_RESOURCE",
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
            Self::SysResource => CapabilitySet::SYS_RESOURCE,
        }
    }
}
