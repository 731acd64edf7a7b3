//! palyra-daemon
