//! palyra-approval
