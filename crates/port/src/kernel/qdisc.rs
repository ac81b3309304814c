//! Reads the root queueing discipline of an interface, over rtnetlink.
//!
//! Uses the network namespace in which the socket was opened. Does not know what the options of a kind mean. Untrusted
//! bytes: truncated and unknown messages are ignored.

use std::io;

use super::netlink::{HEAD, NLM_F_DUMP, Netlink, attribute, text, word};

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `TC_H_ROOT`: the parent of a root qdisc.
const ROOT: u32 = u32::MAX;

/// The fields of `struct tcmsg` behind the netlink header, and its end.
const INDEX: usize = HEAD + 4;
const HANDLE: usize = HEAD + 8;
const PARENT: usize = HEAD + 12;
const QDISC: usize = HEAD + 20;

/// A queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// Its kind: "netem".
    pub kind: String,
    /// Its handle; the major number is in the high 16 bits, and 0 for the kernel's default.
    pub handle: u32,
    /// Its options as the kernel states them.
    pub options: Vec<u8>,
}

impl Netlink {
    /// Reads the root queueing discipline of an interface; `None` if it has none.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn root_qdisc(&mut self, index: u32) -> io::Result<Option<Qdisc>> {
        let mut found = None;
        self.exchange(RTM_GETQDISC, NLM_F_DUMP, &[0; QDISC - HEAD], &mut |kind, message| {
            if kind == RTM_NEWQDISC
                && let Some((of, root)) = root(message)
                && of == index
            {
                found = Some(root);
            }
        })?;
        Ok(found)
    }
}

/// Parses a message about a root qdisc: its interface's index, and the qdisc.
fn root(message: &[u8]) -> Option<(u32, Qdisc)> {
    (word(message, PARENT)? == ROOT).then_some(())?;
    let attributes = message.get(QDISC..)?;
    let qdisc = Qdisc {
        kind: text(attribute(attributes, TCA_KIND)?),
        handle: word(message, HANDLE)?,
        options: attribute(attributes, TCA_OPTIONS).unwrap_or_default().to_vec(),
    };
    Some((word(message, INDEX)?, qdisc))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::netlink::attributed;
    use super::*;

    #[test]
    fn root_qdisc_is_read_with_its_options_and_others_are_ignored() {
        let message = |parent: u32| {
            let head = [&[0; HEAD + 4][..], &5_u32.to_ne_bytes(), &0x5ABC_0000_u32.to_ne_bytes()].concat();
            let attributes = [attributed(TCA_KIND, b"netem\0"), attributed(TCA_OPTIONS, &[7; 8])].concat();
            [&head, &parent.to_ne_bytes()[..], &[0; 4], &attributes].concat()
        };
        let expected = Qdisc { kind: "netem".into(), handle: 0x5ABC_0000, options: vec![7; 8] };
        assert_eq!(root(&message(ROOT)), Some((5, expected)));
        assert_eq!(root(&message(0xFFFF_FFF1)), None, "it is at ingress");
    }

    #[test]
    fn kernel_answers_a_query_of_qdiscs() {
        let mut netlink = Netlink::open(false).expect("opens");
        netlink.root_qdisc(1).expect("answers");
        assert_eq!(netlink.root_qdisc(2_000_000_000).expect("answers"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            root(&bytes);
        }
    }
}
