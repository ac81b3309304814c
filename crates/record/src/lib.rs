//! The waist.
