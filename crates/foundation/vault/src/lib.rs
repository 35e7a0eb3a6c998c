//! Encryption of data before it is stored on disk: the settings of plugins and the logins at
//! upstream servers.

pub mod bounded;
pub mod secret_file;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use parking_lot::Mutex;

/// Named after the first kind of encrypted data. Stored data can only be opened with this context.
const CONTEXT: &str = "switchboard plugin settings v1";
const NONCE: usize = 24;
/// The minimum length of a key that a person has chosen.
const MIN_KEY: usize = 16;

/// Encrypts and decrypts with a key from the environment, or from a file that is created when it is
/// first needed.
pub struct Vault {
    file: PathBuf,
    cipher: Mutex<Option<XChaCha20Poly1305>>,
}

/// The encryption key from the environment.
#[derive(Clone)]
pub struct Key(String);

/// The reason why a text is not a valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "must have at least {MIN_KEY} characters; generate one with: `openssl rand -base64 32`"
    )]
    Short,
    /// Such characters would be lost if a person writes the key down again.
    #[error(
        "begins or ends with a space, or contains a line break or another control character; remove it"
    )]
    Unwritable,
}

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("the key file {file} cannot be used: {why}")]
    KeyFile { file: String, why: String },
    #[error("the stored data cannot be decrypted with this key")]
    Sealed,
}

impl Vault {
    /// `key` is the key from the environment, if it is set.
    pub fn new(file: PathBuf, key: Option<&Key>) -> Self {
        Self { file, cipher: Mutex::new(key.map(|Key(key)| cipher(key))) }
    }

    /// Encrypts `text` for this location. It cannot be decrypted for another one.
    pub fn seal(&self, place: &str, text: &str) -> Result<Vec<u8>, VaultError> {
        let nonce: [u8; NONCE] = rand::random();
        let payload = Payload { msg: text.as_bytes(), aad: place.as_bytes() };
        let sealed = self
            .cipher(true)?
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| VaultError::Sealed)?;
        Ok([&nonce[..], &sealed].concat())
    }

    pub fn open(&self, place: &str, sealed: &[u8]) -> Result<String, VaultError> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or(VaultError::Sealed)?;
        let payload = Payload { msg: sealed, aad: place.as_bytes() };
        let text = self
            .cipher(false)?
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| VaultError::Sealed)?;
        String::from_utf8(text).map_err(|_| VaultError::Sealed)
    }

    fn cipher(&self, make: bool) -> Result<XChaCha20Poly1305, VaultError> {
        let mut known = self.cipher.lock();
        if let Some(cipher) = &*known {
            return Ok(cipher.clone());
        }
        let failed =
            |why: String| VaultError::KeyFile { file: self.file.display().to_string(), why };
        let key = match bounded::text_of_file(&self.file, bounded::TOKEN) {
            Ok(key) if key.trim().len() >= MIN_KEY => key,
            Ok(_) => return Err(failed("it contains no key".into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && make => {
                write_key(&self.file).map_err(|error| failed(error.to_string()))?
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        Ok(known.insert(cipher(key.trim())).clone())
    }
}

impl Key {
    pub fn new(text: String) -> Result<Self, KeyError> {
        if text.trim() != text || text.contains(char::is_control) {
            return Err(KeyError::Unwritable);
        }
        if text.chars().count() < MIN_KEY { Err(KeyError::Short) } else { Ok(Self(text)) }
    }
}

fn cipher(key: &str) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&blake3::derive_key(CONTEXT, key.as_bytes()).into())
}

/// Creates a new key. The key is on disk before anything is encrypted with it.
fn write_key(file: &Path) -> std::io::Result<String> {
    let key = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
    let draft = file.with_extension("new");
    let _ = fs::remove_file(&draft);
    let mut open = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    open.write_all(key.as_bytes())?;
    open.sync_all()?;
    secret_file::mark_created(&open, &draft)?;
    fs::rename(&draft, file)?;
    if let Some(dir) = file.parent() {
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(key)
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_sealed_opens_in_its_place_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.key");
        let vault = Vault::new(file.clone(), None);
        assert!(matches!(vault.open("a", b"short"), Err(VaultError::Sealed)));
        assert!(!file.exists(), "reading makes no key");
        let sealed = vault.seal("a", "canary").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        assert_ne!(sealed, vault.seal("a", "canary").unwrap(), "never twice the same");
        let again = Vault::new(file, None);
        assert_eq!(again.open("a", &sealed).unwrap(), "canary");
        assert!(again.open("b", &sealed).is_err(), "another's");
        for at in [0, NONCE, sealed.len() - 1] {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert!(again.open("a", &bent).is_err());
        }
        let other = Key::new("another key of enough length".into()).unwrap();
        let other = Vault::new(dir.path().join("none"), Some(&other));
        assert!(other.open("a", &sealed).is_err());
    }

    #[test]
    fn a_key_is_long_enough_and_can_be_written_down() {
        let check = |text: &str, wrong: Option<KeyError>| {
            assert_eq!(Key::new(text.into()).err(), wrong, "{text:?}");
        };
        check("a key of some words", None);
        check("0123456789abcdef", None);
        check("0123456789abcde", Some(KeyError::Short));
        check("ääääääää", Some(KeyError::Short));
        check("0123456789abcdef\n", Some(KeyError::Unwritable));
        check(" 0123456789abcdef", Some(KeyError::Unwritable));
        check("01234567\r89abcdef", Some(KeyError::Unwritable));
    }

    proptest::proptest! {
        #[test]
        fn nothing_opens_but_what_was_sealed(
            text in ".{0,40}", place in ".{0,10}", noise in sa_hostile::noise(),
            at in proptest::prelude::any::<proptest::sample::Index>(), bit in 0_u8..8, cut in proptest::prelude::any::<proptest::sample::Index>(),
        ) {
            let vault = Vault::new("/nowhere".into(), Some(&Key("a key of enough length".into())));
            let sealed = vault.seal(&place, &text).unwrap();
            proptest::prop_assert_eq!(vault.open(&place, &sealed).unwrap(), text);
            let mut bent = sealed.clone();
            bent[at.index(sealed.len())] ^= 1 << bit;
            let cut = &sealed[..cut.index(sealed.len())];
            for wrong in [&noise[..], &bent, cut, &[&sealed[..], &noise[..], b"x"].concat()] {
                proptest::prop_assert!(matches!(vault.open(&place, wrong), Err(VaultError::Sealed)));
            }
            proptest::prop_assert!(vault.open(&format!("{place}x"), &sealed).is_err(), "the rule is broken");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn a_key_file_holds_a_key_or_is_refused(content in sa_hostile::noise()) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("settings.key");
            fs::write(&file, &content).unwrap();
            let vault = Vault::new(file.clone(), None);
            let is_key = std::str::from_utf8(&content).is_ok_and(|text| text.trim().len() >= MIN_KEY);
            match vault.seal("a", "text") {
                Ok(sealed) => proptest::prop_assert!(is_key && vault.open("a", &sealed).unwrap() == "text"),
                Err(error) => proptest::prop_assert!(!is_key && matches!(error, VaultError::KeyFile { .. }), "the rule is broken"),
            }
            proptest::prop_assert_eq!(fs::read(&file).unwrap(), content, "what is there is never written over");
        }
    }
}
