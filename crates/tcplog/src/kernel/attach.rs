//! Attach programs to a cgroup and to tracepoints by links, which the kernel detaches when this process exits.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, Object};

use super::sys::attached;
use super::{KernelError, Mode};
use crate::layout::point;

/// `BPF_F_ALLOW_MULTI`: other programs may be attached there too.
const MULTI: u32 = 2;

/// The programs of each mode.
const OURS: [&str; 5] = ["made", "state_set", "destroyed", "packet_in", "packet_out"];
const EMPTY: [&str; 2] = ["empty_in", "empty_out"];
const PLACEBO: [&str; 2] = ["placebo_in", "placebo_out"];

/// Programs that only some samples need.
const BY_POINT: [(u8, &str); 5] = [
    (point::RTT, "rtt_taken"),
    (point::RETRANSMIT, "retransmitted"),
    (point::RECOVERY, "recovery_set"),
    (point::RESET_OUT, "reset_sent"),
    (point::RESET_IN, "reset_received"),
];

/// The attach points of a cgroup: libbpf's section name, bpftool's name, and the kernel's attach type.
const PLACES: [(&str, &str, u32); 4] = [
    ("cgroup_skb/ingress", "ingress", libbpf_sys::BPF_CGROUP_INET_INGRESS),
    ("cgroup_skb/egress", "egress", libbpf_sys::BPF_CGROUP_INET_EGRESS),
    ("cgroup/sock_create", "sock_create", libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE),
    ("sockops", "sock_ops", libbpf_sys::BPF_CGROUP_SOCK_OPS),
];

/// A cgroup v2 directory.
#[derive(Debug)]
pub struct Cgroup {
    file: File,
    path: PathBuf,
}

impl Cgroup {
    /// Open a cgroup; `None`: the root.
    ///
    /// # Errors
    /// When it is not a cgroup v2.
    pub fn open(path: Option<&Path>) -> Result<Self, KernelError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => cgroup_root()?,
        };
        let missing = |why: String| KernelError::NoCgroup(path.clone(), why);
        if !path.join("cgroup.procs").exists() || !path.join("cgroup.controllers").exists() {
            return Err(missing("it has no cgroup.controllers".to_owned()));
        }
        let file = File::open(&path).map_err(|error| missing(error.to_string()))?;
        Ok(Self { file, path })
    }

    /// Return its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_gone(&self) -> bool {
        !self.path.join("cgroup.procs").exists()
    }

    /// Find a program on this cgroup or an ancestor that permits no other at this attach point.
    fn occupant(&self, place: u32) -> Option<(PathBuf, u32)> {
        self.path.ancestors().find_map(|path| {
            let (flags, programs) = attached(File::open(path).ok()?.as_fd(), place).ok()?;
            let first = programs.first().copied()?;
            (flags & MULTI == 0).then(|| (path.to_owned(), first))
        })
    }
}

/// Find the cgroup v2 root in the mount table; where it is hidden, in that of an ancestor process. `ip netns exec`
/// mounts a new /sys over the old one and all mounts below it.
///
/// # Errors
/// When cgroup v2 is not mounted.
pub fn cgroup_root() -> Result<PathBuf, KernelError> {
    let mounts = |process: u32| std::fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let own = std::process::id();
    let above = || {
        std::iter::successors(parent(own), |process| parent(*process))
            .filter_map(|process| Some(as_seen_by(process, &find_root(&mounts(process))?)))
            .find(|root| root.is_dir())
    };
    find_root(&mounts(own)).or_else(above).ok_or_else(|| {
        let usual = PathBuf::from("/sys/fs/cgroup");
        KernelError::NoCgroup(usual, "no mount of that kind is in /proc/self/mountinfo".to_owned())
    })
}

/// Return the parent of a process; `None` for the first one.
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{process}/status")).ok()?;
    let parent = String::from_utf8_lossy(&status);
    let parent = parent.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    (parent != 0).then_some(parent)
}

/// Return the path through which a file of another process's mount namespace is accessible here.
fn as_seen_by(process: u32, path: &Path) -> PathBuf {
    Path::new("/proc").join(process.to_string()).join("root").join(path.strip_prefix("/").unwrap_or(path))
}

/// The format of a line: ID, parent, device, root, mount point, options, optional fields, "-", type, source, options.
/// Other mounts may have any bytes in their names.
pub fn find_root(mounts: &[u8]) -> Option<PathBuf> {
    String::from_utf8_lossy(mounts).lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let place = mount.split(' ').nth(4)?;
        (kind.split(' ').next() == Some("cgroup2")).then(|| PathBuf::from(unescaped(place)))
    })
}

/// Decode escapes such as `\040` for a space.
fn unescaped(place: &str) -> String {
    let mut parts = place.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// The attached programs with their IDs.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<(&'static str, u32, Link)>);

impl Links {
    /// Attach the programs that the mode and the points require, and detach all others.
    pub fn hang(&mut self, object: &Object, cgroup: &Cgroup, mode: Mode, points: u32) -> Result<(), KernelError> {
        let wanted = wanted(mode, points);
        self.0.retain(|(name, ..)| wanted.contains(name));
        for name in wanted {
            if !self.0.iter().any(|(hung, ..)| *hung == name)
                && let Some(link) = hang(object, cgroup, name)?
            {
                let info = link.info().map_err(|error| KernelError::system("ask about", name, &error))?;
                self.0.push((name, info.prog_id, link));
            }
        }
        Ok(())
    }

    /// Detach all, packet programs first.
    pub fn clear(&mut self) {
        while self.0.pop().is_some() {}
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, ..)| *name).collect()
    }

    /// Return which program was detached by somebody else, and why; the kernel sends no notification.
    pub fn taken_away(&self, cgroup: &Cgroup) -> Option<String> {
        self.0.iter().find_map(|(name, number, link)| {
            // A missing answer of the kernel does not count as detached.
            let info = link.info().ok()?;
            match info.info {
                LinkTypeInfo::Cgroup(at) if at.cgroup_id == 0 && cgroup.is_gone() => {
                    Some(format!("the cgroup {} was removed", cgroup.path.display()))
                }
                LinkTypeInfo::Cgroup(at) if at.cgroup_id == 0 => {
                    Some(format!("the program `{name}` was detached from {}", cgroup.path.display()))
                }
                _ if info.prog_id != *number => {
                    Some(format!("the program `{name}` was replaced by another one ({})", info.prog_id))
                }
                _ => None,
            }
        })
    }
}

fn wanted(mode: Mode, points: u32) -> Vec<&'static str> {
    match mode {
        Mode::Off => Vec::new(),
        Mode::Empty => EMPTY.to_vec(),
        Mode::Placebo => PLACEBO.to_vec(),
        Mode::On | Mode::Disabled => {
            let by_point = BY_POINT.iter().filter(|(point, _)| points & (1 << point) != 0).map(|(_, name)| *name);
            by_point.chain(OURS).collect()
        }
    }
}

/// Attach one program as its section requires; `None` where this kernel lacks the tracepoint.
fn hang(object: &Object, cgroup: &Cgroup, name: &'static str) -> Result<Option<Link>, KernelError> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.ok_or(KernelError::Damaged(name))?;
    let section = program.section().to_string_lossy().into_owned();
    if section.starts_with("tp_btf/") {
        if !program.autoload() {
            return Ok(None);
        }
        return program.attach_trace().map(Some).map_err(|error| KernelError::system("attach to", &section, &error));
    }
    program.attach_cgroup(cgroup.file.as_raw_fd()).map(Some).map_err(|error| {
        let place = PLACES.iter().find(|(libbpf, _, _)| *libbpf == section);
        match place.and_then(|(_, place, number)| cgroup.occupant(*number).map(|occupant| (*place, occupant))) {
            Some((place, (at, program))) => KernelError::Occupied { path: cgroup.path.clone(), at, place, program },
            None => KernelError::system("attach to", &cgroup.path.display().to_string(), &error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_cgroup_is_looked_up_through_the_parent_process() {
        assert_eq!(as_seen_by(7, Path::new("/sys/fs/cgroup")), Path::new("/proc/7/root/sys/fs/cgroup"));
        assert_eq!(parent(std::process::id()), std::os::unix::process::parent_id().into());
        assert_eq!(parent(1), None);
    }

    #[test]
    fn cgroup2_root_is_found_among_mounts_of_both_versions() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(find_root(mounts.as_bytes()), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        assert_eq!(find_root(b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\nnonsense\n"), None);
    }

    #[test]
    fn a_mount_whose_name_is_not_utf8_hides_no_other() {
        let mounts = b"30 23 0:27 / /mnt/\xffevil rw - tmpfs \xfe rw\n41 31 0:38 / /cgroups rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find_root(mounts), Some(PathBuf::from("/cgroups")));
    }

    #[test]
    fn programs_are_attached_only_at_requested_points() {
        assert_eq!(wanted(Mode::On, 0b11), OURS);
        let with_rtt = wanted(Mode::Disabled, 1 << point::RTT | 1);
        assert_eq!(with_rtt.first(), Some(&"rtt_taken"));
        assert_eq!(with_rtt.len(), OURS.len() + 1);
        assert!(wanted(Mode::Off, u32::MAX).is_empty());
    }
}
