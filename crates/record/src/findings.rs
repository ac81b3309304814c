//! Findings: the named observations that make a measurement doubtful. They are detected elsewhere.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information.
    Note,
    /// The results may be wrong.
    Doubtful,
    /// The results must not be used.
    Invalid,
}

macro_rules! findings {
    ($($variant:ident $name:literal $severity:ident $doc:literal,)*) => {
        /// A finding about a measurement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Finding {
            $(#[doc = $doc] $variant,)*
        }

        impl Finding {
            /// All findings.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Return the name in records and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Return the severity.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// Return the description.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

findings! {
    SenderLate "sender_late" Doubtful "More than 5 % of a cell's probes or frames left later than intended by more than a tenth of the interval and by more than 10 µs.",
    ClockStepped "clock_stepped" Invalid "The clock that stamps probes was stepped against CLOCK_MONOTONIC_RAW.",
    LocalDrops "local_drops" Doubtful "The tester's own socket, ring or queue dropped frames.",
    Loss "loss" Note "Probes had no answer, or frames did not arrive.",
    Duplication "duplication" Note "Probes were answered more than once.",
    Reordering "reordering" Note "Replies overtook each other (RFC 4737).",
    LateReplies "late_replies" Note "Replies came after the timeout.",
    LateFrames "late_frames" Note "Frames of a stream took longer than the limit.",
    MixedTimestamps "mixed_timestamps" Doubtful "Timestamps of one kind came from different sources.",
    UserTimestamps "user_timestamps" Note "Timestamps were taken by the program: they include system calls and wake-ups.",
    DebugBuild "debug_build" Doubtful "The instrument was built without optimisation.",
    Incomplete "incomplete" Doubtful "Blocks that were planned are missing.",
    ClockUnsynchronised "clock_unsynchronised" Doubtful "The offset between the clocks of the two ends could not be estimated.",
    PretendedClock "pretended_clock" Invalid "The peer simulates a wrong clock (--pretend-clock), which is for tests of clock estimation alone.",
    ClockAsymmetric "clock_asymmetric" Doubtful "The two directions' minimum delays differ: only the maximum error holds.",
    ClockSlewed "clock_slewed" Doubtful "The rate of the clocks of the two ends changed faster than clocks do by themselves.",
    ImplausibleDelay "implausible_delay" Invalid "Frames arrived before they left, or more than a minute later than their stream lasted, by a clock that both ends are said to share.",
    NegativeDelay "negative_delay" Doubtful "Frames arrived before they left: the clocks were further apart than known.",
    DurationStretched "duration_stretched" Doubtful "Sending took longer than configured: the offered load was below the configured one.",
    LoadMissed "load_missed" Doubtful "The sender did not reach the configured load.",
    PoissonMisfit "poisson_misfit" Note "The times between departures are not exponentially distributed, as the configured Poisson process requires.",
    SenderRefused "sender_refused" Note "The sender's own queue refused frames: they were never sent.",
    Corruption "corruption" Note "Frames arrived damaged.",
    UnexpectedFrames "unexpected_frames" Note "Many frames arrived that belong to no stream of the run; they are in no figure.",
    CountsContradict "counts_contradict" Invalid "More frames of a stream arrived than its sender says that it sent.",
    BufferTooSmall "buffer_too_small" Doubtful "The receiver's own buffer was too small for what arrived.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialised_finding_names_equal_name() {
        for finding in Finding::ALL {
            let serialized = serde_json::to_value(finding).unwrap();
            let name = serialized.as_str().unwrap();
            assert_eq!(name, finding.name());
        }
    }
}
