//! The server that a client meets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use palyra_api::ClientError;
use palyra_api::wire::{CallDetail, ToolsEvent};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, ResourceTemplate,
    ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use tokio::sync::watch;

use super::reach::Reach;
use super::{calls, results, tools};
use crate::failure::Failure;

/// What a model is told about this server as a whole.
const INSTRUCTIONS: &str = "Tools of Palyra. Each call is decided by policy, may have to be \
    approved by a person, runs in a sandbox that sees the workspace only, and is recorded. A result \
    with decision `pending` has not run: tell your person, and once they answered make exactly the \
    same call again. A result with decision `denied` will not run; do not try it in another way.";

/// How long to wait before the daemon is looked for again.
const AGAIN: Duration = Duration::from_secs(2);

/// One client's server.
#[derive(Clone)]
pub struct Server {
    reach: Arc<Reach>,
    patience: Duration,
    /// The daemon's names, by those that clients use.
    names: Arc<RwLock<HashMap<String, String>>>,
    changes: Arc<watch::Sender<u64>>,
}

impl Server {
    /// A server that waits this long for a person before it says so.
    #[must_use]
    pub fn new(reach: Arc<Reach>, patience: Duration) -> Self {
        Self {
            reach,
            patience,
            names: Arc::default(),
            changes: Arc::new(watch::channel(0).0),
        }
    }

    /// Hears from the daemon when the tools are others, for as long as it is polled. The open
    /// connection also tells the daemon that it is not idle.
    pub fn watch(&self) -> impl Future<Output = ()> + Send + use<> {
        let (reach, changes) = (Arc::clone(&self.reach), Arc::clone(&self.changes));
        async move {
            let mut first = true;
            loop {
                let _ = hear(&reach, &changes, first).await;
                first = false;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    async fn listed(&self) -> Result<Vec<rmcp::model::Tool>, ErrorData> {
        let known = self
            .reach
            .tools()
            .await
            .map_err(|failure| internal(&failure))?;
        let names = known
            .iter()
            .map(|tool| (tools::public_name(&tool.name), tool.name.clone()));
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names.collect();
        Ok(known.iter().map(tools::listed).collect())
    }

    /// The daemon's name of a tool. One that is not known is the daemon's to refuse.
    async fn own_name(&self, given: &str) -> Result<String, ErrorData> {
        if let Some(name) = self.known_name(given) {
            return Ok(name);
        }
        self.listed().await?;
        Ok(self.known_name(given).unwrap_or_else(|| given.to_owned()))
    }

    fn known_name(&self, given: &str) -> Option<String> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(given).cloned()
    }
}

/// Hears of changes until the connection ends; one that had to be made again is a change itself.
async fn hear(reach: &Reach, changes: &watch::Sender<u64>, first: bool) -> Result<(), Failure> {
    let mut client = reach.own_client().await?;
    let mut events = client.watch_tools().await?;
    loop {
        let next: Result<_, ClientError> = events.next().await;
        match next? {
            Some(ToolsEvent::Watching) if first => {}
            Some(ToolsEvent::Watching | ToolsEvent::Changed) => {
                changes.send_modify(|count| *count += 1);
            }
            Some(ToolsEvent::Alive) => {}
            None => return Ok(()),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        let about = Implementation::new("palyra", env!("CARGO_PKG_VERSION")).with_title("Palyra");
        ServerConfig::new(capabilities)
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.listed().await.map(ListToolsResult::with_all_items)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.own_name(&request.name).await?;
        let arguments = request.arguments;
        let made = calls::make(&self.reach, &tool, arguments, self.patience, &context).await;
        match made {
            Ok(result) => Ok(result.into()),
            Err(calls::UnknownTool(message)) => Err(ErrorData::invalid_params(message, None)),
        }
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(results::output_uri("{call_id}"), "output")
            .with_title("Output of a call")
            .with_description("All that is kept of what a call of yours gave back.")
            .with_mime_type("text/plain");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let none = || ErrorData::resource_not_found("there is no such output of yours", None);
        let call = results::call_of_uri(&request.uri).ok_or_else(none)?;
        let found: Result<CallDetail, Failure> =
            self.reach.get(&format!("/api/v1/calls/{call}")).await;
        let output = found.ok().and_then(|call| call.output).ok_or_else(none)?;
        let text = results::readable(&output);
        let contents = vec![ResourceContents::text(text, request.uri)];
        Ok(ReadResourceResult::new(contents).into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.changes.subscribe();
        // A task of its own: this one is the client's notification, and over at once.
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    let told = context.sink().notify_tool_list_changed().await;
                    if changed.is_err() || told.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn internal(failure: &Failure) -> ErrorData {
    ErrorData::internal_error(failure.message.clone(), None)
}
