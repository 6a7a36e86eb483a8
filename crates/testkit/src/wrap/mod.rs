//! Engines around engines: they count, delay or break what passes through, and change nothing else.

mod counting;
mod delayed;
mod faulty;
mod hooked;

pub use counting::{Counting, Trips};
pub use delayed::{Delayed, Delays};
pub use faulty::{Chances, Faulty, Injected};
pub use hooked::Hooked;
