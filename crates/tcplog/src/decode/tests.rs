//! Written records are read back, invalid ones are refused, and nothing panics.

use proptest::prelude::*;

use super::*;
use crate::layout::State;

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = decode(&bytes);
    }

    #[test]
    fn samples_round_trip_exactly(mut bytes in proptest::collection::vec(any::<u8>(), Sample::BYTES)) {
        bytes[0] = kind::SAMPLE;
        if bytes[1] > point::DESTROY {
            prop_assert_eq!(decode(&bytes), Err(DecodeError::Point(bytes[1])));
            bytes[1] %= point::DESTROY + 1;
        }
        let Ok(Event::Sample(sample)) = decode(&bytes) else { panic!("a sample was expected") };
        let mut again = Vec::new();
        sample.put(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn private_states_round_trip_exactly(mut bytes in proptest::collection::vec(any::<u8>(), PrivateState::BYTES)) {
        bytes[0] = kind::PRIVATE;
        let Ok(Event::Private(state)) = decode(&bytes) else { panic!("a private state was expected") };
        let mut again = Vec::new();
        state.put(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn other_lengths_are_refused(length in 1..2 * Sample::BYTES, is_private: bool) {
        let mut bytes = vec![0; length];
        bytes[0] = if is_private { kind::PRIVATE } else { kind::SAMPLE };
        let expected = if is_private { PrivateState::BYTES } else { Sample::BYTES };
        prop_assert_eq!(decode(&bytes).is_ok(), length == expected);
    }
}

#[test]
fn fields_have_the_offsets_of_the_bpf_program() {
    let mut bytes = vec![0; Sample::BYTES];
    bytes[0] = kind::SAMPLE;
    let at = std::mem::offset_of!(Sample, state) + std::mem::offset_of!(State, snd_cwnd);
    bytes[at..at + 4].copy_from_slice(&77_u32.to_ne_bytes());
    let Ok(Event::Sample(sample)) = decode(&bytes) else { panic!("a sample was expected") };
    assert_eq!(sample.state.snd_cwnd, 77);
    assert_eq!(decode(&[9; 400]), Err(DecodeError::Kind(9)));
    assert_eq!(decode(&[]), Err(DecodeError::Length { expected: 1, found: 0 }));
}
