//! The description of the API, made from the handlers' own annotations.

use palyra_api::wire;
use utoipa::OpenApi;

use crate::routes::{
    advising, agents, approvals, calls, doctor, grants, journal, judging, keeping, policy,
    postures, presence, proofs, quarantine, status, tools, vault, watching,
};

/// The whole API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Palyra",
        description = "Every tool call decided, approved, executed and attested. Served on a Unix \
                       socket; the caller is the peer that the kernel names. The header `palyra-as` \
                       lowers an owner's request to one of their agents.",
        license(name = "Apache-2.0")
    ),
    paths(
        status::healthz,
        status::status,
        doctor::examine,
        tools::list,
        tools::show,
        tools::watch,
        agents::list,
        agents::add,
        agents::show,
        agents::remove,
        agents::pause,
        agents::resume,
        vault::status,
        vault::list,
        vault::put,
        vault::versions,
        vault::reveal,
        vault::delete,
        vault::rotate,
        vault::unlock,
        vault::lock,
        vault::export,
        vault::import,
        vault::audit,
        calls::call,
        advising::advise,
        calls::list,
        calls::show,
        calls::input,
        approvals::list,
        approvals::show,
        approvals::decide,
        approvals::stats,
        grants::list,
        grants::show,
        grants::revoke,
        grants::explain,
        postures::list,
        postures::set,
        presence::show,
        presence::set,
        presence::end,
        presence::forget,
        watching::watch,
        journal::read,
        policy::overview,
        policy::versions,
        policy::show,
        policy::reload,
        policy::activate,
        policy::rollback,
        judging::explain,
        judging::simulate,
        judging::replay,
        keeping::erase,
        keeping::rebuild,
        keeping::backup,
        proofs::checkpoint,
        proofs::export,
        proofs::attestation,
        quarantine::list,
        quarantine::restore,
    ),
    components(schemas(wire::CallEvent, wire::WatchEvent, wire::ErrorBody))
)]
pub struct Api;
