//! Drop capabilities permanently, from every set that could restore one.

use std::io;

use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capabilities_secure_bits,
    capability_is_in_bounding_set, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

use crate::Right;

/// The number of bits in a capability mask.
const MOST: u32 = 64;

/// Drop all capabilities of this thread except those in `kept`, permanently: no program that it executes has any, not
/// even a setuid root program or one with file capabilities. Capabilities that are not held are not gained.
///
/// Afterwards root can write only to its own files: open those of others first.
///
/// Threads started later inherit the restriction; running threads are not affected, so call it before there are any.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_only(kept: &[Right]) -> io::Result<()> {
    let held = capabilities(None)?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    // Without CAP_SETPCAP the bounding set cannot be changed; `no_new_privs` alone makes its contents unreachable then.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
        // Bits that are set stay set: some may be locked.
        set_capabilities_secure_bits(capabilities_secure_bits()? | locked())?;
    }
    let wanted = kept.iter().fold(CapabilitySet::empty(), |set, right| set | right.set());
    let left = held.permitted & wanted;
    if (held.effective, held.permitted, held.inheritable) == (left, left, CapabilitySet::empty()) {
        // A service that has nothing may be refused the call.
        return Ok(());
    }
    set_capabilities(None, CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

/// Lend no capability of this thread to the programs that it executes.
///
/// # Errors
/// When the kernel refuses.
pub fn lend_nothing() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let held = capabilities(None)?;
    if held.inheritable.is_empty() {
        // A service that has nothing may be refused the call.
        return Ok(());
    }
    Ok(set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..held })?)
}

fn empty_bounding_set() -> io::Result<()> {
    for number in 0..MOST {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // Beyond the last capability that this kernel knows.
            Err(_) => break,
        }
    }
    Ok(())
}

/// The user ID 0 has no special meaning: neither executing a program as root nor changing the user restores a
/// capability.
fn locked() -> CapabilitiesSecureBits {
    CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_capability_is_gone() {
        // In a thread of its own: capabilities belong to threads, and other tests need theirs.
        let held = std::thread::spawn(|| {
            let could = Right::NetRaw.is_held();
            keep_only(&[Right::NetRaw]).expect("giving up is always permitted");
            assert_eq!(Right::NetRaw.is_held(), could);
            keep_only(&[]).expect("giving up is always permitted");
            Right::ALL.map(Right::is_held)
        });
        assert_eq!(held.join().expect("the thread ends well"), [false; 9]);
    }

    #[test]
    fn dropped_capability_is_in_no_set() {
        let could = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETPCAP));
        let status = std::thread::spawn(|| {
            keep_only(&[Right::NetRaw]).expect("giving up is always permitted");
            std::fs::read_to_string("/proc/thread-self/status").expect("its status")
        });
        let status = status.join().expect("the thread ends well");
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
        assert_eq!((field("NoNewPrivs:"), field("CapAmb:"), field("CapInh:")), ("1", ZERO, ZERO), "{status}");
        assert_eq!(field("CapBnd:") == ZERO, could, "{status}");
    }

    #[test]
    fn already_locked_securebits_are_kept() {
        let theirs = CapabilitiesSecureBits::KEEP_CAPS | CapabilitiesSecureBits::KEEP_CAPS_LOCKED;
        let bits = std::thread::spawn(move || {
            let is_set = set_capabilities_secure_bits(theirs).is_ok();
            keep_only(&[]).expect("giving up is always permitted");
            is_set.then(|| capabilities_secure_bits().expect("its bits"))
        });
        match bits.join().expect("the thread ends well") {
            Some(bits) => assert_eq!(bits, theirs | locked()),
            None => {
                assert!(std::env::var_os("CI").is_none(), "CI must be root");
                eprintln!("skipped: without CAP_SETPCAP no secure bit can be set");
            }
        }
    }

    const ZERO: &str = "0000000000000000";
}
