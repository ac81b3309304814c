//! Load the object, and find what this kernel supports.

use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::btf::{Btf, types::Typedef};
use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput};
use rustix::thread::{CapabilitySet, capabilities};

use super::KernelError;
use super::sys;
use crate::fields::FIELDS;
use crate::{FieldSet, PREFIXES};

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The capabilities that loading needs, with their names in `capabilities(7)`.
const RIGHTS: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
];

/// Programs at tracepoints that a kernel may lack: their samples are unavailable then.
const OPTIONAL: [(&str, &str); 4] = [
    ("retransmitted", "tcp_retransmit_skb"),
    ("recovery_set", "tcp_cong_state_set"),
    ("reset_sent", "tcp_send_reset"),
    ("reset_received", "tcp_receive_reset"),
];

/// Bytes aligned to 8, as libelf requires.
#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

/// A compiled object.
macro_rules! object {
    ($file:literal) => {{
        static OBJECT: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/", $file)).len() }> =
            Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $file)));
        &OBJECT.0
    }};
}

/// The programs for most kernels, and the fallback for all.
pub(super) const OBJECTS: [fn() -> &'static [u8]; 2] =
    [|| object!("tcplog.bpf.o"), || object!("tcplog_fallback.bpf.o")];

/// libbpf's latest messages, for errors.
static MESSAGES: Mutex<String> = Mutex::new(String::new());

/// The sizes of the flow table and of each CPU's ring, and the fields of the control block to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub flows: u32,
    pub slots: u32,
    pub fields: FieldSet,
}

/// Load all programs that this kernel supports. Where the fallback was loaded, also return the reason.
pub(super) fn load(asked: Asked, types: Option<&Path>) -> Result<(Object, Option<String>), KernelError> {
    check_rights()?;
    let types = types.unwrap_or(Path::new(TYPES));
    let known = read_types(types)?;
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        if let Ok(mut said) = MESSAGES.lock() {
            said.push_str(&text);
        }
    })));
    let loaded = load_first(&OBJECTS.map(|object| object()), types, &known, asked);
    libbpf_rs::set_print(None);
    loaded
}

/// Load the first object that the kernel accepts; also return why it refused the one before.
fn load_first(
    objects: &[&[u8]],
    types: &Path,
    known: &Btf<'_>,
    asked: Asked,
) -> Result<(Object, Option<String>), KernelError> {
    let mut refusal = None;
    for object in objects {
        match load_object(object, types, known, asked) {
            Ok(object) => return Ok((object, refusal.as_ref().map(KernelError::to_string))),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::OutOfMemory => {
                return Err(KernelError::Memory { flows: asked.flows, slots: asked.slots });
            }
            Err(error) => refusal = Some(refused(&error)),
        }
    }
    Err(refusal.unwrap_or(KernelError::Damaged("programs")))
}

fn load_object(object: &[u8], types: &Path, known: &Btf<'_>, asked: Asked) -> Result<Object, libbpf_rs::Error> {
    let mut open = open(object, types)?;
    prepare(&mut open, asked)?;
    for mut program in open.progs_mut() {
        let wanted = OPTIONAL.iter().find(|(name, _)| program.name() == *name).is_none_or(|(_, tracepoint)| {
            known.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
        });
        program.set_autoload(wanted);
    }
    open.load()
}

/// Open an object without loading it.
pub(super) fn open(object: &[u8], types: &Path) -> Result<OpenObject, libbpf_rs::Error> {
    let mut builder = ObjectBuilder::default();
    builder.name("tcplog")?;
    if types != Path::new(TYPES) {
        builder.btf_custom_path(types)?;
    }
    builder.open_memory(object)
}

/// Set the sizes of maps and the read-only variables from the request.
fn prepare(open: &mut OpenObject, asked: Asked) -> Result<(), libbpf_rs::Error> {
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(1);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "flows" | "free_slots" => map.set_max_entries(asked.flows)?,
            "prefixes4" | "prefixes6" => map.set_max_entries(PREFIXES)?,
            "rings" => map.set_max_entries(cpus.saturating_mul(asked.slots))?,
            "readers" => map.set_max_entries(cpus)?,
            ".rodata.slots" => map.set_initial_value(&asked.slots.to_ne_bytes())?,
            ".rodata.room" => map.set_initial_value(&asked.flows.to_ne_bytes())?,
            ".rodata.wanted" => map.set_initial_value(&asked.fields.words().map(u64::to_ne_bytes).concat())?,
            ".rodata.numbering" => map.set_initial_value(&numbering())?,
            _ => {}
        }
    }
    Ok(())
}

/// `struct numbering` of `bpf/maps.h`: this process's PID namespace.
fn numbering() -> [u8; 24] {
    const FIRST: u64 = 0xEFFF_FFFC; // PROC_PID_INIT_INO
    let seen = std::fs::metadata("/proc/self/ns/pid").map(|own| (own.st_dev(), own.st_ino()));
    let (device, inode) = seen.unwrap_or((0, FIRST));
    // User space splits the minor number in two parts, the kernel does not; a pseudo file system's major number is 0.
    let device = device & 0xff | device >> 12 & 0xf_ff00;
    let is_first = inode == FIRST;
    let can_ask = !is_first && sys::can_ask_for_processes();
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&device.to_ne_bytes());
    bytes[8..16].copy_from_slice(&inode.to_ne_bytes());
    bytes[16..20].copy_from_slice(&u32::from(is_first).to_ne_bytes());
    bytes[20..].copy_from_slice(&u32::from(can_ask).to_ne_bytes());
    bytes
}

/// Take libbpf's messages so far.
fn take_messages() -> String {
    MESSAGES.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default()
}

fn check_rights() -> Result<(), KernelError> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<_> = RIGHTS.iter().filter(|(set, _)| !held.contains(*set)).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(KernelError::Denied(missing)) }
}

fn read_types(path: &Path) -> Result<Btf<'static>, KernelError> {
    let missing = |error| KernelError::NoTypes(path.to_owned(), error);
    std::fs::metadata(path).map_err(missing)?;
    Btf::from_path(path).map_err(|error| missing(io::Error::other(error.to_string())))
}

/// The file that reports the kernel's lockdown mode.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Summarise the messages of libbpf and the verifier in one sentence; the verifier's last lines matter.
fn refused(error: &libbpf_rs::Error) -> KernelError {
    let said = take_messages();
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !said.contains("BEGIN PROG LOAD LOG") {
        return KernelError::Denied(RIGHTS.map(|(_, name)| name).to_vec());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim_end().to_owned();
    let why = complaint(&said).unwrap_or_else(|| error.to_string());
    match std::fs::read_to_string(LOCKDOWN) {
        Ok(state) if is_confidential(&state) => KernelError::LockedDown { release, why },
        _ => KernelError::Refused { release, why },
    }
}

/// Whether lockdown is at confidentiality: "none integrity [confidentiality]".
fn is_confidential(lockdown: &str) -> bool {
    lockdown.contains("[confidentiality]")
}

/// Find the verifier's error: the last line before its statistics.
fn complaint(said: &str) -> Option<String> {
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let end = lines.iter().position(|line| line.starts_with("processed ")).unwrap_or(lines.len());
    let program = lines.iter().find(|line| line.contains("BPF program load failed"));
    let last = end.checked_sub(1).and_then(|index| lines.get(index))?;
    Some(program.map_or_else(|| (*last).to_owned(), |program| format!("{last} ({program})")))
}

/// The result of the program `find_facts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub offset_ns: u64,
    pub has_tai: bool,
    pub present: [bool; FIELDS],
}

impl Facts {
    pub fn find(object: &Object) -> Result<Self, KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::system("ask", "the kernel what it has", &error);
        let program = object.progs_mut().find(|program| program.name() == "find_facts");
        let program = program.ok_or(KernelError::Damaged("find_facts"))?;
        program.test_run(ProgramInput::default()).map_err(failed)?;
        let value = map(object, ".data.facts")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        value.as_deref().and_then(Self::read).ok_or(KernelError::Damaged("facts"))
    }

    /// Decode `struct facts` of `bpf/presence.h`.
    fn read(value: &[u8]) -> Option<Self> {
        let (offset, rest) = value.split_first_chunk()?;
        let (has_tai, rest) = rest.split_first_chunk()?;
        let present = rest.get(4..)?.first_chunk::<FIELDS>()?.map(|present| present != 0);
        Some(Self { offset_ns: u64::from_ne_bytes(*offset), has_tai: u32::from_ne_bytes(*has_tai) != 0, present })
    }
}

/// Find a map of the object by the end of its name.
pub(super) fn map<'a>(object: &'a Object, name: &'static str) -> Result<Map<'a>, KernelError> {
    let ends = |map: &Map<'_>| map.name().to_string_lossy().ends_with(name);
    object.maps().find(ends).ok_or(KernelError::Damaged(name))
}

#[cfg(test)]
mod tests {
    use libbpf_rs::HasSize;
    use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};

    use super::*;
    use crate::decode::Raw;
    use crate::fields;
    use crate::kernel::rings::READER;
    use crate::layout::{Counts, Flow, Options, PrivateState, SLOT_BYTES, Sample, State, Totals};

    fn small() -> Asked {
        Asked { flows: 1, slots: 1, fields: FieldSet::default() }
    }

    const OUT: &str = env!("OUT_DIR");

    fn types() -> Btf<'static> {
        Btf::from_path(format!("{OUT}/tcplog.bpf.o")).expect("the object has the types of its own")
    }

    type Layout = (usize, Vec<(String, usize)>);

    /// Return the size of a structure in a compiled object, and its members with their offsets.
    fn compiled(types: &Btf<'_>, name: &str) -> Layout {
        let found = types.type_by_name::<Struct<'_>>(name).unwrap_or_else(|| panic!("{name} is in the object"));
        let members = found.iter().map(|member| match member.attr {
            MemberAttr::Normal { offset } => {
                (member.name.expect("it has a name").to_string_lossy().into_owned(), offset as usize / 8)
            }
            MemberAttr::BitField { .. } => panic!("{name} has no bit fields"),
        });
        (found.size(), members.collect())
    }

    fn declared<R: Raw>() -> Layout {
        (size_of::<R>(), R::FIELDS.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect())
    }

    /// Return the layout of `struct state` for a modified list of fields.
    fn state_of(name: &str, change: impl Fn(&str) -> String) -> Layout {
        let folder = format!("{OUT}/{name}");
        std::fs::create_dir_all(&folder).expect("the build folder can be written");
        let fields = change(include_str!("../../bpf/fields.h"));
        assert_ne!(fields, include_str!("../../bpf/fields.h"), "the change finds its lines");
        let source = "#include <linux/types.h>\n#include \"layout.h\"\nstruct state state;\n";
        let files = [("fields.h", &*fields), ("layout.h", include_str!("../../bpf/layout.h")), ("state.c", source)];
        for (file, text) in files {
            std::fs::write(format!("{folder}/{file}"), text).expect("the build folder can be written");
        }
        let mut clang = std::process::Command::new(std::env::var("CLANG").unwrap_or("clang".to_owned()));
        clang.args(["-g", "-target", "bpf", "-c", "state.c", "-o", "state.o"]).current_dir(&folder);
        clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        assert!(clang.status().expect("clang starts").success());
        compiled(&Btf::from_path(format!("{folder}/state.o")).expect("it has types"), "state")
    }

    #[test]
    fn field_added_or_swapped_only_in_the_bpf_program_is_detected() {
        let line = "\tTCP(__u32, snd_una, SHOWN, snd_una) \\\n";
        let other = "\tTCP(__u32, snd_nxt, SHOWN, snd_nxt) \\\n";
        let swapped = state_of("swapped", |fields| fields.replace(&[line, other].concat(), &[other, line].concat()));
        assert_ne!(swapped, declared::<State>());
        assert_eq!(swapped.0, size_of::<State>(), "the size alone would not show it");
        let added = "\tTCP(__u32, snd_up, PLAIN, snd_up) \\\n";
        let added = state_of("added", |fields| fields.replace(line, &[line, added].concat()));
        assert_ne!(added, declared::<State>());
        assert!(added.1.iter().any(|(name, _)| name == "snd_up"));
    }

    #[test]
    fn the_layout_is_that_of_the_compiled_object() {
        let types = types();
        assert_eq!(compiled(&types, "state"), declared::<State>());
        assert_eq!(compiled(&types, "sample"), declared::<Sample>());
        assert_eq!(compiled(&types, "private_state"), declared::<PrivateState>());
        assert_eq!(compiled(&types, "counts"), declared::<Counts>());
        assert_eq!(compiled(&types, "flow"), declared::<Flow>());
        assert_eq!(compiled(&types, "totals"), declared::<Totals>());
        assert_eq!(compiled(&types, "options"), declared::<Options>());
        let sizes = ["slot", "reader"].map(|name| types.type_by_name::<Struct<'_>>(name).map(|found| found.size()));
        assert_eq!(sizes, [Some(SLOT_BYTES), Some(READER)]);
    }

    #[test]
    fn the_fields_asked_for_are_those_of_the_compiled_object() {
        let types = types();
        let found = types.type_by_name::<Enum<'_>>("field").expect("it is in the object");
        let named: Vec<_> =
            found.iter().map(|field| field.name.expect("it has a name").to_string_lossy().into_owned()).collect();
        let expected: Vec<_> =
            fields::names().map(|name| format!("FIELD_{name}")).chain(["FIELDS".to_owned()]).collect();
        assert_eq!(named, expected);
    }

    /// Return whether programs may be loaded here; in CI they must be.
    fn permitted() -> bool {
        let rights = check_rights();
        if let Err(why) = &rights {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to load programs: {why}");
            eprintln!("skipped: {why}");
        }
        rights.is_ok()
    }

    #[test]
    fn verifier_accepts_the_fallback_program_with_any_fields() {
        if !permitted() {
            return;
        }
        let types = Path::new(TYPES);
        let known = read_types(types).expect("this kernel tells its types");
        let siftr = FieldSet::read(&["siftr".to_owned()]).expect("it is known");
        for object in OBJECTS {
            for fields in [FieldSet::default(), siftr] {
                load_object(object(), types, &known, Asked { fields, ..small() }).expect("loads");
            }
        }
    }

    #[test]
    fn rejected_programs_are_not_silently_replaced() {
        if !permitted() {
            return;
        }
        let types = Path::new(TYPES);
        let known = read_types(types).expect("this kernel tells its types");
        let [fast, fallback] = OBJECTS.map(|object| object());
        let first = |objects: &[&[u8]]| load_first(objects, types, &known, small());
        assert_eq!(first(&[fast, fallback]).expect("loads").1, None);
        let why = first(&[&fast[..64], fallback]).expect("loads").1.expect("a reason");
        assert!(why.contains("refuses a program of ours") && why.lines().count() == 1, "{why}");
        assert!(matches!(first(&[&fast[..64]]), Err(KernelError::Refused { .. })));
    }

    #[test]
    fn lack_of_memory_is_not_reported_as_rejection_by_the_verifier() {
        if !permitted() {
            return;
        }
        // More memory than any machine has, for any number of CPUs.
        let asked = Asked { slots: 1 << 31, ..small() };
        assert!(matches!(load(asked, None), Err(KernelError::Memory { flows: 1, .. })));
    }

    #[test]
    fn kernel_lockdown_confidentiality_mode_is_detected() {
        assert!(is_confidential("none integrity [confidentiality]\n"));
        assert!(!is_confidential("none [integrity] confidentiality\n") && !is_confidential(""));
    }

    #[test]
    fn error_message_of_the_verifier_is_extracted() {
        let said = "libbpf: prog 'x': BPF program load failed: -EACCES\nlibbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n0: R1\n\
                    access beyond struct sock at off 760 size 4\nprocessed 12 insns\n-- END --\n";
        let found = complaint(said).expect("there is one");
        assert!(found.starts_with("access beyond struct sock"), "{found}");
        assert_eq!(complaint(""), None);
    }
}
