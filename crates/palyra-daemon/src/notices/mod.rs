//! Telling those elsewhere that a person is asked: by a signed webhook, or by a program.
//!
//! They are told and nothing more. What a receiver answers is not read, and deciding happens where the
//! person is authenticated. Each of them gets each question once, and how that went is in the journal.

mod hook;
mod settings;
mod webhook;

pub use settings::{Hook, Notify, Target, Webhook};

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use palyra_core::ApprovalId;
use palyra_gateway::GatewayService;
use palyra_gateway::changes::Change;
use palyra_gateway::notices::Outcome;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;

/// So many are told at the same time.
const AT_ONCE: usize = 8;

/// Tells whom the configuration names, for as long as it is polled.
pub(crate) async fn tell(to: Notify, gateway: GatewayService) {
    let Some(mut changes) = gateway.hear().filter(|_| !to.is_empty()) else {
        return std::future::pending().await;
    };
    let to = Arc::new(to);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    // Those that waited before this start were told before it.
    let mut told: HashSet<ApprovalId> = gateway.waiting_now().into_iter().collect();
    loop {
        let fresh = match changes.recv().await {
            Ok(Change::Approval(id, "pending")) => vec![id],
            Ok(Change::Approval(id, _)) => {
                told.remove(&id);
                continue;
            }
            Ok(
                Change::Grant(..)
                | Change::Call(..)
                | Change::Agent(_)
                | Change::Postures
                | Change::Policies,
            ) => continue,
            // More happened than is kept: whatever waits and was not told.
            Err(RecvError::Lagged(_)) => gateway.waiting_now(),
            Err(RecvError::Closed) => return std::future::pending().await,
        };
        for id in fresh {
            if told.insert(id.clone()) {
                start(&to, &gateway, &room, &id);
            }
        }
    }
}

fn start(to: &Arc<Notify>, gateway: &GatewayService, room: &Arc<Semaphore>, id: &ApprovalId) {
    for webhook in to.webhooks.clone() {
        let (gateway, room, id) = (gateway.clone(), Arc::clone(room), id.clone());
        tokio::spawn(async move {
            let outcome = by_webhook(&webhook, &gateway, &room, &id).await;
            gateway.notified(&id, &webhook.name, outcome).await;
        });
    }
    for hook in to.commands.clone() {
        let (gateway, room, id) = (gateway.clone(), Arc::clone(room), id.clone());
        tokio::spawn(async move {
            let outcome = by_command(&hook, &gateway, &room, &id).await;
            gateway.notified(&id, &hook.name, outcome).await;
        });
    }
}

fn gone(attempts: u32) -> Outcome {
    Outcome {
        attempts,
        failed: Some("it was answered, or over, before".to_owned()),
    }
}

async fn by_webhook(
    to: &Webhook,
    gateway: &GatewayService,
    room: &Semaphore,
    id: &ApprovalId,
) -> Outcome {
    let mut pause = to.backoff.0;
    let mut attempts = 0;
    loop {
        let Some(notice) = gateway.notice(id) else {
            return gone(attempts);
        };
        let body = Bytes::from(notice.to_string());
        attempts += 1;
        let tried = {
            let _room = room.acquire().await;
            match gateway.signing_secret(&to.secret).await {
                // The same id each time: a receiver knows it for one that it has.
                Ok(secret) => webhook::send(to, id.as_str(), &body, gateway.now(), &secret).await,
                Err(refusal) => Err(webhook::Failed {
                    why: format!("it cannot be signed: {refusal}"),
                    again: true,
                }),
            }
        };
        let failed = match tried {
            Ok(()) => {
                return Outcome {
                    attempts,
                    failed: None,
                };
            }
            Err(failed) => failed,
        };
        tracing::warn!(way = to.name, approval = %id, why = failed.why, attempts, "was not told");
        if !failed.again || attempts >= to.attempts {
            let failed = Some(failed.why);
            return Outcome { attempts, failed };
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(4);
    }
}

async fn by_command(
    hook: &Hook,
    gateway: &GatewayService,
    room: &Semaphore,
    id: &ApprovalId,
) -> Outcome {
    let Some(notice) = gateway.notice(id) else {
        return gone(0);
    };
    let _room = room.acquire().await;
    let (hook, notice) = (hook.clone(), notice.to_string());
    let ran = tokio::task::spawn_blocking(move || hook::run(&hook, notice.as_bytes())).await;
    Outcome {
        attempts: 1,
        failed: match ran {
            Ok(ran) => ran.err(),
            Err(error) => Some(error.to_string()),
        },
    }
}
