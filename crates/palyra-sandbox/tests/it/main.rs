//! The sandbox against attackers and ordinary programs, with the real helper.

mod behaviour;
mod clients;
mod death;
mod endurance;
mod files;
mod fixture;
mod inside;
mod masked;
mod processes;
mod sockets;
mod survivors;
