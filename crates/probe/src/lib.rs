//! Ask and answer.
