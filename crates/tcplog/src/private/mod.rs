//! Decode the private state of a congestion control: field names come from the kernel's type information (BTF), values
//! from the bytes that the programs copied.
//!
//! This also decodes algorithms unknown to Sojourn, if their structures have a usual name; otherwise the raw words are
//! returned. Decoding is pure; only [`PrivateNames::of_kernel`] and later look-ups read files, under `/sys/kernel/btf`.

pub mod btf;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::layout::PRIVATE_BYTES;
use btf::{Btf, Member};

/// The folder of the kernel's type information.
const FOLDER: &str = "/sys/kernel/btf";

/// The number of algorithms that are remembered: damaged bytes may name any number of them.
pub const ALGORITHMS: usize = 64;

/// Congestion controls without private state.
const STATELESS: [&str; 2] = ["reno", "scalable"];

/// Structures whose name differs from their algorithm's.
const CALLED: [(&str, &str); 6] = [
    ("cubic", "bictcp"),
    ("bic", "bictcp"),
    ("highspeed", "hstcp"),
    ("nv", "tcpnv"),
    ("dctcp-reno", "dctcp"),
    ("dctcp_reno", "dctcp"),
];

/// The known structures of private states.
#[derive(Debug, Default)]
pub struct PrivateNames {
    kernel: Option<Arc<Btf>>,
    /// The folder of the modules' type information.
    folder: Option<PathBuf>,
    layouts: HashMap<String, Layout>,
    forgotten: u64,
}

/// The way in which an algorithm's private state is decoded.
#[derive(Clone, Debug)]
enum Layout {
    Stateless,
    Named(Vec<Member>),
    Words,
}

impl PrivateNames {
    /// Read the running kernel's type information; without it, only raw words are available.
    #[must_use]
    pub fn of_kernel() -> Self {
        Self::of_folder(Path::new(FOLDER))
    }

    /// Read type information from a folder with a file `vmlinux` and a file for each module.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        let kernel = std::fs::read(folder.join("vmlinux")).ok().and_then(|bytes| Btf::parse(bytes, None).ok());
        Self { kernel: kernel.map(Arc::new), folder: Some(folder.to_owned()), ..Self::default() }
    }

    /// Return whether the fields of this algorithm are known by name.
    pub fn knows(&mut self, algorithm: &str) -> bool {
        matches!(self.layout(algorithm), Layout::Named(_))
    }

    /// Return how often all known structures were forgotten, because there were too many names. What is found anew may
    /// differ: a module was loaded or removed meanwhile.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Call `take` with each field's name and value, in the kernel's unit. The algorithm's name ends at its first zero.
    /// Unsigned numbers of 2^63 and more become negative; pointers are omitted.
    pub fn decode(&mut self, algorithm: &[u8], bytes: &[u8; PRIVATE_BYTES], take: &mut dyn FnMut(&str, i64)) {
        let name = algorithm.split(|&byte| byte == 0).next().unwrap_or_default();
        match self.layout(&String::from_utf8_lossy(name)) {
            Layout::Stateless => {}
            Layout::Named(members) => {
                members.iter().for_each(|member| take(&member.name, member.value(bytes).unwrap_or(0)));
            }
            Layout::Words => {
                for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                    take(&format!("word[{at}]"), i64::from_ne_bytes(*word));
                }
            }
        }
    }

    fn layout(&mut self, algorithm: &str) -> &Layout {
        if !self.layouts.contains_key(algorithm) {
            let layout = self.find(algorithm);
            if self.layouts.len() == ALGORITHMS {
                self.layouts.clear();
                self.forgotten += 1;
            }
            self.layouts.insert(algorithm.to_owned(), layout);
        }
        self.layouts.get(algorithm).unwrap_or(&Layout::Words)
    }

    /// Search the algorithm's own module first: elsewhere, a structure of the same name may be another one.
    fn find(&self, algorithm: &str) -> Layout {
        if algorithm.is_empty() || STATELESS.contains(&algorithm) {
            return Layout::Stateless;
        }
        let candidates = candidates(algorithm);
        let own = self.module(&format!("tcp_{}", algorithm.replace('-', "_")));
        let first = own.iter().chain(self.kernel.as_deref()).find_map(|btf| members(btf, &candidates));
        let members = first.or_else(|| self.modules().find_map(|btf| members(&btf, &candidates)));
        members.map_or(Layout::Words, Layout::Named)
    }

    fn module(&self, name: &str) -> Option<Btf> {
        // The algorithm's name is untrusted: it may contain a slash.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let path = self.folder.as_ref().filter(|_| is_plain)?.join(name);
        Btf::parse(std::fs::read(path).ok()?, self.kernel.clone()).ok()
    }

    fn modules(&self) -> impl Iterator<Item = Btf> + '_ {
        let entries = self.folder.as_ref().and_then(|folder| std::fs::read_dir(folder).ok());
        let names = entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name != "vmlinux").filter_map(|name| self.module(&name))
    }
}

/// Return the possible names of the structure.
fn candidates(algorithm: &str) -> Vec<String> {
    let plain = algorithm.replace('-', "_");
    let called = CALLED.iter().filter(|(name, _)| *name == algorithm).map(|(_, called)| (*called).to_owned());
    let mut names: Vec<String> = called.collect();
    // bbr3's structure is still called bbr.
    for stem in [plain.as_str(), plain.trim_end_matches(|last: char| last.is_ascii_digit())] {
        let usual = [stem.to_owned(), format!("tcp_{stem}"), format!("{stem}tcp"), format!("{stem}_tcp")];
        names.extend(usual);
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Return the members of the first structure with one of these names that fits.
fn members(btf: &Btf, candidates: &[String]) -> Option<Vec<Member>> {
    candidates.iter().find_map(|name| btf.members(name, PRIVATE_BYTES))
}

#[cfg(test)]
mod tests;
