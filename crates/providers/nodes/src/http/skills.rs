//! Skills, and the hosts that can run them.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::{Extension, Json};
use sa_core::{Role, View};
use sa_http::{Identity, Problem};
use serde::Serialize;

use super::Routes;
use crate::hosts::{Facts, Requirements, facts};
use crate::skills::{self, Skill};

/// The maximum number of programs to probe for one list of skills.
const MAX_PROGRAMS: usize = 512;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct SkillList {
    /// Sorted by name.
    skills: Vec<SkillDoc>,
    /// Problems with the directories; for operators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// The directories that are searched for skills; for operators.
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
    /// Whether a host meets the requirements. A skill without requirements needs no host.
    eligible: bool,
    /// The hosts that meet the requirements, the primary execution host first.
    hosts: Vec<String>,
    /// The missing requirements of each other connected host, by host id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    missing: BTreeMap<String, Requirements>,
    /// Why the skill cannot be used: the error in its file, and the position.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Lists the skills in the configured directories, with the hosts that can run them.
///
/// A token that is limited to some tools sees only the skills that a host of these tools can run.
#[utoipa::path(get, path = "/v1/skills", operation_id = "list_skills", tag = "nodes", responses((status = 200, body = SkillList), (status = 403, body = Problem)))]
pub(crate) async fn list(
    State(Routes { http, nodes, skill_dirs: dirs, .. }): State<Routes>,
    Extension(identity): Extension<Identity>,
) -> Result<Json<SkillList>, Problem> {
    http.router
        .policy()
        .authorise_role(&identity.principal)
        .map_err(|error| Problem::from(&error))?;
    let operator = identity.principal.role == Role::Operator;
    let looked = dirs.iter().map(|dir| dir.display().to_string()).filter(|_| operator).collect();
    let found = tokio::task::spawn_blocking(move || skills::read(&dirs)).await;
    let found = found.map_err(|_| Problem::new(500, "internal", "the skills cannot be read"))?;
    let usable = found.skills.iter().filter(|skill| skill.problem.is_none());
    let programs: BTreeSet<&String> = usable.flat_map(|skill| skill.requires.programs()).collect();
    let programs = programs.into_iter().take(MAX_PROGRAMS).cloned().collect();
    let limited = identity.principal.is_limited() && !operator;
    let mut hosts = facts(&nodes, &View::of(identity.principal), programs).await;
    hosts.retain(|host| host.online);
    hosts.sort_by_key(|host| !host.primary);
    let mut skills: Vec<SkillDoc> =
        found.skills.into_iter().map(|skill| SkillDoc::of(skill, &hosts, operator)).collect();
    // A token names tools and not skills. It sees the skills that a host of its tools can run.
    skills.retain(|skill| !limited || !skill.hosts.is_empty());
    Ok(Json(SkillList {
        skills,
        problems: if operator { found.problems } else { Vec::new() },
        dirs: looked,
    }))
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
