//! Attaches an XDP program to a dummy device, so that test runs of the program do not modify kernel code.
//!
//! The kernel calls XDP programs through a dispatcher, which it rewrites when a program is attached for the first time,
//! and before and after each test run of an unattached program. That synchronises all processors, 10 to 25 ms per run.
//! An attached program avoids it. The device is a tap that is never set up, so no frame passes it. It is removed when
//! the process ends. Does not know what the program does.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::{Attached, Mode, Program, sys};
use crate::kernel::Interface;

const TUN: &str = "/dev/net/tun";
/// Exists where the kernel already has tun devices: otherwise opening the file loads a module, which stays.
const HAS_TUN: &str = "/sys/class/misc/tun";
/// The pattern of the device's name; the kernel inserts the first free number.
const NAME: &[u8] = b"sojourn%d";

/// An open `/dev/net/tun`, from which a device can be created.
#[derive(Debug)]
pub struct Anchor {
    tun: File,
}

/// A program attached to its own device.
#[derive(Debug)]
pub struct Anchored {
    // First, so that the program is detached before the device is removed.
    _attached: Attached,
    _tun: File,
}

impl Anchor {
    /// Opens `/dev/net/tun` while this process still may; `None` where it is missing or not permitted.
    pub fn prepare() -> Option<Self> {
        Path::new(HAS_TUN).exists().then_some(())?;
        OpenOptions::new().read(true).write(true).open(TUN).ok().map(|tun| Self { tun })
    }

    /// Creates a device in the network namespace of the thread that called [`Self::prepare`], and attaches a program to
    /// it.
    ///
    /// # Errors
    /// When the kernel refuses, as without CAP_NET_ADMIN.
    pub fn hold(self, program: &Program) -> io::Result<Anchored> {
        let name = sys::make_tap(self.tun.as_fd(), NAME)?;
        let interface = Interface::named(&name).map_err(io::Error::other)?;
        let attached = program.attach_as(&interface, Mode::Native)?;
        Ok(Anchored { _attached: attached, _tun: self.tun })
    }
}
