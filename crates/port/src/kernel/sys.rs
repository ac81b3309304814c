//! The kernel's socket calls: bytes in, bytes out, no decisions.
//!
//! Holds the unsafe code of kernel sockets. Hides `msghdr`, `ifreq` and the list of `getifaddrs`; `name` and `control`
//! know the formats of names, options and control messages.

#![expect(
    unsafe_code,
    reason = "recvmsg with control bytes, raw socket names and interface requests have no safe crate"
)]

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_ulong, c_void, ifreq, iovec, mmsghdr, msghdr, socklen_t};

use super::control::ControlBuffer;
use super::name::Name;

/// The most messages that one call sends or receives.
pub const MOST_AT_ONCE: usize = 64;

/// The lengths of a received message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// Bytes received, over both parts.
    pub length: usize,
    /// Bytes of its control messages.
    pub control_length: usize,
}

/// An address of an interface of this network namespace.
#[derive(Clone, Debug)]
pub struct InterfaceAddress {
    /// The interface's name.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; nothing else owns the returned descriptor.
    unsafe {
        let fd = checked(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub fn bind(fd: BorrowedFd<'_>, name: &Name) -> io::Result<()> {
    let bytes = name.bytes();
    // SAFETY: the pointer and the length describe one live slice, which the kernel only reads.
    checked(unsafe { libc::bind(fd.as_raw_fd(), bytes.as_ptr().cast(), length_of(bytes)) }).map(drop)
}

pub fn connect(fd: BorrowedFd<'_>, name: &Name) -> io::Result<()> {
    let bytes = name.bytes();
    // SAFETY: the pointer and the length describe one live slice, which the kernel only reads.
    checked(unsafe { libc::connect(fd.as_raw_fd(), bytes.as_ptr().cast(), length_of(bytes)) }).map(drop)
}

pub fn local_name(fd: BorrowedFd<'_>) -> io::Result<Name> {
    let mut name = Name::default();
    let mut length = Name::CAPACITY as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the storage.
    checked(unsafe { libc::getsockname(fd.as_raw_fd(), name.storage().as_mut_ptr().cast(), &raw mut length) })?;
    name.set_length(length as usize);
    Ok(name)
}

pub fn set_option(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let pointer = value.as_ptr().cast::<c_void>();
    // SAFETY: the pointer and the length describe one live slice, which the kernel only reads.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, pointer, length_of(value)) }).map(drop)
}

/// An instruction of a classic BPF program: code, jump if true, jump if false, operand.
pub type FilterStep = libc::sock_filter;

pub fn attach_filter(fd: BorrowedFd<'_>, program: &[FilterStep]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let length = size_of_val(&program) as socklen_t;
    // SAFETY: the program's pointer and length describe one live slice, which the kernel checks and copies.
    checked(unsafe {
        let pointer = (&raw const program).cast::<c_void>();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, pointer, length)
    })
    .map(drop)
}

/// Reads an option into `value` and returns how many bytes the kernel wrote.
pub fn option(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut length = length_of(value);
    let pointer = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the slice.
    checked(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, pointer, &raw mut length) })?;
    Ok(length as usize)
}

/// Sends one message, to `to` where the socket is not connected, with the control messages in `control`. `flags` is 0,
/// or `MSG_DONTWAIT` to fail where the send buffer is full.
pub fn send(fd: BorrowedFd<'_>, frame: &[u8], to: Option<&Name>, control: &[u8], flags: c_int) -> io::Result<usize> {
    let (to, flags) = (to.map_or(&[][..], Name::bytes), flags | libc::MSG_NOSIGNAL);
    if control.is_empty() {
        let name = if to.is_empty() { ptr::null() } else { to.as_ptr().cast() };
        // SAFETY: each pointer comes with the length of its live slice (or is null with none); the kernel only reads.
        let sent =
            unsafe { libc::sendto(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags, name, length_of(to)) };
        return counted(sent);
    }
    let mut part = iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
    let mut header = empty_header();
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = length_of(to);
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len();
    // SAFETY: every pointer in the header comes with the length of a slice that outlives the call; sendmsg only reads
    // through them, so casting away const is sound.
    counted(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) })
}

/// Receives one message without blocking: its bytes into `parts`, its sender into `from`, its control messages into
/// `control`. `flags` is 0, or `MSG_ERRQUEUE` for the error queue.
pub fn receive(
    fd: BorrowedFd<'_>,
    parts: [&mut [u8]; 2],
    from: &mut Name,
    control: &mut ControlBuffer,
    flags: c_int,
) -> io::Result<Message> {
    let mut parts = parts.map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    let mut header = empty_header();
    header.msg_name = from.storage().as_mut_ptr().cast();
    header.msg_namelen = Name::CAPACITY as socklen_t;
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    // SAFETY: every pointer in the header comes with the length of a slice that is borrowed mutably for the call, so the
    // kernel writes only within them; all of them hold plain integers, for which any bytes are valid.
    let length = counted(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags | libc::MSG_DONTWAIT) })?;
    from.set_length(header.msg_namelen as usize);
    Ok(Message { length, control_length: header.msg_controllen })
}

/// Sends the messages of `bytes` bytes each that lie back to back in `frames`, [`MOST_AT_ONCE`] at most, to `to` where
/// the socket is not connected. Returns how many were sent; fails only if none was.
pub fn send_batch(fd: BorrowedFd<'_>, frames: &[u8], bytes: usize, to: Option<&Name>) -> io::Result<usize> {
    let to = to.map_or(&[][..], Name::bytes);
    let mut parts = [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MOST_AT_ONCE];
    let mut messages = empty_messages();
    let mut count = 0;
    for ((frame, part), message) in frames.chunks_exact(bytes.max(1)).zip(&mut parts).zip(&mut messages) {
        *part = iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        message.msg_hdr.msg_name = if to.is_empty() { ptr::null_mut() } else { to.as_ptr().cast_mut().cast() };
        message.msg_hdr.msg_namelen = length_of(to);
        message.msg_hdr.msg_iov = ptr::from_mut(part);
        message.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the first `count` headers point to parts and slices that outlive the call; sendmmsg writes only to the
    // headers' lengths and reads through the pointers, so casting away const is sound.
    let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_NOSIGNAL as _) };
    counted(sent as isize)
}

/// The buffers of one [`receive_batch`]: it receives as many messages as the shortest of the four holds.
#[derive(Debug)]
pub struct Places<'a> {
    /// Buffers of the messages, each `stride` bytes after the one before it.
    pub bytes: &'a mut [u8],
    /// The size of one message's buffer, in bytes.
    pub stride: usize,
    /// The bytes left free at the start of each message's buffer.
    pub headroom: usize,
    /// Buffers of the senders' names.
    pub from: &'a mut [Name],
    /// Buffers of the control messages.
    pub control: &'a mut [ControlBuffer],
    /// The messages' lengths.
    pub messages: &'a mut [Message],
}

/// Receives the waiting messages, [`MOST_AT_ONCE`] at most, without blocking, and returns how many.
pub fn receive_batch(fd: BorrowedFd<'_>, places: Places<'_>) -> io::Result<usize> {
    let Places { bytes, stride, headroom, from, control, messages } = places;
    let mut parts = [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MOST_AT_ONCE];
    let mut headers = empty_messages();
    let mut room = 0;
    let rooms = bytes.chunks_exact_mut(stride.max(1)).zip(from.iter_mut()).zip(control.iter_mut());
    for (((chunk, name), control), (part, header)) in rooms.zip(parts.iter_mut().zip(&mut headers)) {
        let free = &mut chunk[headroom.min(stride)..];
        *part = iovec { iov_base: free.as_mut_ptr().cast(), iov_len: free.len() };
        header.msg_hdr.msg_name = name.storage().as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = Name::CAPACITY as socklen_t;
        header.msg_hdr.msg_iov = ptr::from_mut(part);
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = control.0.len();
        room += 1;
    }
    let room = room.min(messages.len()) as libc::c_uint;
    // SAFETY: the first `room` headers hold pointers with the lengths of slices that are borrowed mutably for the call, so
    // the kernel writes only within them; all of them hold plain integers, for which any bytes are valid.
    let taken =
        unsafe { libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), room, libc::MSG_DONTWAIT as _, ptr::null_mut()) };
    let taken = counted(taken as isize)?;
    for ((header, name), message) in headers[..taken].iter().zip(from).zip(messages) {
        name.set_length(header.msg_hdr.msg_namelen as usize);
        *message = Message { length: header.msg_len as usize, control_length: header.msg_hdr.msg_controllen };
    }
    Ok(taken)
}

/// The property that an interface request reads.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    Index,
    Flags,
    Mtu,
    Hardware,
}

/// Reads a property of an interface; the format of the 16 bytes depends on the property.
pub fn ask_interface(fd: BorrowedFd<'_>, name: &[u8], ask: Ask) -> io::Result<[u8; 16]> {
    let request = match ask {
        Ask::Index => libc::SIOCGIFINDEX,
        Ask::Flags => libc::SIOCGIFFLAGS,
        Ask::Mtu => libc::SIOCGIFMTU,
        Ask::Hardware => libc::SIOCGIFHWADDR,
    };
    interface_request(fd, name, request as c_ulong, ptr::null_mut())
}

/// Reads the hardware timestamping settings in force: flags, transmit type, receive filter.
pub fn hardware_stamping(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<[i32; 3]> {
    let mut config = [0_i32; 3];
    interface_request(fd, name, libc::SIOCGHWTSTAMP as c_ulong, config.as_mut_ptr().cast())?;
    Ok(config)
}

/// Reads an interface's link speed over ethtool, in Mbit/s; `u32::MAX` where it is unknown. `struct ethtool_cmd` holds
/// the number in two halves.
pub fn link_speed(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<u32> {
    const ETHTOOL_GSET: u32 = 0x1;
    let mut settings = [0_u32; 11];
    settings[0] = ETHTOOL_GSET;
    interface_request(fd, name, libc::SIOCETHTOOL as c_ulong, settings.as_mut_ptr().cast())?;
    let low = u16::from_ne_bytes([settings[3].to_ne_bytes()[0], settings[3].to_ne_bytes()[1]]);
    let high = u16::from_ne_bytes([settings[7].to_ne_bytes()[0], settings[7].to_ne_bytes()[1]]);
    Ok(u32::from(high) << 16 | u32::from(low))
}

/// Reads the timestamping abilities of an interface over ethtool: command, capabilities, clock number, transmit types,
/// …, in the order of `struct ethtool_ts_info`.
pub fn stamping_abilities(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<[u32; 11]> {
    const ETHTOOL_GET_TS_INFO: u32 = 0x41;
    let mut info = [0_u32; 11];
    info[0] = ETHTOOL_GET_TS_INFO;
    interface_request(fd, name, libc::SIOCETHTOOL as c_ulong, info.as_mut_ptr().cast())?;
    Ok(info)
}

/// Reads the name of an interface's driver over ethtool, terminated by a zero byte.
pub fn driver_name(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<[u8; 32]> {
    const ETHTOOL_GET_DRIVER_INFO: u32 = 3;
    // `struct ethtool_drvinfo`: the command, the driver's name, and fields that are not used here.
    let mut info = [0_u32; 49];
    info[0] = ETHTOOL_GET_DRIVER_INFO;
    interface_request(fd, name, libc::SIOCETHTOOL as c_ulong, info.as_mut_ptr().cast())?;
    Ok(std::array::from_fn(|index| info[1 + index / 4].to_ne_bytes()[index % 4]))
}

/// Reads the queues of an interface over ethtool: command, four maximum counts, then those in use (receive, transmit,
/// other, combined), in the order of `struct ethtool_channels`.
pub fn channels(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<[u32; 9]> {
    const ETHTOOL_GET_CHANNELS: u32 = 0x3C;
    let mut channels = [0_u32; 9];
    channels[0] = ETHTOOL_GET_CHANNELS;
    interface_request(fd, name, libc::SIOCETHTOOL as c_ulong, channels.as_mut_ptr().cast())?;
    Ok(channels)
}

/// Reads the legacy feature flags of an interface over ethtool: `struct ethtool_value`.
pub fn feature_flags(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<u32> {
    const ETHTOOL_GET_FLAGS: u32 = 0x25;
    let mut value = [ETHTOOL_GET_FLAGS, 0];
    interface_request(fd, name, libc::SIOCETHTOOL as c_ulong, value.as_mut_ptr().cast())?;
    Ok(value[1])
}

/// Lists the names of all interfaces of this network namespace.
pub fn interface_names() -> io::Result<Vec<String>> {
    // SAFETY: no memory is passed.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut entry = list;
    // SAFETY: `list` is the array that if_nameindex allocated, valid until if_freenameindex below; an entry without a
    // name ends it, and names are C strings.
    unsafe {
        while !(*entry).if_name.is_null() {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(names)
}

/// Lists the addresses of all interfaces of this network namespace.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is a place for the one pointer that the call writes.
    checked(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = Vec::new();
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: `entry` is a live node of the list that getifaddrs allocated, valid until freeifaddrs below; its name
        // is a C string, and its address is null or as long as its family requires.
        unsafe {
            let interface = CStr::from_ptr((*entry).ifa_name).to_string_lossy().into_owned();
            if let Some(address) = ip_address((*entry).ifa_addr) {
                found.push(InterfaceAddress { interface, address });
            }
            entry = (*entry).ifa_next;
        }
    }
    // SAFETY: `list` came from getifaddrs and nothing borrowed from it remains.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Reads an address of `getifaddrs`.
///
/// # Safety
/// `address` must be null or point to a socket address as long as its family requires.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees the length that the family implies; read_unaligned needs no alignment.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let address = ptr::read_unaligned(address.cast::<libc::sockaddr_in>());
                Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))))
            }
            libc::AF_INET6 => {
                let address = ptr::read_unaligned(address.cast::<libc::sockaddr_in6>());
                Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
}

fn interface_request(fd: BorrowedFd<'_>, name: &[u8], request: c_ulong, data: *mut i8) -> io::Result<[u8; 16]> {
    const _: () = assert!(size_of::<ifreq>() >= libc::IFNAMSIZ + 16);
    let mut bytes = [0_u8; size_of::<ifreq>()];
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    bytes[..name.len()].copy_from_slice(name);
    if !data.is_null() {
        bytes[libc::IFNAMSIZ..libc::IFNAMSIZ + size_of::<usize>()].copy_from_slice(&(data as usize).to_ne_bytes());
    }
    // SAFETY: `bytes` is as large as `ifreq`; where the request goes on to other memory, `data` points to the live array
    // of the kernel structure's size that the callers above pass.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, bytes.as_mut_ptr()) })?;
    let mut answer = [0_u8; 16];
    answer.copy_from_slice(&bytes[libc::IFNAMSIZ..libc::IFNAMSIZ + 16]);
    Ok(answer)
}

fn empty_header() -> msghdr {
    // SAFETY: msghdr is made of integers and pointers, for which all zeroes are valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn empty_messages() -> [mmsghdr; MOST_AT_ONCE] {
    // SAFETY: mmsghdr is made of integers and pointers, for which all zeroes are valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn length_of(bytes: &[u8]) -> socklen_t {
    // Names and options are short; the kernel refuses a longer one.
    socklen_t::try_from(bytes.len()).unwrap_or(socklen_t::MAX)
}
