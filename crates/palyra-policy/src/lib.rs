//! palyra-policy
