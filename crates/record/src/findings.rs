//! Findings: what makes a measurement doubtful, by name. Who finds them is elsewhere.

use serde::Serialize;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// The figures may be wrong.
    Doubtful,
    /// The figures must not be used.
    Invalid,
}

macro_rules! findings {
    ($($variant:ident $name:literal $severity:ident $doc:literal,)*) => {
        /// What can be found in a measurement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Finding {
            $(#[doc = $doc] $variant,)*
        }

        impl Finding {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name that records and reports carry.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns how grave it is.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// Returns what it says.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

findings! {
    SenderLate "sender_late" Doubtful "Probes left later than intended by more than the limit.",
    ClockStepped "clock_stepped" Invalid "The clock that stamps probes was stepped against CLOCK_MONOTONIC_RAW.",
    OwnDrops "own_drops" Doubtful "Our own socket, ring or queue dropped frames.",
    OffloadOn "offload_on" Note "An offload that may join, split or defer frames was on.",
    TesterLimited "tester_limited" Doubtful "The tester, not the device, bounds what was measured.",
    PeriodicDelay "periodic_delay" Note "Delay recurs with a period.",
    Drift "drift" Note "Delay drifts over the run.",
    SeveralModes "several_modes" Note "Delays cluster around several values.",
    Unsteady "unsteady" Doubtful "The level of the delay changed within the run.",
    Loss "loss" Note "Probes stayed without an answer.",
    Duplication "duplication" Note "Probes were answered more than once.",
    Reordering "reordering" Note "Replies overtook each other (RFC 4737).",
    LateReplies "late_replies" Note "Replies came after the timeout.",
    LateFrames "late_frames" Note "Frames of a stream took longer than the limit.",
    MixedTimestamps "mixed_timestamps" Doubtful "Timestamps of one kind came from different sources.",
    UserTimestamps "user_timestamps" Note "Timestamps were taken by the program: they include system calls and wake-ups.",
    DebugBuild "debug_build" Doubtful "The instrument was built without optimisation.",
    TooFewPairs "too_few_pairs" Doubtful "Too few pairs for an interval at the stated level.",
    AANonzero "a_a_nonzero" Doubtful "The empty path differs from itself.",
    TruncatedRecord "truncated_record" Doubtful "A record ends before its end.",
    Incomplete "incomplete" Doubtful "Blocks that were planned are missing.",
    Contended "contended" Note "Other work competed for the processors.",
    BelowFloor "below_floor" Invalid "A delay is below what the path can have.",
    Interference "interference" Note "Something outside the experiment disturbed it.",
    ClockUnsynchronised "clock_unsynchronised" Doubtful "The clocks of the two ends could not be brought together.",
    PretendedClock "pretended_clock" Invalid "The peer pretends a clock, for tests of clock estimation alone.",
    ClockAsymmetric "clock_asymmetric" Note "The two directions' least delays differ: only the hard bound holds.",
    NegativeDelay "negative_delay" Doubtful "Frames arrived before they left: the clocks were further apart than known.",
    DurationStretched "duration_stretched" Doubtful "Sending took longer than asked: less was offered than intended.",
    LoadMissed "load_missed" Doubtful "The sender missed the load that was asked for.",
    PoissonMisfit "poisson_misfit" Note "What was sent does not fit the exponential intervals that were asked for.",
    SenderRefused "sender_refused" Note "Our own queue refused frames: they were never sent.",
    Corruption "corruption" Note "Frames arrived damaged.",
    BufferTooSmall "buffer_too_small" Doubtful "The receiver's own buffer was too small for what arrived.",
    PathDead "path_dead" Invalid "No frame of the stream arrived.",
    ModelMisfit "model_misfit" Note "The queueing model does not foretell what was measured.",
    StampsOutOfOrder "stamps_out_of_order" Note "Timestamps along a frame's way are not in the order of the way.",
    RateRisesWithSize "rate_rises_with_size" Doubtful "Longer frames passed at a higher rate than shorter ones.",
    SearchDisagrees "search_disagrees" Doubtful "A search reported other bounds than its trials give.",
    LossUnverified "loss_unverified" Note "A loss did not recur when it was tried again, and was set aside.",
    TooFewFrames "too_few_frames" Note "A trial had fewer frames than its standard asks for.",
    NotConserved "not_conserved" Invalid "Frames sent are not all received, damaged, dropped by us or lost, each once.",
    Impossible "impossible" Invalid "A figure is one that cannot be: the analysis contradicts itself.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_names_are_the_names() {
        for finding in Finding::ALL {
            let serialized = serde_json::to_value(finding).unwrap();
            let name = serialized.as_str().unwrap();
            // serde writes AANonzero as "a_a_nonzero" too; the test holds the two together.
            assert_eq!(name, finding.name());
        }
    }
}
