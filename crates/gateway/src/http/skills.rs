//! Skills, and where they can be followed.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::{Extension, Json};
use sa_core::{Role, View};
use serde::Serialize;

use super::{App, Problem};
use crate::hosts::{Facts, Requirements, facts};
use crate::skills::{self, Skill};
use crate::tokens::Identity;

/// Programs that are asked about for one list of skills.
const MAX_PROGRAMS: usize = 512;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SkillList {
    /// By name.
    skills: Vec<SkillDoc>,
    /// What is wrong with the directories; for operators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// Where skills are looked for; for operators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dirs: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SkillDoc {
    name: String,
    description: String,
    /// The file; for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    requires: Requirements,
    /// Whether some host has what it requires. A skill that requires nothing needs no host.
    eligible: bool,
    /// The hosts that have it, the primary execution host first.
    hosts: Vec<String>,
    /// What each other host that is connected lacks, by the host's id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    missing: BTreeMap<String, Requirements>,
    /// Why it cannot be used: what is wrong with the file, and where.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Every skill in the configured directories, with the hosts that it can be followed on. A token for some tools sees the
/// skills that it can follow on a host of these tools.
#[utoipa::path(get, path = "/v1/skills", tag = "nodes", responses((status = 200, body = SkillList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<SkillList>, Problem> {
    app.router.policy().authorise_role(&identity.principal).map_err(|error| Problem::from(&error))?;
    let operator = identity.principal.role == Role::Operator;
    let dirs = app.config.skill_dirs();
    let looked = dirs.iter().map(|dir| dir.display().to_string()).filter(|_| operator).collect();
    let found = tokio::task::spawn_blocking(move || skills::read(&dirs)).await;
    let found = found.map_err(|_| Problem::new(500, "internal", "the skills cannot be read"))?;
    let usable = found.skills.iter().filter(|skill| skill.problem.is_none());
    let programs: BTreeSet<&String> = usable.flat_map(|skill| skill.requires.programs()).collect();
    let programs = programs.into_iter().take(MAX_PROGRAMS).cloned().collect();
    let limited = identity.principal.is_limited() && !operator;
    let mut hosts = facts(&app, &View::of(identity.principal), programs).await;
    hosts.retain(|host| host.online);
    hosts.sort_by_key(|host| !host.primary);
    let mut skills: Vec<SkillDoc> =
        found.skills.into_iter().map(|skill| SkillDoc::of(skill, &hosts, operator)).collect();
    // A token names tools and not skills: it sees those that it can follow on a host of its tools.
    skills.retain(|skill| !limited || !skill.hosts.is_empty());
    Ok(Json(SkillList { skills, problems: if operator { found.problems } else { Vec::new() }, dirs: looked }))
}

impl SkillDoc {
    fn of(skill: Skill, hosts: &[Facts], operator: bool) -> Self {
        let mut eligible_hosts = Vec::new();
        let mut missing = BTreeMap::new();
        if skill.problem.is_none() {
            for host in hosts {
                let lacking = host.lacks(&skill.requires);
                if lacking == Requirements::default() {
                    eligible_hosts.push(host.node.clone());
                } else {
                    missing.insert(host.node.clone(), lacking);
                }
            }
        }
        let needs_no_host = skill.requires == Requirements::default();
        Self {
            eligible: skill.problem.is_none() && (needs_no_host || !eligible_hosts.is_empty()),
            hosts: eligible_hosts,
            missing,
            path: operator.then(|| skill.path.display().to_string()),
            name: skill.name,
            description: skill.description,
            requires: skill.requires,
            problem: skill.problem,
        }
    }
}
