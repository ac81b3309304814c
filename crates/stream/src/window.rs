//! Window.
