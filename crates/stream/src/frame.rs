//! Frames of a stream.
