//! Read, Write, Edit, Glob and Grep.

use sa_node_sdk::ToolRegistry;

use crate::Machine;

pub(crate) fn register(_machine: &Machine, _tools: &mut ToolRegistry) {}
