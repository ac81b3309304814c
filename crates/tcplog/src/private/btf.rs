//! Parse the kernel's type information (Documentation/bpf/btf.rst), as far as structures of numbers need it.
//!
//! Any input is accepted without a panic: references that leave the bytes or form a cycle are ignored. Numbers are in
//! this machine's byte order; bit fields are read as little-endian.

use std::sync::Arc;

const MAGIC: u16 = 0xeb9f;

/// The maximum number of members of a structure, with nested ones.
pub(super) const MOST_MEMBERS: usize = 512;
/// The maximum depth of nested structures.
pub(super) const MOST_DEPTH: usize = 16;
/// The maximum number of elements that are read of an array.
pub(super) const MOST_ELEMENTS: u32 = 16;

/// The types of the kernel, or of a module, which extend the kernel's.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// The offset of each type, without those of the base.
    types: Vec<usize>,
    strings: std::ops::Range<usize>,
    base: Option<Arc<Self>>,
}

/// Why bytes are not type information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// Wrong magic number, byte order or version.
    #[error("read BTF: no type information that this machine can read")]
    Foreign,
    /// A part extends beyond the bytes.
    #[error("read BTF: cut short")]
    Short,
    /// A type of unknown kind, after which the next type cannot be found.
    #[error("read BTF: unknown kind of type {0}")]
    Kind(u32),
}

/// A number in a structure, at any depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Dotted path, with indices.
    pub name: String,
    /// The offset from the structure's start.
    pub bit_offset: u32,
    /// The width, 1 to 64.
    pub bits: u32,
    /// Whether the number is signed.
    pub is_signed: bool,
}

impl Member {
    /// Read the value; `None` where the bytes are too short.
    #[must_use]
    pub fn value(&self, bytes: &[u8]) -> Option<i64> {
        if !(1..=64).contains(&self.bits) {
            return None;
        }
        let first = usize::try_from(self.bit_offset / 8).ok()?;
        let shift = self.bit_offset % 8;
        let length = usize::try_from((shift + self.bits).div_ceil(8)).ok()?;
        // Whole numbers are in the machine's byte order; a bit field spans at most nine bytes.
        let mut wide = [0; 16];
        wide[..length].copy_from_slice(bytes.get(first..first.checked_add(length)?)?);
        if cfg!(target_endian = "big") {
            wide[..length].reverse();
        }
        let unused = 64 - self.bits;
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
        let value = ((u128::from_le_bytes(wide) >> shift) as u64) << unused;
        Some(if self.is_signed { value.cast_signed() >> unused } else { (value >> unused).cast_signed() })
    }
}

/// One type in the bytes.
#[derive(Clone, Copy)]
struct Type<'a> {
    btf: &'a Btf,
    at: usize,
    name: u32,
    info: u32,
    /// A size, or the number of another type.
    size: u32,
}

const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const VOLATILE: u32 = 9;
const RESTRICT: u32 = 11;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

impl Btf {
    /// Parse type information; that of a module needs the kernel's as its base.
    ///
    /// # Errors
    /// When it cannot be parsed.
    pub fn parse(bytes: Vec<u8>, base: Option<Arc<Self>>) -> Result<Self, BtfError> {
        let head: &[u8; 4] = bytes.first_chunk().ok_or(BtfError::Short)?;
        if u16::from_ne_bytes([head[0], head[1]]) != MAGIC || head[2] != 1 {
            return Err(BtfError::Foreign);
        }
        let word = |at| u32_at(&bytes, at).and_then(|word| usize::try_from(word).ok()).ok_or(BtfError::Short);
        let (head_length, types_at, types_length) = (word(4)?, word(8)?, word(12)?);
        let (strings_at, strings_length) = (word(16)?, word(20)?);
        let part = |at: usize, length: usize| {
            let start = head_length.checked_add(at)?;
            let end = start.checked_add(length)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let types = part(types_at, types_length).ok_or(BtfError::Short)?;
        let strings = part(strings_at, strings_length).ok_or(BtfError::Short)?;
        let types = starts(&bytes, types)?;
        Ok(Self { bytes, types, strings, base })
    }

    /// Return the numbers in a structure of this name. Of several such structures, take the first that is not empty and
    /// not larger than `most_bytes`.
    #[must_use]
    pub fn members(&self, name: &str, most_bytes: usize) -> Option<Vec<Member>> {
        let structures = self.types.iter().filter_map(|&at| self.at(at)).filter(|kind| kind.kind() == STRUCT);
        let fitting = structures.filter(|structure| structure.size > 0 && structure.size as usize <= most_bytes);
        let mut named = fitting.filter(|structure| self.string(structure.name) == Some(name.as_bytes()));
        named.find_map(|structure| {
            let mut walk = Walk { members: Vec::new(), most_bits: structure.size * 8 };
            walk.structure(structure, "", 0, 0);
            (!walk.members.is_empty()).then_some(walk.members)
        })
    }

    /// Return the number of types, including the base's and `void`, which is number 0.
    fn end(&self) -> usize {
        self.first() + self.types.len()
    }

    /// The number of the first type after the base's.
    fn first(&self) -> usize {
        self.base.as_ref().map_or(1, |base| base.end())
    }

    fn by_number(&self, number: u32) -> Option<Type<'_>> {
        let number = usize::try_from(number).ok()?;
        match number.checked_sub(self.first()) {
            Some(own) => self.at(*self.types.get(own)?),
            None => self.base.as_ref()?.by_number(u32::try_from(number).ok()?),
        }
    }

    fn at(&self, at: usize) -> Option<Type<'_>> {
        let word = |at| u32_at(&self.bytes, at);
        Some(Type { btf: self, at, name: word(at)?, info: word(at + 4)?, size: word(at + 8)? })
    }

    /// A module's strings continue after the kernel's.
    fn string(&self, offset: u32) -> Option<&[u8]> {
        let offset = usize::try_from(offset).ok()?;
        let before = self.base.as_ref().map_or(0, |base| base.strings_end());
        let Some(own) = offset.checked_sub(before) else {
            return self.base.as_ref()?.string(u32::try_from(offset).ok()?);
        };
        self.bytes.get(self.strings.clone())?.get(own..)?.split(|&byte| byte == 0).next()
    }

    fn strings_end(&self) -> usize {
        self.strings.len() + self.base.as_ref().map_or(0, |base| base.strings_end())
    }

    /// Resolve typedefs and qualifiers.
    fn plain(&self, number: u32) -> Option<Type<'_>> {
        let mut number = number;
        for _ in 0..MOST_DEPTH {
            let found = self.by_number(number)?;
            match found.kind() {
                TYPEDEF | CONST | VOLATILE | RESTRICT | TYPE_TAG => number = found.size,
                _ => return Some(found),
            }
        }
        None
    }
}

impl<'a> Type<'a> {
    const fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    const fn flag(self) -> bool {
        self.info >> 31 != 0
    }

    fn extra(self, at: usize) -> Option<u32> {
        u32_at(&self.btf.bytes, self.at + 12 + at * 4)
    }

    /// Iterate over the members: name, type, bit offset, and width of a bit field (0: not a bit field).
    fn members(self) -> impl Iterator<Item = (&'a [u8], u32, u32, u32)> {
        (0..(self.info & 0xffff) as usize).map_while(move |member| {
            let (name, kind) = (self.extra(member * 3)?, self.extra(member * 3 + 1)?);
            let offset = self.extra(member * 3 + 2)?;
            let (offset, bits) = if self.flag() { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            Some((self.btf.string(name)?, kind, offset, bits))
        })
    }
}

/// The state while the numbers of a structure are collected.
struct Walk {
    members: Vec<Member>,
    most_bits: u32,
}

impl Walk {
    fn structure(&mut self, structure: Type<'_>, prefix: &str, base: u32, depth: usize) {
        for (name, kind, offset, bits) in structure.members() {
            let Some(offset) = base.checked_add(offset) else { continue };
            let name = String::from_utf8_lossy(name);
            let name = match (prefix, &*name) {
                ("", name) => name.to_owned(),
                (prefix, "") => prefix.to_owned(),
                (prefix, name) => format!("{prefix}.{name}"),
            };
            self.member(structure.btf, kind, name, offset, bits, depth);
        }
    }

    fn member(&mut self, btf: &Btf, number: u32, name: String, offset: u32, field_bits: u32, depth: usize) {
        if depth >= MOST_DEPTH || self.members.len() >= MOST_MEMBERS || offset >= self.most_bits {
            return;
        }
        let Some(kind) = btf.plain(number) else { return };
        let whole_bits = kind.size.saturating_mul(8);
        let wanted = |whole: u32| if field_bits == 0 { whole } else { field_bits };
        match kind.kind() {
            INT => {
                let Some(encoding) = kind.extra(0) else { return };
                // An older encoding of bit fields: integers of that many bits.
                let (bits, shift) = (encoding & 0xff, encoding >> 16 & 0xff);
                let bits = if field_bits == 0 && (shift != 0 || bits < whole_bits && bits % 8 != 0) {
                    bits
                } else {
                    wanted(whole_bits)
                };
                self.push(name, offset.saturating_add(shift), bits, encoding >> 24 & 1 != 0);
            }
            ENUM | ENUM64 => self.push(name, offset, wanted(whole_bits), kind.flag()),
            STRUCT | UNION => self.structure(kind, &name, offset, depth + 1),
            ARRAY => self.array(btf, kind, &name, offset, depth),
            // Pointers are of no use to a reader; floating-point numbers do not occur.
            _ => {}
        }
    }

    fn array(&mut self, btf: &Btf, array: Type<'_>, name: &str, offset: u32, depth: usize) {
        let (Some(element), Some(length)) = (array.extra(0), array.extra(2)) else { return };
        let Some(bits) = size_of_type(btf, element, 0).and_then(|bytes| bytes.checked_mul(8)).filter(|&bits| bits > 0)
        else {
            return;
        };
        for at in 0..length.min(MOST_ELEMENTS) {
            let Some(offset) = at.checked_mul(bits).and_then(|bits| offset.checked_add(bits)) else { return };
            self.member(btf, element, format!("{name}[{at}]"), offset, 0, depth + 1);
        }
    }

    fn push(&mut self, name: String, bit_offset: u32, bits: u32, is_signed: bool) {
        let ends_inside = bit_offset.checked_add(bits).is_some_and(|end| end <= self.most_bits);
        if (1..=64).contains(&bits) && ends_inside {
            self.members.push(Member { name, bit_offset, bits, is_signed });
        }
    }
}

/// Return the size of a type in bytes.
fn size_of_type(btf: &Btf, number: u32, depth: usize) -> Option<u32> {
    let kind = btf.plain(number).filter(|_| depth < MOST_DEPTH)?;
    match kind.kind() {
        INT | STRUCT | UNION | ENUM | ENUM64 => Some(kind.size),
        ARRAY => size_of_type(btf, kind.extra(0)?, depth + 1)?.checked_mul(kind.extra(2)?),
        _ => None,
    }
}

/// Return the offset of each type.
fn starts(bytes: &[u8], part: std::ops::Range<usize>) -> Result<Vec<usize>, BtfError> {
    let mut starts = Vec::new();
    let mut at = part.start;
    while at < part.end {
        let info = u32_at(bytes, at + 4).ok_or(BtfError::Short)?;
        let members = (info & 0xffff) as usize;
        starts.push(at);
        at += 12 + extra_bytes(info >> 24 & 0x1f, members)?;
    }
    if at == part.end { Ok(starts) } else { Err(BtfError::Short) }
}

/// Return the number of bytes that follow a type of this kind (include/uapi/linux/btf.h).
fn extra_bytes(kind: u32, members: usize) -> Result<usize, BtfError> {
    match kind {
        // Pointer, forward declaration, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => Ok(0),
        // Integer, variable, declaration tag.
        1 | 14 | 17 => Ok(4),
        ARRAY => Ok(12),
        // Structure, union, data section, 64-bit enumeration.
        4 | 5 | 15 | 19 => Ok(12 * members),
        // Enumeration, function prototype.
        6 | 13 => Ok(8 * members),
        _ => Err(BtfError::Kind(kind)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_ne_bytes(*word))
}
