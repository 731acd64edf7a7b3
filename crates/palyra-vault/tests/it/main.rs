//! The vault's tests: what is kept is given back, and what was done to the file is noticed.

mod attacks;
mod backup;
mod keystores;
mod places;
mod rotation;
mod secret_service;
mod storing;
mod support;
