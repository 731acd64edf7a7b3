//! Who may do what, and what an attacker gets instead.

mod attacks;
mod fixture;
mod load;
mod property;
mod table;
