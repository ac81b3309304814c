//! libpcap, loaded on first use: nothing is linked to it. Hides its handles and programs.

#![expect(unsafe_code, reason = "a C library that is loaded at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;

use sojourn_port::kernel::FilterStep;

/// Debian's soname, and everybody else's.
const NAMES: [&CStr; 2] = [c"libpcap.so.0.8", c"libpcap.so.1"];
/// `PCAP_ERRBUF_SIZE`.
const ERROR_BYTES: usize = 256;
/// `PCAP_NETMASK_UNKNOWN`.
const NO_NETMASK: c_uint = u32::MAX;
const SMALL_BUFFER_BYTES: c_int = 1 << 16;

/// `pcap_t *`.
type Raw = *mut c_void;
type Create = unsafe extern "C" fn(*const c_char, *mut c_char) -> Raw;
type OpenDead = unsafe extern "C" fn(c_int, c_int) -> Raw;
type Set = unsafe extern "C" fn(Raw, c_int) -> c_int;
type Activate = unsafe extern "C" fn(Raw) -> c_int;
type Compile = unsafe extern "C" fn(Raw, *mut Program, *const c_char, c_int, c_uint) -> c_int;
type Free = unsafe extern "C" fn(*mut Program);
type Error = unsafe extern "C" fn(Raw) -> *const c_char;
type Close = unsafe extern "C" fn(Raw);

/// The functions of libpcap that are used.
#[derive(Debug)]
pub struct Library {
    create: Create,
    open_dead: OpenDead,
    set_snap: Set,
    set_buffer: Set,
    activate: Activate,
    compile: Compile,
    free: Free,
    error: Error,
    close: Close,
}

/// `struct bpf_program`.
#[repr(C)]
struct Program {
    length: c_uint,
    steps: *const FilterStep,
}

/// Why no program was compiled.
#[derive(Debug)]
pub enum Refused {
    /// The expression is invalid; libpcap's message.
    Expression(String),
    /// The interface cannot be opened; libpcap's message.
    Interface(String),
}

/// The link that a program is compiled for.
#[derive(Clone, Copy, Debug)]
pub enum For<'a> {
    /// Frames of this interface as the kernel passes them to a filter: tags and directions in metadata.
    Interface(&'a CStr),
    /// Frames of this link type, as in a file.
    LinkType(c_int),
}

impl Library {
    /// Loads the library once; `None`: it is not installed.
    pub fn get() -> Option<&'static Self> {
        static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        NAMES.iter().find_map(|name| {
            // SAFETY: loads a system library by its name. It may run initialisers; libpcap has none. It is never
            // unloaded.
            let library = NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })?;
            // SAFETY: pcap(3PCAP) declares these functions with these types, unchanged since libpcap 1.0.
            unsafe {
                Some(Self {
                    create: transmute::<*mut c_void, Create>(symbol(library, c"pcap_create")?),
                    open_dead: transmute::<*mut c_void, OpenDead>(symbol(library, c"pcap_open_dead")?),
                    set_snap: transmute::<*mut c_void, Set>(symbol(library, c"pcap_set_snaplen")?),
                    set_buffer: transmute::<*mut c_void, Set>(symbol(library, c"pcap_set_buffer_size")?),
                    activate: transmute::<*mut c_void, Activate>(symbol(library, c"pcap_activate")?),
                    compile: transmute::<*mut c_void, Compile>(symbol(library, c"pcap_compile")?),
                    free: transmute::<*mut c_void, Free>(symbol(library, c"pcap_freecode")?),
                    error: transmute::<*mut c_void, Error>(symbol(library, c"pcap_geterr")?),
                    close: transmute::<*mut c_void, Close>(symbol(library, c"pcap_close")?),
                })
            }
        })
    }

    /// Compiles an expression to a program that keeps `snap` bytes of each accepted frame.
    pub fn compile(&self, target: For<'_>, expression: &str, snap: u32) -> Result<Vec<FilterStep>, Refused> {
        let none = || Refused::Expression("it contains a zero byte".to_owned());
        let expression = CString::new(expression).map_err(|_| none())?;
        let handle = self.open(target, c_int::try_from(snap).unwrap_or(c_int::MAX))?;
        let mut program = Program { length: 0, steps: ptr::null() };
        // SAFETY: the handle is open, the call writes the program, the text ends with a zero byte and outlives the
        // call.
        let made = unsafe { (self.compile)(handle.raw, &raw mut program, expression.as_ptr(), 1, NO_NETMASK) };
        if made != 0 {
            return Err(Refused::Expression(handle.error()));
        }
        let steps = if program.steps.is_null() {
            Vec::new()
        } else {
            // SAFETY: on success libpcap has allocated this many steps there, of the kernel's own type, valid until
            // freed.
            unsafe { slice::from_raw_parts(program.steps, program.length as usize) }.to_vec()
        };
        // SAFETY: libpcap allocated the program; it is freed once.
        unsafe { (self.free)(&raw mut program) };
        Ok(steps)
    }

    fn open(&self, target: For<'_>, snap: c_int) -> Result<Handle<'_>, Refused> {
        let interface = match target {
            For::LinkType(link) => {
                // SAFETY: two numbers are passed; the result is null or a handle.
                let raw = unsafe { (self.open_dead)(link, snap) };
                let failed = || Refused::Interface("no memory".to_owned());
                return if raw.is_null() { Err(failed()) } else { Ok(Handle { library: self, raw }) };
            }
            For::Interface(interface) => interface,
        };
        let mut problem = [0 as c_char; ERROR_BYTES];
        // SAFETY: the name ends with a zero byte, and the buffer has the length that libpcap requires.
        let raw = unsafe { (self.create)(interface.as_ptr(), problem.as_mut_ptr()) };
        if raw.is_null() {
            // SAFETY: libpcap has written a terminated text into the buffer.
            return Err(Refused::Interface(text(unsafe { CStr::from_ptr(problem.as_ptr()) })));
        }
        let handle = Handle { library: self, raw };
        // SAFETY: the handle is open and not yet active.
        let active = unsafe {
            (self.set_snap)(raw, snap);
            (self.set_buffer)(raw, SMALL_BUFFER_BYTES);
            (self.activate)(raw)
        };
        // Positive values are warnings.
        if active < 0 { Err(Refused::Interface(handle.error())) } else { Ok(handle) }
    }
}

/// An open handle.
struct Handle<'a> {
    library: &'a Library,
    raw: Raw,
}

impl Handle<'_> {
    fn error(&self) -> String {
        // SAFETY: the handle is open; its last error is a text that lives as long as the handle.
        text(unsafe { CStr::from_ptr((self.library.error)(self.raw)) })
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and is closed once.
        unsafe { (self.library.close)(self.raw) };
    }
}

fn text(words: &CStr) -> String {
    words.to_string_lossy().trim().to_owned()
}

fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is loaded, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
