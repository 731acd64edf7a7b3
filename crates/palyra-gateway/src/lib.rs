//! palyra-gateway
