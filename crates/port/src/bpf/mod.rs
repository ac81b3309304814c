//! Loads BPF programs from the objects that the build compiled from `bpf/`, and attaches them to interfaces by links
//! that end with this process, however it ends.
//!
//! Hides libbpf. Uses the network namespace of the thread that opens it. Does not know what the programs do.

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

/// Embeds a compiled object of the calling crate's `bpf/`, aligned to 8 bytes as libelf requires.
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

/// Bytes aligned to a multiple of 8.
#[repr(C, align(8))]
pub struct Aligned<const N: usize>(
    /// The bytes.
    pub [u8; N],
);

/// A loaded BPF program, with its maps.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: &'static str,
    maps: Vec<MapHandle>,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates an skb.
    Native,
    /// In the kernel's general receive path, for drivers without XDP support.
    Generic,
}

impl Mode {
    /// Returns its name, as used in the names of I/O backends.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
        }
    }
}

/// The direction of a tc program (tcx).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Ingress.
    In,
    /// Egress.
    Out,
}

/// An attached tc program; detached when this is dropped or the process ends.
#[derive(Debug)]
pub struct AttachedTc {
    link: OwnedFd,
    /// The kernel's ID of the program.
    number: u32,
}

impl AttachedTc {
    /// Reads the state from the kernel. Waits for its RTNL lock.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn state(&self) -> io::Result<Attachment> {
        state(self.link.as_fd(), self.number)
    }

    /// Whether it is attached, according to /proc: for processes that may no longer call bpf(2).
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn hangs(&self) -> io::Result<bool> {
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.link.as_raw_fd()))?;
        Ok(is_hung(&told, self.number))
    }
}

/// Whether /proc says of a link that the program with this ID is attached by it.
pub(crate) fn is_hung(told: &str, number: u32) -> bool {
    let of = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    of("ifindex:").is_some_and(|index| index > 0) && of("prog_id:") == Some(u64::from(number))
}

/// An attached XDP program; detached when this is dropped or the process ends.
#[derive(Debug)]
pub struct Attached {
    link: Mutex<OwnedFd>,
    program: OwnedFd,
    /// The kernel's ID of the program.
    number: u32,
    /// The interface's index.
    index: i32,
    /// How it is attached.
    pub mode: Mode,
}

/// The state of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// The program is attached.
    Hangs,
    /// It was detached, or the interface is gone.
    Detached,
    /// It was replaced by the program with this ID.
    Replaced(u32),
}

impl Attached {
    /// Reads the state from the kernel. Waits for its RTNL lock.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn state(&self) -> io::Result<Attachment> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        state(link.as_fd(), self.number)
    }

    /// Attaches the program again.
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
    /// Loads only the program `name` of an object; `constants` are the bytes of the object's `const volatile`
    /// variables, in order.
    ///
    /// # Errors
    /// `Denied` without permission, `Unusable` on a kernel that is too old; else when the constants differ in size from
    /// the object's, or when the kernel refuses.
    pub fn load(name: &'static str, object: &[u8], constants: &[u8]) -> Result<Self, PortError> {
        Self::load_for(name, object, constants, None)
    }

    /// As [`Self::load`], bound to one device if one is named: such a program may call the driver's metadata functions,
    /// and can only be attached to this device, in native mode.
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

    /// As [`Self::load`], for several programs that share their maps; `rooms` sets the number of entries of some. Only
    /// the first program can read ring buffers.
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
        // Messages of libbpf go into our errors, not to the terminal.
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
            // A ring buffer has one reader: only the first program gets its handle.
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

    /// Attaches it to an interface: in native mode where possible, else in generic mode.
    ///
    /// # Errors
    /// `Denied` without permission, `Unusable` when another program is attached or the MTU is too large for XDP.
    pub fn attach(&self, interface: &Interface) -> Result<Attached, PortError> {
        self.attach_as(interface, Mode::Native)
            .or_else(|error| if is_final(&error) { Err(error) } else { self.attach_as(interface, Mode::Generic) })
            .map_err(|error| attach_refused(interface, error))
    }

    /// Attaches it to an interface in this mode only.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_as(&self, interface: &Interface, mode: Mode) -> io::Result<Attached> {
        let (program, index) = (self.fd.try_clone()?, interface.index.cast_signed());
        let link = sys::attach_xdp(program.as_fd(), index, mode)?;
        let number = told(link.as_fd())?.prog_id;
        Ok(Attached { link: Mutex::new(link), program, number, index, mode })
    }

    /// Attaches a tc program to an interface.
    ///
    /// # Errors
    /// When the kernel refuses; Linux before 6.6 always does.
    pub fn attach_tc(&self, interface: &Interface, end: End) -> io::Result<AttachedTc> {
        let link = sys::attach_tc(self.fd.as_fd(), interface.index.cast_signed(), end)?;
        let number = told(link.as_fd())?.prog_id;
        Ok(AttachedTc { link, number })
    }

    /// Runs it on `count` copies of `frame`, in batches of `together`; each copy takes the program's verdict.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make_frames(&self, frame: &[u8], count: u32, together: u32) -> io::Result<()> {
        sys::run_live(self.fd.as_fd(), frame, count, together)
    }

    /// Reads the first words of the value of a map's only key, 0.
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

    /// Reads the value of a map's key; `None` if the key is absent.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn read(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PortError> {
        self.map(map)?.lookup(key, MapFlags::ANY).map_err(|error| not_used(self.name, &error))
    }

    /// Writes the value of a map's key.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn write(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), PortError> {
        self.map(map)?.update(key, value, MapFlags::ANY).map_err(|error| not_used(self.name, &error))
    }

    /// Deletes a key of a map.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn remove(&self, map: &str, key: &[u8]) -> Result<(), PortError> {
        self.map(map)?.delete(key).map_err(|error| not_used(self.name, &error))
    }

    /// Lists the keys of a map.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn keys(&self, map: &str) -> Result<Vec<Vec<u8>>, PortError> {
        Ok(self.map(map)?.keys().collect())
    }

    /// Maps the numbers of an array into memory.
    ///
    /// # Errors
    /// When there is no such map, it is not an array, or the kernel refuses.
    pub fn numbers(&self, map: &str) -> Result<Numbers, PortError> {
        Numbers::map(self.map(map)?).map_err(|error| unmapped(map, error))
    }

    /// Maps a ring buffer into memory. It has one reader: the program gives up its handle.
    ///
    /// # Errors
    /// When there is no such map, it is not a ring buffer, or the kernel refuses.
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

/// The possible CPU numbers, as `0-3,8-11`.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The number of entries that a map indexed by CPU number needs.
///
/// # Errors
/// When the kernel does not report it.
pub fn places_of_processors() -> Result<u32, PortError> {
    let told = std::fs::read_to_string(POSSIBLE);
    let found = told.and_then(|list| places(&list).ok_or_else(|| io::ErrorKind::InvalidData.into()));
    found.map_err(|source| PortError::System { operation: "read", object: POSSIBLE.to_owned(), source })
}

/// One more than the highest number of a list; gaps between its ranges count too.
pub(crate) fn places(list: &str) -> Option<u32> {
    let numbers = list.trim().split([',', '-']).map(|number| number.parse::<u32>().ok());
    numbers.collect::<Option<Vec<_>>>()?.into_iter().max()?.checked_add(1)
}

/// Reads the state of the link of the program with this ID.
fn state(link: BorrowedFd<'_>, number: u32) -> io::Result<Attachment> {
    let info = told(link)?;
    Ok(match info.info {
        LinkTypeInfo::Xdp(xdp) if xdp.ifindex == 0 => Attachment::Detached,
        LinkTypeInfo::Tcx(tcx) if tcx.ifindex == 0 => Attachment::Detached,
        _ if info.prog_id != number => Attachment::Replaced(info.prog_id),
        _ => Attachment::Hangs,
    })
}

/// Reads what the kernel reports about a link.
fn told(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    LinkInfo::from_fd(link).map_err(|error| io::Error::other(error.to_string()))
}

/// Returns the first words of a program's output; `None` where it is shorter.
pub fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let words = bytes.as_chunks::<8>().0.get(..N)?;
    Some(std::array::from_fn(|index| u64::from_ne_bytes(words[index])))
}

/// Whether another mode would fail too: no permission, or another program is attached.
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

fn in_kernel(name: &str) -> String {
    format!("the program `{name}` in the kernel")
}

/// The error of a program, or of its map, that is loaded: no right was needed.
fn not_used(name: &str, error: &libbpf_rs::Error) -> PortError {
    let source = io::Error::new(io_kind(error.kind()), error.to_string());
    PortError::System { operation: "use", object: in_kernel(name), source }
}

/// The error of a program that is not loaded.
fn refused(name: &str, error: &libbpf_rs::Error) -> PortError {
    let object = in_kernel(name);
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if !holds_all() || !may_load() => denied("load", object),
        _ if is_before(&release(), OLDEST) => {
            let problem = format!(
                "this kernel ({}) is too old for it, Linux {}.{} has what it needs; use another engine",
                release().trim_end(),
                OLDEST[0],
                OLDEST[1]
            );
            PortError::Unusable { object, problem }
        }
        _ => not_used(name, error),
    }
}

/// The first kernel with all helpers that the programs call; the newest is `bpf_ktime_get_tai_ns`.
const OLDEST: [u32; 2] = [6, 1];

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Whether this kernel reports an older release. It may have backports: use this only to explain a refusal.
pub fn is_kernel_before(first: [u32; 2]) -> bool {
    is_before(&release(), first)
}

/// Whether a kernel release such as "5.15.0-91-generic" precedes `first`.
fn is_before(release: &str, first: [u32; 2]) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    let number: [Option<u32>; 2] = [numbers.next(), numbers.next()];
    matches!(number, [Some(major), Some(minor)] if [major, minor] < first)
}

/// Whether this thread has the capabilities that some programs need besides CAP_BPF.
fn holds_all() -> bool {
    [Right::Perfmon, Right::NetAdmin].into_iter().all(Right::is_held)
}

/// Whether this thread may create maps and programs: if so, a refused program is one that the kernel does not support.
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

/// Builds the error of a program that could not be attached.
pub(crate) fn attach_refused(interface: &Interface, source: io::Error) -> PortError {
    let Interface { name, mtu, .. } = interface;
    let object = format!("an XDP program to {name}");
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => denied("attach", object),
        Some(libc::EBUSY | libc::EEXIST) => has_a_program(name),
        Some(libc::ERANGE) => PortError::Unusable {
            object: name.clone(),
            problem: format!("its MTU of {mtu} bytes is too large for XDP; `ip link set dev {name} mtu 1500`"),
        },
        _ => PortError::System { operation: "attach", object, source },
    }
}

/// Builds the error of an interface that has an XDP program of another process.
pub(crate) fn has_a_program(name: &str) -> PortError {
    let problem = format!("an XDP program hangs on it already; `ip link show dev {name}` tells which");
    PortError::Unusable { object: name.to_owned(), problem }
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
