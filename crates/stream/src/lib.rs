//! Streams: frames sent by a known schedule, and a receiver that counts every one of them.
//!
//! The engines are pure: [`Sender`] decides which packet leaves when, [`Receiver`] puts each arriving frame in exactly
//! one count. [`send`] and [`receive`] are the loops that run them over ports; [`simulate`] runs both over a simulated
//! path with known properties. Nothing here opens a port, writes records, or converts one host's clock to another's.

mod accounting;
mod auth;
mod count;
mod departed;
mod driver;
mod ears;
mod end;
mod follow_up;
mod frame;
pub mod goodness;
mod merge;
mod outcome;
mod receiver;
mod request;
mod schedule;
mod sender;
pub mod sim;
mod spread;
mod sync;
mod tally;
mod track;
mod window;

pub use auth::Auth;
pub use count::{Received as ReceivedCounts, Sent as SentCounts, Unexpected};
pub use departed::{Departure, FlowSent, SendOutcome};
pub use driver::{Ended, Greeted, Greeting, Observer, conclude, exchange, greet, receive, send};
pub use ears::{Ears, Heard};
pub use end::{End, EndLine};
pub use follow_up::FollowUp;
pub use goodness::Fit;
pub use merge::Merge;
pub use outcome::{Arrival, FlowReceived, PortReceived, ReceiveOutcome, SentCount};
pub use receiver::Receiver;
pub use request::{
    Answering, FlowRequest, Head, Keep, PortRequest, ReceiveRequest, RequestError, SECRET_BYTES, SendRequest, Senders,
    SyncRequest,
};
pub use schedule::{Departures, Pattern, Schedule, ScheduleError};
pub use sender::Sender;
pub use sim::simulate;
pub use spread::{Cell, Spread};
pub use sync::{Exchange, Phase};
