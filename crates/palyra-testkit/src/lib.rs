//! palyra-testkit
