//! palyra-cli
