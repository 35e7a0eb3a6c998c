//! Changes at a plugin's source, which are held back until an operator has reviewed them.

use sa_core::{AuditEvent, clock};
use sa_limits::offload;

use crate::record::{self, HeldBack, Record, Texts};
use crate::registry::{ChangeError, View};
use crate::source::Validators;
use crate::{Plugins, openapi};

impl Plugins {
    /// Accepts the change that is held back. With a `hash`, only if the change still has this
    /// hash.
    pub async fn accept(&self, identifier: &str, hash: Option<&str>) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let held = self.held_back(identifier)?.texts.hash();
        if hash.is_some_and(|hash| hash != held) {
            return Err(ChangeError::Moved(identifier.into()));
        }
        self.change(identifier, |record| {
            if let Some(held) = record.held_back.take() {
                record.texts = held.texts;
            }
        })
        .await
    }

    /// Rejects the change that is held back, until there is a different one.
    pub async fn refuse(&self, identifier: &str) -> Result<View, ChangeError> {
        let _one = self.changing.lock().await;
        let refused = self.held_back(identifier)?.texts.hash();
        self.change(identifier, |record| {
            record.held_back = None;
            record.refused = Some(refused);
        })
        .await
    }

    fn held_back(&self, identifier: &str) -> Result<HeldBack, ChangeError> {
        let held_back = self.record(identifier)?.held_back;
        held_back.ok_or_else(|| ChangeError::NothingHeldBack(identifier.into()))
    }

    /// Fetches a plugin's source again.
    pub async fn refresh(&self, identifier: &str) -> Result<View, ChangeError> {
        let result = self.look(identifier).await;
        if let Some(entry) = self.entries().get_mut(identifier) {
            entry.last_error = result.as_ref().err().map(ToString::to_string);
        }
        result?;
        self.show(identifier)
    }

    async fn look(&self, identifier: &str) -> Result<(), ChangeError> {
        let record = self.record(identifier)?;
        let source = record.base().ok_or_else(|| ChangeError::NoSource(identifier.into()))?;
        let allowed = record.allowed().map_err(ChangeError::Private)?;
        // An unchanged manifest does not mean that the document it names is unchanged.
        let names_document = record.texts.openapi.is_some() && !record.is_document;
        let validators =
            if names_document { Validators::default() } else { record.validators.clone() };
        let fetched = self.fetch(&source, &allowed, &validators, openapi::MAX_DOCUMENT).await?;
        let seen = match fetched {
            Some(fetched) => {
                let validators = fetched.validators.clone();
                let (texts, is_document) = self.collect(fetched, Some(&source), &allowed).await?;
                if is_document != record.is_document {
                    return Err(ChangeError::Invalid(
                        "its source now provides another kind of document".into(),
                    ));
                }
                Some((texts, validators))
            }
            None => None,
        };
        // Locked only now: a slow source must not block an operator's changes.
        let _one = self.changing.lock().await;
        let record = self.record(identifier)?;
        if record.base().as_ref() != Some(&source) {
            return Ok(());
        }
        self.seen(identifier, &record, seen).await
    }

    /// Applies or holds back the fetched version of the source.
    async fn seen(
        &self,
        identifier: &str,
        record: &Record,
        seen: Option<(Texts, Validators)>,
    ) -> Result<(), ChangeError> {
        let mut new = Record { fetched_ms: clock::now_ms(), ..record.clone() };
        if let Some((mut texts, validators)) = seen {
            new.validators = validators;
            if record.is_document {
                // The name under which it was added stays, even if the title has changed.
                texts.manifest.clone_from(&record.texts.manifest);
            }
            let now = Record { texts: texts.clone(), ..record.clone() }.plugin_queued().await?;
            if now.identifier() != identifier {
                let why =
                    format!("its source now provides the manifest of \"{}\"", now.identifier());
                return Err(ChangeError::Invalid(why));
            }
            let bytes = record.texts.bytes() + texts.bytes();
            let changes = offload::run_queued(bytes, || record.difference(&texts)).await;
            if self.options.accept_changes {
                new.texts = texts;
                new.held_back = None;
            } else if changes.is_empty() || record.refused.as_ref() == Some(&texts.hash()) {
                new.held_back = None;
            } else if record.held_back.as_ref().is_none_or(|held| held.texts != texts) {
                self.router.journal().audit(AuditEvent {
                    name: "plugin.held_back",
                    actor: "its source".into(),
                    subject: identifier.into(),
                    detail: "it has changed; the change must be accepted".into(),
                });
                let (at_ms, changes) = (clock::now_ms(), changes.into());
                new.held_back = Some(HeldBack { texts, at_ms, changes });
            }
        }
        let changed = new.texts != record.texts;
        record::store(&*self.records, identifier, &new).await?;
        if changed {
            let plugin = new.plugin_queued().await?;
            self.enter(new, plugin);
        } else if let Some(entry) = self.entries().get_mut(identifier) {
            entry.record = new;
        }
        Ok(())
    }
}
