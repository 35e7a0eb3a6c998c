//! Storing and displaying the settings of users.

use serde_json::Value;

use crate::plugin::Plugin;
use crate::registry::ChangeError;
use crate::settings::{Settings, SettingsError};
use crate::{Plugins, settings};
use std::sync::Arc;

/// The settings of one owner for a plugin, without their secrets.
#[derive(Debug, Clone)]
pub struct SettingsView {
    /// The manifest's schema of the settings.
    pub schema: Option<Value>,
    /// The stored settings, masked; `None` if nothing is stored.
    pub settings: Option<Value>,
    /// The problem that a call would have with them.
    pub problem: Option<String>,
}

impl Plugins {
    /// Returns the stored settings of `owner`; [`settings::SHARED`] is the owner of the shared
    /// ones.
    pub fn settings(&self, identifier: &str, owner: &str) -> Result<SettingsView, ChangeError> {
        let plugin = self.plugin(identifier)?;
        let stored = self.shared.settings.get(identifier, owner);
        let unreadable = stored.as_ref().err().map(ToString::to_string);
        let stored = stored.unwrap_or_default();
        let moved =
            stored.as_ref().is_some_and(|stored| !plugin.origins.is_subset(&stored.origins));
        let moved =
            moved.then(|| "they were stored for another server and must be set again".to_owned());
        Ok(view(&plugin, stored.map(|stored| stored.settings), unreadable.or(moved)))
    }

    pub async fn store_settings(
        &self,
        identifier: &str,
        owner: &str,
        settings: Settings,
    ) -> Result<SettingsView, SettingsError> {
        let plugin =
            self.plugin(identifier).map_err(|error| SettingsError::Invalid(error.to_string()))?;
        let schema = plugin.settings.as_ref();
        let stored =
            self.shared.settings.put(identifier, owner, settings, &plugin.origins, schema).await?;
        Ok(view(&plugin, Some(stored), None))
    }

    pub async fn delete_settings(
        &self,
        identifier: &str,
        owner: &str,
    ) -> Result<bool, ChangeError> {
        self.plugin(identifier)?;
        Ok(self.shared.settings.delete(identifier, owner).await?)
    }

    fn plugin(&self, identifier: &str) -> Result<Arc<Plugin>, ChangeError> {
        let entries = self.entries();
        let entry =
            entries.get(identifier).ok_or_else(|| ChangeError::Unknown(identifier.into()))?;
        Ok(Arc::clone(&entry.plugin))
    }
}

fn view(plugin: &Plugin, stored: Option<Settings>, trouble: Option<String>) -> SettingsView {
    let schema = plugin.settings.as_ref();
    let whole = |schema: &settings::SettingsSchema| {
        schema.with_defaults(stored.clone().unwrap_or_default())
    };
    let problem =
        schema.and_then(|schema| schema.check(&whole(schema)).err()).map(|error| error.message);
    let masked = |stored: &Settings| match schema {
        Some(schema) => schema.masked(stored),
        None => {
            Value::Object(stored.keys().map(|key| (key.clone(), settings::MASK.into())).collect())
        }
    };
    SettingsView {
        schema: schema.map(|schema| schema.value().clone()),
        settings: stored.as_ref().map(masked),
        problem: trouble.or(problem),
    }
}
