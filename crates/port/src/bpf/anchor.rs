//! Where a program hangs that is run again and again with frames of ours, so that a run costs the kernel no change of its code.
//!
//! The kernel calls XDP programs through a dispatcher: code that it writes anew when a program is hung on its first interface, and
//! also before and after each run of one that hangs on none. That waits for all processors, 10 to 25 ms a run. A program that hangs
//! on a device of its own is there already. The device is a tap without a cable, never switched on: no frame ever comes by it. It
//! goes with the process. Does not know what the program does.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::{Attached, Mode, Program, sys};
use crate::kernel::Interface;

const TUN: &str = "/dev/net/tun";
/// Is there where the kernel has such devices already: opening the file else loads a module, which stays.
const HAS_TUN: &str = "/sys/class/misc/tun";
/// How the kernel is to name the device: with the first number that is free.
const NAME: &[u8] = b"sojourn%d";

/// The right to make a device to hang a program on.
#[derive(Debug)]
pub struct Anchor {
    tun: File,
}

/// A program on its device.
#[derive(Debug)]
pub struct Anchored {
    // First: the program leaves before the device does.
    _attached: Attached,
    _tun: File,
}

impl Anchor {
    /// Opens what makes devices, while this process may still open it; `None` where that is not to be had.
    pub fn prepare() -> Option<Self> {
        Path::new(HAS_TUN).exists().then_some(())?;
        OpenOptions::new().read(true).write(true).open(TUN).ok().map(|tun| Self { tun })
    }

    /// Makes a device in the network namespace of the thread that called [`Self::prepare`], and hangs a program on it.
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
