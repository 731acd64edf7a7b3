//! palyra-journal
