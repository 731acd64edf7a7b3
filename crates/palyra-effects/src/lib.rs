//! What a call does: its effects, the programs it runs and their groups, the ways in which it
//! stands for other calls, and how bad it can be.
//!
//! This room is pure. It reads argv and shell text; what it must know about files it asks a
//! [`Resolver`], which the gateway supplies. It decides nothing.
//!
//! The rule of the house: **whatever cannot be understood makes the call opaque**. An effect that
//! was found stays found; opaque says that there may be more. `docs/design/0006-effects.md` tells
//! what is opaque and why.

#![forbid(unsafe_code)]

mod analysis;
mod arguments;
mod builtins;
mod git;
mod interpreters;
mod network;
mod opaque;
mod operands;
mod paths;
mod programs;
mod resolver;
mod risk;
mod scopes;
mod shell;
mod unfold;
mod words;
mod wrappers;

pub use analysis::{
    Analysis, Code, FileAccess, ProcessCall, Read, Segment, of_file, of_nothing, of_process,
};
pub use opaque::Opaque;
pub use resolver::Resolver;
pub use scopes::Identity;
pub use words::Word;
