//! palyra-identity
