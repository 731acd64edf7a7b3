//! palyra-api
