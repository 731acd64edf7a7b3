//! Effects, from the outside: vectors in files, hostile input, properties, scopes.

mod machine;
mod properties;
mod scopes;
mod vectors;
