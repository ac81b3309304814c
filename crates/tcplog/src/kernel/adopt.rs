//! Says whose the sockets are that a process made before our programs hung where sockets are made.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use libbpf_rs::{MapCore, MapFlags, Object};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::sys::descriptor_of;
use super::{KernelError, load};
use crate::layout::NAME_BYTES;

/// `struct place` of `bpf/maps.h`: seat, process, what is reserved, command.
const PLACE: usize = 16 + NAME_BYTES;
const PROCESS: std::ops::Range<usize> = 8..12;
const COMMAND: usize = 16;

/// Gives the sockets of TCP that a process has open to it; returns how many were nobody's before.
pub(super) fn adopt(object: &Object, process: u32) -> Result<u32, KernelError> {
    let failed = |error: std::io::Error| KernelError::io("look at", &format!("process {process}"), error);
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::InvalidInput);
    let handle = pidfd_open(pid.map_err(|kind| failed(kind.into()))?, PidfdFlags::empty())
        .map_err(|error| failed(error.into()))?;
    let folder = PathBuf::from(format!("/proc/{process}"));
    let command = std::fs::read_to_string(folder.join("comm")).map_err(failed)?;
    let places = load::map(object, "places")?;
    let mut adopted = 0;
    for entry in std::fs::read_dir(folder.join("fd")).map_err(failed)?.flatten() {
        let number = entry.file_name().to_string_lossy().parse();
        let is_socket =
            std::fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let (Ok(number), true) = (number, is_socket) else { continue };
        // It may have been closed since.
        let Ok(socket) = descriptor_of(handle.as_fd(), number) else { continue };
        if !is_tcp(&socket) {
            continue;
        }
        let key = socket.as_raw_fd().to_ne_bytes();
        let mut place = places.lookup(&key, MapFlags::ANY).ok().flatten().unwrap_or_else(|| vec![0; PLACE]);
        if place[PROCESS] != [0; 4] {
            continue;
        }
        place[PROCESS].copy_from_slice(&process.to_ne_bytes());
        for (to, from) in place[COMMAND..PLACE - 1].iter_mut().zip(command.trim_end().bytes()) {
            *to = from;
        }
        let written = places.update(&key, &place, MapFlags::ANY);
        written.map_err(|error| KernelError::system("adopt", "a socket", &error))?;
        adopted += 1;
    }
    Ok(adopted)
}

fn is_tcp(socket: &impl AsFd) -> bool {
    use rustix::net::{SocketType, ipproto, sockopt};
    sockopt::socket_protocol(socket).is_ok_and(|protocol| protocol == Some(ipproto::TCP))
        && sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM)
}
