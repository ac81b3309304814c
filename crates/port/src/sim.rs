//! A simulated line: frames go through it in simulated time to an answering peer and come back.

mod line;

pub use line::{ClockStep, Delay, Gamma, Hold, Line, LineError, Normal, Pareto, SenderLate, Stall, TwoModes};
