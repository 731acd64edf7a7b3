//! palyra-sandbox
