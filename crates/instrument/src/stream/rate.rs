//! Parses rates.

use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use sojourn_emulate::config::units;
use sojourn_time::text::packet_rate;

/// An offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Frames per second.
    Frames(f64),
    /// Bits per second, of frames with their FCS.
    Bits(f64),
}

impl Rate {
    /// Returns the rate in frames per second, for frames of this length with FCS.
    pub fn pps(self, frame_bytes: usize) -> f64 {
        match self {
            Self::Frames(pps) => pps,
            Self::Bits(bps) => bps / (8.0 * frame_bytes as f64),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal =
            || format!("{text:?} is not a rate; write it as frames a second, 10kpps, or bits a second, 100Mbit/s");
        let rate = if text.ends_with("pps") {
            Self::Frames(packet_rate(text).ok_or_else(refusal)?)
        } else {
            let bps = units::rate(text)?;
            Self::Bits(if text.contains(char::is_alphabetic) { bps as f64 } else { 0.0 })
        };
        let (Self::Frames(value) | Self::Bits(value)) = rate;
        if value > 0.0 { Ok(rate) } else { Err(refusal()) }
    }
}

/// Parses a number of frames per second, or a string.
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Frames(f64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Frames(pps) => Ok(Self::Frames(pps)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_carry_their_unit() {
        assert_eq!("10kpps".parse(), Ok(Rate::Frames(10_000.0)));
        assert_eq!("1.5Mpps".parse(), Ok(Rate::Frames(1_500_000.0)));
        assert_eq!("100Mbit/s".parse(), Ok(Rate::Bits(1e8)));
        assert_eq!("250pps".parse(), Ok(Rate::Frames(250.0)));
        assert_eq!(Rate::Bits(512_000.0).pps(64), 1_000.0);
        for refused in ["10", "pps", "-1pps", "0pps", "1xpps", "infpps", "NaNpps", "", "1e400pps", "ékpps"] {
            assert!(refused.parse::<Rate>().is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<Rate>();
        }
    }
}
