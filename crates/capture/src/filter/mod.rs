//! Filters in libpcap's language (pcap-filter(7)), compiled by libpcap to classic BPF programs for the kernel.
//!
//! libpcap is loaded when the first filter is compiled; without filters it need not be installed.

mod sys;

use std::ffi::CString;

use sojourn_port::kernel::FilterStep;

use sys::{For, Library, Refused};

/// The longest frame.
pub const WHOLE: u32 = sojourn_port::pcap::LONGEST_FRAME_BYTES;
/// `DLT_EN10MB`.
const ETHERNET: i32 = 1;

/// Why a filter cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// libpcap is missing.
    #[error(
        "--filter needs libpcap, which is not here: `apt-get install libpcap0.8` (other systems: libpcap) brings it"
    )]
    NoLibrary,
    /// The expression is invalid.
    #[error("--filter '{expression}': {problem}; pcap-filter(7) has the language")]
    Wrong {
        /// The expression.
        expression: String,
        /// libpcap's message.
        problem: String,
    },
    /// libpcap cannot open the interface.
    #[error("--filter: libpcap cannot look at {interface}: {problem}")]
    Interface {
        /// Its name.
        interface: String,
        /// libpcap's message.
        problem: String,
    },
}

/// Loads the library before privileges are dropped; returns whether it is installed.
pub fn load() -> bool {
    Library::get().is_some()
}

/// Compiles an expression for the frames of `interface`; `snap` bytes of each accepted frame are kept.
///
/// libpcap must open the interface, because the kernel keeps VLAN tags and directions in metadata.
///
/// # Errors
/// When the expression is invalid, libpcap is missing, or the interface cannot be opened (that needs CAP_NET_RAW).
pub fn compile(interface: &str, expression: &str, snap: u32) -> Result<Vec<FilterStep>, FilterError> {
    let problem = || FilterError::Interface { interface: interface.to_owned(), problem: "no such name".to_owned() };
    let name = CString::new(interface).map_err(|_| problem())?;
    compiled(For::Interface(&name), interface, expression, snap)
}

/// Checks an expression as far as possible without an interface.
///
/// # Errors
/// When it is invalid, or libpcap is missing.
pub fn check(expression: &str) -> Result<(), FilterError> {
    match compiled(For::LinkType(ETHERNET), "", expression, WHOLE) {
        // Directions need an interface.
        Err(FilterError::Wrong { problem, .. }) if problem.contains("inbound/outbound") => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Returns the program that keeps `snap` bytes of every frame; an empty program if whole frames are kept.
pub fn of_all(snap: u32) -> Vec<FilterStep> {
    if snap >= WHOLE {
        return Vec::new();
    }
    vec![FilterStep { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: snap }]
}

fn compiled(target: For<'_>, interface: &str, expression: &str, snap: u32) -> Result<Vec<FilterStep>, FilterError> {
    let library = Library::get().ok_or(FilterError::NoLibrary)?;
    library.compile(target, expression, snap).map_err(|refused| match refused {
        Refused::Expression(problem) => FilterError::Wrong { expression: expression.to_owned(), problem },
        Refused::Interface(problem) => FilterError::Interface { interface: interface.to_owned(), problem },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_expression_is_compiled_and_an_invalid_one_is_an_error() {
        if !load() {
            assert!(std::env::var_os("CI").is_none(), "CI has libpcap");
            eprintln!("skipped: there is no libpcap here");
            return;
        }
        let program = compiled(For::LinkType(ETHERNET), "", "udp port 53", 96).unwrap();
        let keeps = |step: &FilterStep| u32::from(step.code) == libc::BPF_RET | libc::BPF_K && step.k == 96;
        assert!(program.len() > 5 && program.iter().any(keeps), "{program:?}");
        assert_eq!(check("vlan 7 and outbound"), Ok(()));
        let error = check("udp porrt 53").unwrap_err().to_string();
        assert!(error.starts_with("--filter 'udp porrt 53': ") && error.contains("pcap-filter(7)"), "{error}");
        let error = compile("nosuch0", "udp", WHOLE).unwrap_err();
        assert!(matches!(error, FilterError::Interface { .. }), "{error}");
        assert_eq!(
            check("host \0"),
            Err(FilterError::Wrong { expression: "host \0".into(), problem: "it contains a zero byte".into() })
        );
    }

    #[test]
    fn snap_length_without_filter_is_one_instruction_and_whole_frames_need_no_program() {
        assert_eq!(of_all(64).len(), 1);
        assert!(of_all(WHOLE).is_empty());
    }
}
