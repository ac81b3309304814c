//! What the private state of a congestion control says: names from the kernel's own type information (BTF), values from the
//! bytes that the programs copied.
//!
//! So an algorithm that nobody here has heard of is decoded too, if its structure is called as is usual; of any other, the
//! words are given as they are. Decoding is pure; only [`PrivateNames::of_kernel`] and what it finds later reads files, under
//! `/sys/kernel/btf`.

pub mod btf;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::layout::PRIVATE_BYTES;
use btf::{Btf, Member};

/// Where the kernel shows its type information.
const FOLDER: &str = "/sys/kernel/btf";

/// Congestion controls without private state.
const STATELESS: [&str; 2] = ["reno", "scalable"];

/// Structures that are not called like their algorithm.
const CALLED: [(&str, &str); 6] = [
    ("cubic", "bictcp"),
    ("bic", "bictcp"),
    ("highspeed", "hstcp"),
    ("nv", "tcpnv"),
    ("dctcp-reno", "dctcp"),
    ("dctcp_reno", "dctcp"),
];

/// Knows the structures of congestion controls' private states.
#[derive(Debug, Default)]
pub struct PrivateNames {
    kernel: Option<Arc<Btf>>,
    /// Where modules' type information lies.
    folder: Option<PathBuf>,
    layouts: HashMap<String, Layout>,
}

/// How an algorithm's private state is read.
#[derive(Clone, Debug)]
enum Layout {
    Stateless,
    Named(Vec<Member>),
    Words,
}

impl PrivateNames {
    /// Reads the running kernel's type information; without it, there are words only.
    #[must_use]
    pub fn of_kernel() -> Self {
        Self::of_folder(Path::new(FOLDER))
    }

    /// The same of a folder with a file `vmlinux` and a file for each module.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        let kernel = std::fs::read(folder.join("vmlinux")).ok().and_then(|bytes| Btf::parse(bytes, None).ok());
        Self { kernel: kernel.map(Arc::new), folder: Some(folder.to_owned()), layouts: HashMap::new() }
    }

    /// Whether the fields of this algorithm are known by name.
    pub fn knows(&mut self, algorithm: &str) -> bool {
        matches!(self.layout(algorithm), Layout::Named(_))
    }

    /// Hands on each field's name and value, in the kernel's own unit. The algorithm's name ends at its first zero. Unsigned
    /// numbers above 2^63 come out negative; pointers are left out.
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
            self.layouts.insert(algorithm.to_owned(), layout);
        }
        self.layouts.get(algorithm).unwrap_or(&Layout::Words)
    }

    /// The algorithm's own module first: a structure of the same name may be another's elsewhere.
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
        // An algorithm's name is foreign: it may hold a slash.
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

/// What the structure may be called.
fn candidates(algorithm: &str) -> Vec<String> {
    let plain = algorithm.replace('-', "_");
    let called = CALLED.iter().filter(|(name, _)| *name == algorithm).map(|(_, called)| (*called).to_owned());
    let mut names: Vec<String> = called.collect();
    // bbr3's is still called bbr.
    for stem in [plain.as_str(), plain.trim_end_matches(|last: char| last.is_ascii_digit())] {
        let usual = [stem.to_owned(), format!("tcp_{stem}"), format!("{stem}tcp"), format!("{stem}_tcp")];
        names.extend(usual);
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The members of the first structure that is called so and fits.
fn members(btf: &Btf, candidates: &[String]) -> Option<Vec<Member>> {
    candidates.iter().find_map(|name| btf.members(name, PRIVATE_BYTES))
}

#[cfg(test)]
mod tests;
