//! Compare names and values with type information made here and with the running kernel's; invalid bytes do no harm.

use super::*;
use proptest::prelude::*;

/// Write type information as a compiler does.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    first: u32,
    first_string: u32,
}

impl Writer {
    fn new() -> Self {
        Self { strings: vec![0], first: 1, ..Self::default() }
    }

    /// Continue as a module after its base.
    fn after(base: &Self) -> Self {
        let first_string = base.strings.len() as u32;
        Self { first: base.first + base.count, first_string, strings: Vec::new(), ..Self::default() }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn add(&mut self, name: &str, kind: u32, size: u32, extra: &[u32]) -> u32 {
        let name = self.name(name);
        [name, kind, size].iter().chain(extra).for_each(|word| self.types.extend(word.to_ne_bytes()));
        self.count += 1;
        self.first + self.count - 1
    }

    fn number(&mut self, name: &str, bytes: u32, is_signed: bool) -> u32 {
        self.add(name, 1 << 24, bytes, &[(u32::from(is_signed) << 24) | (bytes * 8)])
    }

    /// Members: name, type, bit offset, width as a bit field.
    fn structure(&mut self, name: &str, kind: u32, bytes: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let extra: Vec<u32> = members
            .iter()
            .flat_map(|&(name, member, offset, bits)| [self.name(name), member, bits << 24 | offset])
            .collect();
        self.add(name, 1 << 31 | kind << 24 | members.len() as u32, bytes, &extra)
    }

    fn bytes(&self) -> Vec<u8> {
        let head = [24, 0, self.types.len() as u32, self.types.len() as u32, self.strings.len() as u32];
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        head.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(self.types.iter().chain(&self.strings));
        bytes
    }
}

/// A structure with all kinds of members.
fn made_up() -> Writer {
    let mut btf = Writer::new();
    let u32_ = btf.number("unsigned int", 4, false);
    let i16_ = btf.number("short", 2, true);
    let u64_ = btf.number("long unsigned int", 8, false);
    let bool_ = btf.add("_Bool", 1 << 24, 1, &[4 << 24 | 8]);
    let pointer = btf.add("", 2 << 24, u32_, &[]);
    let mode = btf.add("mode", 1 << 31 | 6 << 24 | 1, 4, &[0, 0]);
    let alias = btf.add("u32", 8 << 24, u32_, &[]);
    let constant = btf.add("", 10 << 24, alias, &[]);
    let sample = btf.structure("minmax_sample", 4, 8, &[("t", u32_, 0, 0), ("v", alias, 32, 0)]);
    let samples = btf.add("", 3 << 24, 0, &[sample, u32_, 2]);
    let either = btf.structure("", 5, 4, &[("whole", u32_, 0, 0), ("half", i16_, 0, 0)]);
    let members = [
        ("cwnd", constant, 0, 0),
        ("small", i16_, 32, 0),
        ("is_on", bool_, 48, 0),
        ("next", pointer, 64, 0),
        ("three", u32_, 128, 3),
        ("rest", u32_, 131, 29),
        ("mode", mode, 160, 0),
        ("bw", samples, 192, 0),
        ("", either, 320, 0),
        ("stamp", u64_, 384, 0),
    ];
    btf.structure("odd", 4, 56, &members);
    btf.structure("tcp_far", 4, 112, &[("cwnd", u32_, 0, 0)]);
    btf
}

/// Use this type information, without reading files.
fn of_btf(btf: Btf) -> PrivateNames {
    PrivateNames { kernel: Some(Arc::new(btf)), ..PrivateNames::default() }
}

fn decoded(names: &mut PrivateNames, algorithm: &[u8], bytes: &[u8; PRIVATE_BYTES]) -> Vec<(String, i64)> {
    let mut fields = Vec::new();
    names.decode(algorithm, bytes, &mut |name, value| fields.push((name.to_owned(), value)));
    fields
}

fn private() -> [u8; PRIVATE_BYTES] {
    let mut bytes = [0; PRIVATE_BYTES];
    bytes[0..4].copy_from_slice(&10_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&(-2_i16).to_ne_bytes());
    bytes[6] = 1;
    bytes[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
    bytes[16..20].copy_from_slice(&(5_u32 | 1234 << 3).to_ne_bytes());
    bytes[20..24].copy_from_slice(&(-1_i32).to_ne_bytes());
    for (at, word) in [1_u32, 2, 3, 4].iter().enumerate() {
        bytes[24 + at * 4..28 + at * 4].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[40..44].copy_from_slice(&0xffff_u32.to_ne_bytes());
    bytes[48..56].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
    bytes
}

#[test]
fn every_kind_of_field_is_decoded() {
    let mut names = of_btf(Btf::parse(made_up().bytes(), None).expect("is well formed"));
    let expected = [
        ("cwnd", 10),
        ("small", -2),
        ("is_on", 1),
        ("three", 5),
        ("rest", 1234),
        ("mode", -1),
        ("bw[0].t", 1),
        ("bw[0].v", 2),
        ("bw[1].t", 3),
        ("bw[1].v", 4),
        ("whole", 0xffff),
        ("half", -1),
        ("stamp", 1 << 40),
    ];
    assert_eq!(decoded(&mut names, b"odd\0\0", &private()), expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn unknown_private_state_is_decoded_as_raw_words() {
    let mut names = of_btf(Btf::parse(made_up().bytes(), None).expect("is well formed"));
    for unknown in ["unheard", "far", "../odd", "mode"] {
        let words = decoded(&mut names, unknown.as_bytes(), &private());
        assert_eq!(words.len(), 13, "{unknown}: what is called so does not fit, or is no structure");
        assert_eq!(words[6], ("word[6]".to_owned(), 1 << 40));
    }
    assert!(decoded(&mut names, b"reno\0", &private()).is_empty());
    assert_eq!(decoded(&mut PrivateNames::default(), b"cubic", &private()).len(), 13);
}

#[test]
fn btf_of_a_module_extends_that_of_the_kernel() {
    let base = made_up();
    let mut module = Writer::after(&base);
    let alias = module.add("counter", 8 << 24, 1, &[]);
    let again = module.add("", 3 << 24, 0, &[alias, 1, 2]);
    module.structure("newtcp", 4, 12, &[("wave", alias, 0, 0), ("at", again, 32, 0)]);
    let folder = std::env::temp_dir().join(format!("sojourn-btf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of our own");
    std::fs::write(folder.join("vmlinux"), base.bytes()).expect("writes");
    std::fs::write(folder.join("some_module"), module.bytes()).expect("writes");
    let mut names = PrivateNames::of_folder(&folder);
    let fields = decoded(&mut names, b"new\0", &private());
    std::fs::remove_dir_all(&folder).expect("is ours");
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["wave", "at[0]", "at[1]"]);
    assert_eq!(fields[0].1, 10);
}

/// Type information that is larger or deeper than any structure in use is read up to its bounds.
#[test]
fn members_elements_and_depth_of_btf_are_bounded() {
    let mut btf = Writer::new();
    let byte = btf.number("char", 1, false);
    let more = btf::MOST_MEMBERS as u32 + 1;
    let members: Vec<_> = (0..more).map(|at| ("one", byte, at * 8, 0)).collect();
    btf.structure("wide", 4, more, &members);
    let array = btf.add("", 3 << 24, 0, &[byte, byte, btf::MOST_ELEMENTS + 1]);
    btf.structure("long", 4, 100, &[("all", array, 0, 0)]);
    let mut inner = btf.structure("deepest", 4, 1, &[("leaf", byte, 0, 0)]);
    for level in 2..=btf::MOST_DEPTH + 1 {
        inner = btf.structure(&format!("deep-{level}"), 4, 1, &[("in", inner, 0, 0)]);
    }
    let mut alias = byte;
    for number in 1..=btf::MOST_DEPTH {
        alias = btf.add("alias", 8 << 24, alias, &[]);
        btf.structure(&format!("alias-{number}"), 4, 1, &[("one", alias, 0, 0)]);
    }
    let own = btf.first + btf.count;
    btf.add("circle", 8 << 24, own, &[]);
    btf.structure("round", 4, 1, &[("one", own, 0, 0)]);
    let parsed = Btf::parse(btf.bytes(), None).expect("is well formed");
    let count = |name: &str| parsed.members(name, 1 << 20).map(|members| members.len());
    assert_eq!(count("wide"), Some(btf::MOST_MEMBERS));
    assert_eq!(count("long"), Some(btf::MOST_ELEMENTS as usize));
    let deep = |level| count(&format!("deep-{level}"));
    assert_eq!((deep(btf::MOST_DEPTH), deep(btf::MOST_DEPTH + 1)), (Some(1), None));
    let of_alias = |number| count(&format!("alias-{number}"));
    assert_eq!((of_alias(btf::MOST_DEPTH - 1), of_alias(btf::MOST_DEPTH)), (Some(1), None));
    assert_eq!(count("round"), None);
}

#[test]
fn the_kernel_names_bbr_and_cubic() {
    let mut names = PrivateNames::of_kernel();
    if !Path::new(FOLDER).join("vmlinux").exists() {
        assert!(std::env::var_os("CI").is_none(), "this kernel shows no type information");
        return;
    }
    let mut bytes = [0; PRIVATE_BYTES];
    bytes[0..4].copy_from_slice(&1500_u32.to_ne_bytes());
    let bbr = decoded(&mut names, b"bbr\0", &bytes);
    assert_eq!(bbr[0], ("min_rtt_us".to_owned(), 1500));
    for field in ["bw.s[0].t", "bw.s[2].v", "cycle_mstamp", "mode", "pacing_gain", "cwnd_gain", "full_bw"] {
        assert!(bbr.iter().any(|(name, _)| name == field), "{field} of {bbr:?}");
    }
    let cubic = decoded(&mut names, b"cubic\0", &bytes);
    assert_eq!(cubic[0], ("cnt".to_owned(), 1500));
    assert!(cubic.iter().any(|(name, _)| name == "bic_K"), "{cubic:?}");
    assert!(cubic.iter().all(|(name, _)| !name.starts_with("word")));
}

#[test]
fn bit_fields_are_read_at_the_offsets_of_the_compiler() {
    // struct bbr: mode:3, prev_ca_state:3, packet_conservation:1, …, pacing_gain:10, cwnd_gain:10.
    let mut names = PrivateNames::of_kernel();
    if !names.knows("bbr") {
        return;
    }
    let mut bytes = [0; PRIVATE_BYTES];
    bytes[56] = 0b0101_0011; // mode 3, prev_ca_state 2, packet_conservation 1
    bytes[76..80].copy_from_slice(&(739_u32 | 256 << 10 | 1 << 20 | 2 << 21).to_ne_bytes());
    let fields: HashMap<String, i64> = decoded(&mut names, b"bbr", &bytes).into_iter().collect();
    let expected = [
        ("mode", 3),
        ("prev_ca_state", 2),
        ("packet_conservation", 1),
        ("round_start", 0),
        ("pacing_gain", 739),
        ("cwnd_gain", 256),
        ("full_bw_reached", 1),
        ("full_bw_cnt", 2),
    ];
    for (name, value) in expected {
        assert_eq!(fields.get(name), Some(&value), "{name}");
    }
}

/// Read everything that can be read from these bytes.
fn read_all(bytes: Vec<u8>) {
    if let Ok(btf) = Btf::parse(bytes, None) {
        let mut names = of_btf(btf);
        for algorithm in ["odd", "far", "minmax_sample", "cubic"] {
            decoded(&mut names, algorithm.as_bytes(), &private());
        }
    }
}

proptest! {
    /// Arbitrary bytes do no harm.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut begun = made_up().bytes()[..4].to_vec();
        begun.extend(&bytes);
        read_all(bytes);
        read_all(begun);
    }

    /// Modified type information does no harm.
    #[test]
    fn mutated_btf_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = made_up().bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(bytes.clone());
        bytes.truncate(length.index(bytes.len()));
        read_all(bytes);
    }

    /// A field has the value of its bits at any offset.
    #[test]
    fn field_value_is_its_bits_at_any_offset(value in any::<u64>(), bit_offset in 0_u32..700, bits in 1_u32..=64, is_signed in any::<bool>()) {
        let kept = value & (u64::MAX >> (64 - bits));
        let mut bytes = [0; PRIVATE_BYTES];
        for bit in 0..bits {
            let at = bit_offset + bit;
            bytes[(at / 8) as usize] |= u8::from(kept >> bit & 1 != 0) << (at % 8);
        }
        let member = btf::Member { name: String::new(), bit_offset, bits, is_signed };
        let is_negative = is_signed && kept >> (bits - 1) & 1 != 0;
        let expected = if is_negative { (kept | !(u64::MAX >> (64 - bits))).cast_signed() } else { kept.cast_signed() };
        prop_assert_eq!(member.value(&bytes), Some(expected));
        let end = ((bit_offset + bits).div_ceil(8)) as usize;
        prop_assert_eq!(member.value(&bytes[..end - 1]), None);
    }
}

/// The running kernel's type information, with some relevant structures modified.
#[test]
fn mutated_btf_of_the_running_kernel_never_panics() {
    let Ok(bytes) = std::fs::read(Path::new(FOLDER).join("vmlinux")) else { return };
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..12 {
        let mut mutated = bytes.clone();
        for _ in 0..2000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let at = 24 + (seed % (mutated.len() as u64 - 24)) as usize;
            // Only low bits, so that most types can still be followed.
            mutated[at] ^= if round % 2 == 0 { 1 } else { (seed >> 32) as u8 };
        }
        read_all(mutated);
    }
}

#[test]
fn remembered_algorithms_are_bounded() {
    let mut names = PrivateNames::default();
    for number in 0..3 * ALGORITHMS {
        decoded(&mut names, format!("unheard{number}").as_bytes(), &private());
        assert!((1..=ALGORITHMS).contains(&names.layouts.len()), "{number}");
    }
}
