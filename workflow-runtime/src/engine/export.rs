//! A run on its way out of a store, as one file.
//!
//! Owns the reading: verified, without the user's types, as far as the journal goes or not at all. What a file
//! is, is in `export`. It never writes to the store.

use std::future::IntoFuture;
use std::sync::Arc;

use super::{Engine, EngineError, Shared, handle};
use crate::export::JournalFile;
use crate::ids::RunId;
use crate::journal::Reader;
use crate::store::BoxFuture;

impl Engine {
    /// Exports a run's journal; await it. The run, which may be in any state, is left as it is.
    ///
    /// Of runs that continue each other it is the one that is named. Payloads leave as the store has them: what the
    /// engine's payload codec encrypted stays encrypted, unless the file is [asked for in clear](Export::opened). See
    /// [`JournalFile::redact_fields`] for what nobody else is to read. What is known to be secret (the
    /// digests of [secret keys](crate::Key::secret)) is taken out unless [asked for](Export::with_secrets).
    ///
    /// ```no_run
    /// # use workflow_runtime::{Engine, Result, RunId};
    /// # async fn example(engine: Engine, run: RunId) -> Result<()> {
    /// let file = engine.export(run).await?;
    /// file.redact_fields(["card"]).write("checkout.journal.json")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn export(&self, run: RunId) -> Export {
        Export {
            shared: self.shared().clone(),
            run,
            secrets: false,
            intact_part: false,
            opened: false,
        }
    }
}

/// A run about to be exported; see [`Engine::export`].
#[must_use = "nothing is exported until this is awaited"]
pub struct Export {
    shared: Arc<Shared>,
    run: RunId,
    secrets: bool,
    intact_part: bool,
    opened: bool,
}

impl Export {
    /// Leaves in what is known to be secret.
    pub fn with_secrets(mut self) -> Self {
        self.secrets = true;
        self
    }

    /// Of a damaged journal, exports the records before the damage; the file says so ([`JournalFile::cut`]).
    pub fn intact_part(mut self) -> Self {
        self.intact_part = true;
        self
    }

    /// Undoes what the engine's payload codec did: the file is in clear, whoever has it reads every value. Without a
    /// codec it is in clear anyway.
    pub fn opened(mut self) -> Self {
        self.opened = true;
        self
    }

    async fn read(self) -> Result<JournalFile, EngineError> {
        let (shared, run) = (&self.shared, self.run);
        handle::header(shared, run).await?;
        let kept = shared.store.journal(run).await?;
        let (mut records, mut cut) = (Vec::with_capacity(kept.frames.len()), None);
        for record in Reader::of(run, shared.services.audit_key.clone(), &kept) {
            match record {
                // A file has no gap: behind passes that were forgotten, records are numbered anew, as a fork's are.
                Ok(mut record) => {
                    record.seq = records.len() as u64;
                    records.push(record);
                }
                Err(error) if self.intact_part && !records.is_empty() => {
                    cut = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let last = records
            .len()
            .checked_sub(1)
            .and_then(|last| kept.frames.get(last));
        let link = last.and_then(|frame| frame.split_last_chunk::<32>());
        let source = link.map_or([0; 32], |(_, link)| *link);
        let refused = |problem| EngineError::Export { run, problem };
        let mut file = JournalFile::new(run, source, cut, records).map_err(refused)?;
        let codec = shared.services.payloads.codec();
        // An engine that lost its codec still knows what is encrypted.
        if codec.is_some() || file.has_encrypted() {
            file.mark_coded();
        }
        if self.opened {
            file = file.opened_by(codec).map_err(refused)?;
        }
        if !self.secrets {
            file.redact_secrets();
        }
        Ok(file)
    }
}

impl IntoFuture for Export {
    type Output = Result<JournalFile, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    ///
    /// If there is no such run, its journal does not verify, the store fails, or a payload does not open in a file that is
    /// asked for in clear.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}
