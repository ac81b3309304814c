//! Views of headers and of our probe payload.
