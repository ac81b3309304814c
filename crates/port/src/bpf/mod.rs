//! Programs of ours in the kernel: loaded from the objects that the build compiled from `bpf/`, attached to interfaces by
//! links that end with this process, however it ends.
//!
//! Hides libbpf. Everything happens in the network namespace of the thread that opens it. Knows nothing of what the programs
//! do.

mod anchor;
mod shared;
mod sys;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ObjectBuilder, OpenObject};

use crate::PortError;
use crate::kernel::Interface;
use sojourn_rights::Right;

/// A compiled object of the calling crate's `bpf/`, where libelf wants it: at a multiple of 8.
#[macro_export]
macro_rules! object {
    ($file:literal) => {{
        static OBJECT: $crate::bpf::Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/", $file)).len() }> =
            $crate::bpf::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $file)));
        &OBJECT.0
    }};
}
pub use crate::object;
pub use anchor::{Anchor, Anchored};
pub use shared::{Numbers, Records};

/// Bytes at a multiple of 8.
#[repr(C, align(8))]
pub struct Aligned<const N: usize>(
    /// The bytes.
    pub [u8; N],
);

/// A program in the kernel, with its maps.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: &'static str,
    maps: Vec<MapHandle>,
}

/// How a program hangs on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made anything of a frame.
    Native,
    /// In the kernel's general receive path, for drivers that cannot.
    Generic,
}

impl Mode {
    /// Returns what engines call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
        }
    }
}

/// At which end of an interface's part of the stack a program of traffic control hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where frames come in.
    In,
    /// Where they leave.
    Out,
}

/// A program of traffic control on an interface, until this is dropped or the process ends.
#[derive(Debug)]
pub struct AttachedTc {
    link: OwnedFd,
    /// The kernel's number of the program.
    number: u32,
}

impl AttachedTc {
    /// Asks the kernel. Waits for its lock of all interfaces.
    ///
    /// # Errors
    /// When it does not say.
    pub fn state(&self) -> io::Result<Attachment> {
        state(self.link.as_fd(), self.number)
    }

    /// Whether it hangs there, as /proc says it: for those who may no longer ask the kernel about programs.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn hangs(&self) -> io::Result<bool> {
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.link.as_raw_fd()))?;
        let of = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Ok(of("ifindex:").is_some_and(|index| index > 0) && of("prog_id:") == Some(u64::from(self.number)))
    }
}

/// A program on an interface, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Attached {
    link: Mutex<OwnedFd>,
    program: OwnedFd,
    /// The kernel's number of the program.
    number: u32,
    /// Of the interface.
    index: i32,
    /// How it hangs there.
    pub mode: Mode,
}

/// What has become of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// The program hangs there.
    Hangs,
    /// Somebody has detached it, or the interface is gone.
    Detached,
    /// Somebody has put the program of this number in its place.
    Replaced(u32),
}

impl Attached {
    /// Asks the kernel. Waits for its lock of all interfaces.
    ///
    /// # Errors
    /// When it does not say.
    pub fn state(&self) -> io::Result<Attachment> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        state(link.as_fd(), self.number)
    }

    /// Hangs the program there again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_again(&self) -> io::Result<()> {
        let link = sys::attach_xdp(self.program.as_fd(), self.index, self.mode)?;
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
        Ok(())
    }
}

impl Program {
    /// Loads the program `name` of an object and no other; `constants` are the bytes of the object's `const volatile`
    /// variables in their order.
    ///
    /// # Errors
    /// `Denied` without the right, `Unusable` on a kernel that is too old, else when the constants are not as many bytes as the
    /// object's or the kernel refuses.
    pub fn load(name: &'static str, object: &[u8], constants: &[u8]) -> Result<Self, PortError> {
        Self::load_for(name, object, constants, None)
    }

    /// As [`Self::load`], for one device alone where one is named: then the program may ask its driver, and hangs on no other
    /// and on none in the general path.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_for(
        name: &'static str,
        object: &[u8],
        constants: &[u8],
        device: Option<&Interface>,
    ) -> Result<Self, PortError> {
        let [program] = Self::open([name], object, constants, |open| {
            for mut program in open.progs_mut().filter(|program| program.name() == name) {
                if let Some(device) = device {
                    program.set_ifindex(device.index);
                    program.set_flags(libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY);
                }
            }
            Ok(())
        })?;
        Ok(program)
    }

    /// As [`Self::load`], for several programs that share their maps, some of which have room for so many entries. Rings are read by
    /// the first.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_together<const N: usize>(
        names: [&'static str; N],
        object: &[u8],
        constants: &[u8],
        rooms: &[(&str, u32)],
    ) -> Result<[Self; N], PortError> {
        Self::open(names, object, constants, |open| {
            for mut map in open.maps_mut() {
                let room = rooms.iter().find(|(name, _)| map.name() == *name);
                room.map_or(Ok(()), |(_, entries)| map.set_max_entries(*entries))?;
            }
            Ok(())
        })
    }

    fn open<const N: usize>(
        names: [&'static str; N],
        object: &[u8],
        constants: &[u8],
        prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
    ) -> Result<[Self; N], PortError> {
        let first = names.first().copied().unwrap_or_default();
        let refused = |error| refused(first, &error);
        // What libbpf has to say goes into our errors, not to the terminal.
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default().open_memory(object).map_err(refused)?;
        {
            let mut rodata = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
            let place = rodata.as_mut().and_then(|map| map.initial_value_mut()).unwrap_or_default();
            if place.len() != constants.len() {
                return Err(misfit(first, constants.len(), place.len()));
            }
            place.copy_from_slice(constants);
        }
        for mut program in open.progs_mut() {
            let is_wanted = names.iter().any(|name| program.name() == *name);
            program.set_autoload(is_wanted);
        }
        prepare(&mut open).map_err(refused)?;
        let object = open.load().map_err(refused)?;
        let one = |name: &'static str| {
            // A ring has one reader: the first program alone has its handle.
            let maps = object.maps().filter(|map| name == first || map.map_type() != MapType::RingBuf);
            let maps = maps.map(|map| MapHandle::try_from(&map)).collect::<Result<_, _>>().map_err(refused)?;
            let program = object.progs().find(|program| program.name() == name);
            let fd = program.map(|program| program.as_fd().try_clone_to_owned());
            let fd = fd.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
            let fd = fd.map_err(|source| PortError::System { operation: "load", object: name.to_owned(), source })?;
            Ok(Self { fd, name, maps })
        };
        let programs = names.into_iter().map(one).collect::<Result<Vec<_>, PortError>>()?;
        programs.try_into().map_err(|_| misfit(first, 0, N))
    }

    /// Hangs it on an interface: in the driver where that can be, else in the general path.
    ///
    /// # Errors
    /// `Denied` without the right, `Unusable` when another program hangs there or the MTU is too large for XDP.
    pub fn attach(&self, interface: &Interface) -> Result<Attached, PortError> {
        self.attach_as(interface, Mode::Native)
            .or_else(|error| if is_final(&error) { Err(error) } else { self.attach_as(interface, Mode::Generic) })
            .map_err(|error| attach_refused(interface, error))
    }

    /// Hangs it on an interface in this mode and no other.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_as(&self, interface: &Interface, mode: Mode) -> io::Result<Attached> {
        let (program, index) = (self.fd.try_clone()?, interface.index.cast_signed());
        let link = sys::attach_xdp(program.as_fd(), index, mode)?;
        let number = told(link.as_fd())?.prog_id;
        Ok(Attached { link: Mutex::new(link), program, number, index, mode })
    }

    /// Hangs a program of traffic control on an interface.
    ///
    /// # Errors
    /// When the kernel refuses, as Linux before 6.6 does.
    pub fn attach_tc(&self, interface: &Interface, end: End) -> io::Result<AttachedTc> {
        let link = sys::attach_tc(self.fd.as_fd(), interface.index.cast_signed(), end)?;
        let number = told(link.as_fd())?.prog_id;
        Ok(AttachedTc { link, number })
    }

    /// Runs it on `count` copies of `frame`, each of which goes where the program sends it, so many `together`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make_frames(&self, frame: &[u8], count: u32, together: u32) -> io::Result<()> {
        sys::run_live(self.fd.as_fd(), frame, count, together)
    }

    /// Reads the first words of the one value of a map that holds no other.
    ///
    /// # Errors
    /// When there is no such map, its value is shorter, or the kernel refuses.
    pub fn words<const N: usize>(&self, map: &str) -> Result<[u64; N], PortError> {
        let value = self.read(map, &0_u32.to_ne_bytes())?;
        value.and_then(|value| words(&value)).ok_or_else(|| PortError::System {
            operation: "read the map",
            object: map.to_owned(),
            source: io::ErrorKind::UnexpectedEof.into(),
        })
    }

    /// Reads the value of a key of one of its maps; `None` where there is none.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn read(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PortError> {
        self.map(map)?.lookup(key, MapFlags::ANY).map_err(|error| refused(self.name, &error))
    }

    /// Writes the value of a key of one of its maps.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn write(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), PortError> {
        self.map(map)?.update(key, value, MapFlags::ANY).map_err(|error| refused(self.name, &error))
    }

    /// Takes a key out of one of its maps.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn remove(&self, map: &str, key: &[u8]) -> Result<(), PortError> {
        self.map(map)?.delete(key).map_err(|error| refused(self.name, &error))
    }

    /// Lists the keys of one of its maps.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn keys(&self, map: &str) -> Result<Vec<Vec<u8>>, PortError> {
        Ok(self.map(map)?.keys().collect())
    }

    /// Maps the numbers of one of its arrays.
    ///
    /// # Errors
    /// When there is no such map, it is no array, or the kernel refuses.
    pub fn numbers(&self, map: &str) -> Result<Numbers, PortError> {
        Numbers::map(self.map(map)?).map_err(|error| unmapped(map, error))
    }

    /// Maps one of its rings, which has no other reader: once it is mapped the program has it no more.
    ///
    /// # Errors
    /// When there is no such map, it is no ring, or the kernel refuses.
    pub fn records(&mut self, map: &str) -> Result<Records, PortError> {
        let found = self.maps.iter().position(|one| one.name() == map).ok_or_else(|| no_map(map))?;
        Records::map(&self.maps.swap_remove(found)).map_err(|error| unmapped(map, error))
    }

    fn map(&self, name: &str) -> Result<&MapHandle, PortError> {
        self.maps.iter().find(|map| map.name() == name).ok_or_else(|| no_map(name))
    }
}

fn no_map(name: &str) -> PortError {
    PortError::System { operation: "find the map", object: name.to_owned(), source: io::ErrorKind::NotFound.into() }
}

fn unmapped(map: &str, source: io::Error) -> PortError {
    PortError::System { operation: "map the memory of", object: map.to_owned(), source }
}

/// Which numbers processors may ever have, as `0-3,8-11`.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// How many places a map needs that has one at the number of each processor that there may ever be.
///
/// # Errors
/// When the kernel does not say.
pub fn places_of_processors() -> Result<u32, PortError> {
    let told = std::fs::read_to_string(POSSIBLE);
    let found = told.and_then(|list| places(&list).ok_or_else(|| io::ErrorKind::InvalidData.into()));
    found.map_err(|source| PortError::System { operation: "read", object: POSSIBLE.to_owned(), source })
}

/// One more than the highest number of a list; numbers between its parts have places too.
fn places(list: &str) -> Option<u32> {
    let numbers = list.trim().split([',', '-']).map(|number| number.parse::<u32>().ok());
    numbers.collect::<Option<Vec<_>>>()?.into_iter().max()?.checked_add(1)
}

/// Asks the kernel what has become of the link of the program of this number.
fn state(link: BorrowedFd<'_>, number: u32) -> io::Result<Attachment> {
    let info = told(link)?;
    Ok(match info.info {
        LinkTypeInfo::Xdp(xdp) if xdp.ifindex == 0 => Attachment::Detached,
        LinkTypeInfo::Tcx(tcx) if tcx.ifindex == 0 => Attachment::Detached,
        _ if info.prog_id != number => Attachment::Replaced(info.prog_id),
        _ => Attachment::Hangs,
    })
}

/// What the kernel tells of a link.
fn told(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    LinkInfo::from_fd(link).map_err(|error| io::Error::other(error.to_string()))
}

/// Returns the first words of what a program wrote; `None` where it is shorter.
pub fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let words = bytes.as_chunks::<8>().0.get(..N)?;
    Some(std::array::from_fn(|index| u64::from_ne_bytes(words[index])))
}

/// Whether another mode would not help either: no right, or a program hangs there already.
fn is_final(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::EBUSY | libc::EEXIST))
}

fn misfit(name: &str, given: usize, expected: usize) -> PortError {
    PortError::System {
        operation: "set the constants of",
        object: format!("the program `{name}` in the kernel"),
        source: io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{given} bytes are given, the object has {expected} of them"),
        ),
    }
}

fn refused(name: &str, error: &libbpf_rs::Error) -> PortError {
    let object = format!("the program `{name}` in the kernel");
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if !Right::Perfmon.is_held() || !may_load() => denied("load", object),
        _ if is_before(&release(), OLDEST) => {
            let problem = format!(
                "this kernel ({}) is too old for it, Linux {}.{} has what it needs; use another engine",
                release().trim_end(),
                OLDEST[0],
                OLDEST[1]
            );
            PortError::Unusable { object, problem }
        }
        kind => {
            PortError::System { operation: "use", object, source: io::Error::new(io_kind(kind), error.to_string()) }
        }
    }
}

/// The first kernel with all that the programs call: `bpf_ktime_get_tai_ns` came last.
const OLDEST: [u32; 2] = [6, 1];

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Whether this kernel calls itself older than that. It may have what came later all the same: ask after it has refused.
pub fn is_kernel_before(first: [u32; 2]) -> bool {
    is_before(&release(), first)
}

/// Whether a kernel's release, "5.15.0-91-generic", is from before that one.
fn is_before(release: &str, first: [u32; 2]) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    let number: [Option<u32>; 2] = [numbers.next(), numbers.next()];
    matches!(number, [Some(major), Some(minor)] if [major, minor] < first)
}

/// Whether this thread may have maps and programs at all: a program that is refused although it may was not understood.
fn may_load() -> bool {
    let options =
        libbpf_sys::bpf_map_create_opts { sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _, ..Default::default() };
    MapHandle::create(MapType::Array, Some("permitted"), 4, 4, 1, &options).is_ok()
}

fn io_kind(kind: libbpf_rs::ErrorKind) -> io::ErrorKind {
    match kind {
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
        libbpf_rs::ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        libbpf_rs::ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    }
}

/// Makes a sentence of why a program could not be hung on an interface.
pub(crate) fn attach_refused(interface: &Interface, source: io::Error) -> PortError {
    let Interface { name, mtu, .. } = interface;
    let object = format!("an XDP program to {name}");
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => denied("attach", object),
        Some(libc::EBUSY | libc::EEXIST) => PortError::Unusable {
            object: name.clone(),
            problem: format!("an XDP program hangs on it already; `ip link show dev {name}` tells which"),
        },
        Some(libc::ERANGE) => PortError::Unusable {
            object: name.clone(),
            problem: format!("its MTU of {mtu} bytes is too large for XDP; `ip link set dev {name} mtu 1500`"),
        },
        _ => PortError::System { operation: "attach", object, source },
    }
}

fn denied(operation: &'static str, object: String) -> PortError {
    let fix = "run it as root; a user namespace does not grant it".to_owned();
    PortError::Denied { operation, object, right: "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN", fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_another_length_are_refused() {
        for constants in [&[0; 1][..], &[0; 3], &[]] {
            let error = Program::load("redirect", object!("redirect.bpf.o"), constants).unwrap_err().to_string();
            assert!(error.contains("the object has 2 of them"), "{error}");
        }
    }

    #[test]
    fn old_kernels_are_known_by_their_release() {
        for (release, old) in [("5.15.0-91-generic\n", true), ("6.0.9", true), ("6.1.0", false), ("6.18.44-x", false)] {
            assert_eq!(is_before(release, OLDEST), old, "{release}");
        }
        assert!(!is_before("", OLDEST) && !is_before("rolling", OLDEST), "nobody knows");
        assert!(is_before("6.5.0-1-amd64", [6, 6]) && !is_before("6.6.0", [6, 6]) && !is_before("6.10.3", [6, 6]));
    }

    #[test]
    fn numbers_of_processors_may_have_gaps() {
        for (list, most) in [("0\n", 1), ("0-3\n", 4), ("0-3,8-11\n", 12), ("0,2", 3), ("4-5,0-1", 6)] {
            assert_eq!(places(list), Some(most), "{list}");
        }
        for list in ["", "\n", "0-", "all", "0-4294967295"] {
            assert_eq!(places(list), None, "{list}");
        }
        let here = places_of_processors().unwrap();
        assert!(here as usize >= libbpf_rs::num_possible_cpus().unwrap(), "{here}");
    }
}
