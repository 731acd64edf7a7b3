//! `palyra agents`: who acts for you, and on which folder.

use std::path::PathBuf;

use palyra_api::wire::{Agent, NewAgent, Page, PauseAgent};
use palyra_core::{Clock, SystemClock};

use crate::args::AgentsAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::place;
use crate::present;
use crate::session::{Session, in_time};
use crate::table::{Cell, Column, Facts, Table};
use crate::when;

const PATH: &str = "/api/v1/agents";

pub(super) async fn run(action: &AgentsAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    match action {
        AgentsAction::Add {
            name,
            workspace,
            unattended,
        } => {
            let workspace = folder(workspace.clone())?;
            let wish = NewAgent {
                name: name.to_string(),
                workspace,
                unattended: *unattended,
            };
            let mut client = session.connect().await?;
            let agent: Agent = in_time(client.post(PATH, &wish)).await?;
            output.answer(&agent, render)?;
            output.suggest(&format!("try it: `palyra exec --as agent:{name} -- id`"));
        }
        AgentsAction::List => {
            let page: Page<Agent> = super::get(session, PATH).await?;
            output.answer(&page, |page| list(page, output))?;
            if page.items.is_empty() {
                output.suggest("no agents yet; register one with `palyra agents add NAME`");
            }
        }
        AgentsAction::Show { name } => {
            let agent: Agent = super::get(session, &format!("{PATH}/{name}")).await?;
            output.answer(&agent, render)?;
        }
        AgentsAction::Pause { name, reason } => {
            let mut client = session.connect().await?;
            let path = format!("{PATH}/{name}/pause");
            let wish = PauseAgent {
                reason: reason.clone(),
            };
            let agent: Agent = in_time(client.post(&path, &wish)).await?;
            output.answer(&agent, render)?;
            output.suggest(&format!("let it go on with `palyra agents resume {name}`"));
        }
        AgentsAction::Resume { name } => {
            let path = format!("{PATH}/{name}/resume");
            let agent: Agent = present::post(session, &path, &serde_json::json!({})).await?;
            output.answer(&agent, render)?;
        }
        AgentsAction::Remove { name } => {
            let mut client = session.connect().await?;
            let agent: Agent = in_time(client.delete(&format!("{PATH}/{name}"))).await?;
            output.answer(&agent, |agent| {
                format!(
                    "removed {}\n",
                    crate::safe::line(&format!("agent:{}", agent.name))
                )
            })?;
        }
    }
    Ok(Exit::OK)
}

fn folder(given: Option<PathBuf>) -> Result<String, Failure> {
    match given {
        Some(given) => place::workspace(&given),
        None => place::here(),
    }
}

fn list(page: &Page<Agent>, output: &Output) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let now = SystemClock.now();
    let mut table = Table::new([
        Column::left("NAME"),
        Column::left("FOR"),
        Column::right("SINCE"),
        Column::flexible("WORKSPACE"),
    ]);
    for agent in &page.items {
        table.row([
            Cell::new(&agent.name),
            Cell::new(&agent.user),
            Cell::rendered(when::age(&agent.registered_at, now)),
            Cell::new(&agent.workspace),
        ]);
    }
    output.table(&table)
}

fn render(agent: &Agent) -> String {
    Facts::default()
        .with("agent", format!("agent:{}", agent.name))
        .with("acts for", &agent.user)
        .with("workspace", &agent.workspace)
        .maybe(
            "paused",
            agent.paused.then(|| {
                let why = agent.paused_for.as_deref().unwrap_or("a person must look");
                let why = crate::safe::once(why);
                Cell::rendered(format!("yes: {why}; see `palyra agents resume`"))
            }),
        )
        .maybe(
            "unattended",
            agent
                .unattended
                .then_some("yes: what would need a yes is denied"),
        )
        .with(
            "registered",
            Cell::rendered(when::instant(&agent.registered_at, SystemClock.now())),
        )
        .render()
}
