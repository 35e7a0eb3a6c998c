//! The operator's own token, in a file that only its owner can read.

use std::path::Path;

use anyhow::Context as _;
use sa_core::Role;
use sa_http::{Authenticate as _, Refused};
use sa_vault::bounded;
use tracing::{info, warn};

use crate::assemble::write_private;
use crate::tokens::{NewToken, Tokens};

/// Ensures that the operator's token file contains a valid token.
pub(crate) async fn ensure(tokens: &Tokens, file: &Path) -> anyhow::Result<()> {
    let operator = || NewToken::new("operator", Role::Operator);
    let written = bounded::text_of_file(file, bounded::TOKEN).map(|text| text.trim().to_owned());
    let first = tokens.is_new();
    let why = match written.as_deref().map(|token| (token, tokens.authenticate(token))) {
        Ok((_, Ok(identity))) if identity.principal.role == Role::Operator => return Ok(()),
        Ok((token, Err(Refused::Unknown)))
            if first && token.starts_with("sb_") && token.len() >= 43 =>
        {
            // The store is new but the token file exists. The token stays valid for scripts that
            // have read it.
            tokens.adopt(token, operator()).await?;
            info!(file = %file.display(), "the store has no tokens; the operator token was read from its file");
            return Ok(());
        }
        Ok((_, Ok(_))) => "the file held a token that is not an operator token".to_owned(),
        Ok((_, Err(Refused::Missing))) => "the file was empty".to_owned(),
        Ok((_, Err(Refused::Unknown))) => {
            // The file was edited or damaged. Its content must not become an operator token.
            "the file held no valid token of this gateway; it was changed or damaged".to_owned()
        }
        Ok((_, Err(refused))) => {
            format!("the token in the file is not valid: {}", refused.message())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "the file was missing".to_owned()
        }
        Err(error) => format!("the file could not be read: {error}"),
    };
    let before = tokens.for_operators();
    let (_, token) = tokens.create(operator()).await?;
    write_private(file, &token)
        .with_context(|| format!("cannot write the operator token to {}", file.display()))?;
    let file = file.display();
    if first {
        info!(%file, "wrote a new operator token");
    } else if before.is_empty() {
        warn!(%file, why, "wrote a new operator token");
    } else {
        // The earlier tokens are still valid. A leaked token must be revoked explicitly.
        let valid = before.join(", ");
        warn!(
            %file, why, valid,
            "wrote a new operator token; the earlier ones are still valid; to revoke one, run \
             `switchboard token revoke ID`"
        );
    }
    Ok(())
}
