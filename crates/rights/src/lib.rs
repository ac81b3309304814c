//! The rights (capabilities) that this process holds, and how it gives them up.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

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

/// Gives up every right of this thread but those in `kept`, for good. A right that is not held is not gained.
///
/// Root then writes only to files that are its own: open those of others first.
///
/// Threads started afterwards have no more; threads that run already keep theirs, so call it before there are any.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_only(kept: &[Right]) -> std::io::Result<()> {
    let held = capabilities(None)?;
    let wanted = kept.iter().fold(CapabilitySet::empty(), |set, right| set | right.set());
    let left = held.permitted & wanted;
    set_capabilities(None, CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_given_up_is_gone() {
        // In a thread of its own: rights belong to threads, and other tests need theirs.
        let held = std::thread::spawn(|| {
            let could = Right::NetRaw.is_held();
            keep_only(&[Right::NetRaw]).expect("giving up is always permitted");
            assert_eq!(Right::NetRaw.is_held(), could);
            keep_only(&[]).expect("giving up is always permitted");
            Right::ALL.map(Right::is_held)
        });
        assert_eq!(held.join().expect("the thread ends well"), [false; 8]);
    }
}
