//! Verifies that a bearer token was signed by Google for us: a pure function over given keys and a
//! given time.
//!
//! Only signatures by a published key count, RS256 and ES256: `none` and algorithms with a shared
//! secret are refused, whatever the token declares.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// The tolerated clock difference, in seconds.
const LEEWAY: i64 = 60;
/// The issuer of Google's tokens, which has two spellings.
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// The claims that a token must have.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The accepted issuers: Google's two spellings by default.
    pub issuers: Vec<String>,
    /// The expected audience: that of the push subscription.
    pub audience: String,
    /// The expected account: the service account of the push subscription. Without it, every
    /// account of Google's could push, since an audience is no secret.
    pub email: String,
}

impl Expected {
    /// A token of Google's for this audience and this service account. Give each service an
    /// audience of its own, so that a token for one is refused by the others.
    pub fn of_google(audience: impl Into<String>, email: impl Into<String>) -> Self {
        let issuers = GOOGLE.map(str::to_owned).to_vec();
        Expected { issuers, audience: audience.into(), email: email.into() }
    }
}

/// Why a token is refused. The messages never quote the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadToken {
    /// It is missing.
    #[error("there is no bearer token")]
    Missing,
    /// It is not a JSON Web Token.
    #[error("the token is not a JSON Web Token")]
    Malformed,
    /// It is not signed by a key pair.
    #[error("the token is not signed by RS256 or ES256")]
    Unsigned,
    /// Its key is unknown; a newer key set may have it.
    #[error("the token is signed by an unknown key")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("the token's signature is wrong")]
    Forged,
    /// It is from another issuer.
    #[error("the token is from another issuer")]
    Issuer,
    /// It is for another audience.
    #[error("the token is for another audience")]
    Audience,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("the token is not valid yet")]
    Early,
    /// It belongs to another account.
    #[error("the token belongs to another account")]
    Account,
}

/// A published set of keys.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug, Clone, Deserialize)]
struct Key {
    #[serde(default)]
    kid: String,
    kty: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default)]
    iat: Option<i64>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    email_verified: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl KeySet {
    /// Reads a key set as issuers publish it (JWKS). Keys of other kinds are ignored.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Verifies the value of an `Authorization` header.
    pub fn judge(
        &self,
        authorization: Option<&str>,
        expected: &Expected,
        now: Timestamp,
    ) -> Result<(), BadToken> {
        let (scheme, token) =
            authorization.and_then(|header| header.split_once(' ')).ok_or(BadToken::Missing)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(BadToken::Missing);
        }
        let (signed, signature) = token.trim().rsplit_once('.').ok_or(BadToken::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(BadToken::Malformed)?;
        let header: Header = part(header)?;
        let signature = decode(signature)?;
        self.check_signature(&header, signed.as_bytes(), &signature)?;
        expected.check(&part(claims)?, now.as_second())
    }

    fn check_signature(
        &self,
        header: &Header,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), BadToken> {
        let kind = match header.alg.as_str() {
            "RS256" => "RSA",
            "ES256" => "EC",
            _ => return Err(BadToken::Unsigned),
        };
        let key = self.keys.iter().find(|key| key.kid == header.kid && key.kty == kind);
        let key = key.ok_or(BadToken::UnknownKey)?;
        let verified = match kind {
            "RSA" => RsaPublicKeyComponents { n: decode(&key.n)?, e: decode(&key.e)? }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                signed,
                signature,
            ),
            _ if key.crv == "P-256" => {
                // An uncompressed point, as SEC 1 writes it.
                let point = [vec![4], decode(&key.x)?, decode(&key.y)?].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            _ => return Err(BadToken::UnknownKey),
        };
        verified.map_err(|_| BadToken::Forged)
    }
}

impl Expected {
    fn check(&self, claims: &Claims, now: i64) -> Result<(), BadToken> {
        if !self.issuers.contains(&claims.iss) {
            return Err(BadToken::Issuer);
        }
        let meant = match &claims.aud {
            Audience::One(audience) => *audience == self.audience,
            Audience::Many(audiences) => audiences.contains(&self.audience),
        };
        if !meant {
            return Err(BadToken::Audience);
        }
        if now >= claims.exp.saturating_add(LEEWAY) {
            return Err(BadToken::Expired);
        }
        if [claims.nbf, claims.iat].into_iter().flatten().any(|from| from > now + LEEWAY) {
            return Err(BadToken::Early);
        }
        let ours = claims.email.as_ref() == Some(&self.email) && !self.email.is_empty();
        if ours && claims.email_verified { Ok(()) } else { Err(BadToken::Account) }
    }
}

fn part<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, BadToken> {
    serde_json::from_slice(&decode(text)?).map_err(|_| BadToken::Malformed)
}

fn decode(text: &str) -> Result<Vec<u8>, BadToken> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Malformed)
}

#[cfg(test)]
use ring::rand::SystemRandom;
#[cfg(test)]
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
#[cfg(test)]
use serde_json::{Value, json};

#[cfg(test)]
fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key pair of its own, for tests.
#[cfg(test)]
pub(crate) struct Signer {
    kid: String,
    pair: EcdsaKeyPair,
}

#[cfg(test)]
impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        Signer { kid: kid.into(), pair }
    }

    /// The set of this key alone.
    pub(crate) fn set(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kid": self.kid, "kty": "EC", "crv": "P-256", "alg": "ES256",
            "x": text(&point[1..33]), "y": text(&point[33..])})
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.kid}).to_string();
        let signed = format!("{}.{}", text(header.as_bytes()), text(claims.to_string().as_bytes()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("Bearer {signed}.{}", text(signature.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};

    use super::*;

    const NOW: i64 = 1_760_000_000;

    fn set(keys: &[Value]) -> KeySet {
        KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    fn claims() -> Value {
        json!({"iss": GOOGLE[0], "aud": "https://billing", "exp": NOW + 3600, "iat": NOW,
            "email": "push@p.iam.gserviceaccount.com", "email_verified": true})
    }

    fn with(name: &str, value: impl Into<Value>) -> Value {
        let mut claims = claims();
        claims[name] = value.into();
        claims
    }

    fn expected() -> Expected {
        Expected::of_google("https://billing", "push@p.iam.gserviceaccount.com")
    }

    #[test]
    fn a_token_is_taken_only_with_every_part_right() {
        let signer = Signer::new("k1");
        let keys = set(&[json!({"kty": "oct", "kid": "k1"}), signer.jwk()]);
        let now = Timestamp::from_second(NOW).unwrap();
        let judge = |token: &str| keys.judge(Some(token), &expected(), now);
        assert_eq!(judge(&signer.token(&claims())), Ok(()));
        assert_eq!(judge(&signer.token(&with("aud", json!(["x", "https://billing"])))), Ok(()));
        assert_eq!(judge(&signer.token(&with("exp", NOW - 59))), Ok(()), "clocks may differ");
        for (claims, refusal) in [
            (with("iss", "https://evil.example"), BadToken::Issuer),
            (with("aud", "https://other"), BadToken::Audience),
            (with("exp", NOW - 60), BadToken::Expired),
            (with("nbf", NOW + 61), BadToken::Early),
            (with("email", "me@p.iam.gserviceaccount.com"), BadToken::Account),
            (with("email_verified", false), BadToken::Account),
            (with("email", Value::Null), BadToken::Account),
            (with("email", ""), BadToken::Account),
        ] {
            assert_eq!(judge(&signer.token(&claims)), Err(refusal), "{claims}");
        }
        assert_eq!(keys.judge(None, &expected(), now), Err(BadToken::Missing));
        assert_eq!(judge("Basic x"), Err(BadToken::Missing));
        assert_eq!(judge("Bearer x.y"), Err(BadToken::Malformed));
        assert_eq!(judge("Bearer x.y.z"), Err(BadToken::Malformed));
    }

    #[test]
    fn without_an_account_nothing_is_taken() {
        let signer = Signer::new("k1");
        let keys = set(&[signer.jwk()]);
        let now = Timestamp::from_second(NOW).unwrap();
        let expected = Expected::of_google("https://billing", "");
        let token = signer.token(&with("email", ""));
        assert_eq!(keys.judge(Some(&token), &expected, now), Err(BadToken::Account));
    }

    #[test]
    fn what_is_unsigned_or_signed_by_another_is_refused() {
        let (ours, theirs) = (Signer::new("k1"), Signer::new("k1"));
        let keys = set(&[ours.jwk()]);
        let now = Timestamp::from_second(NOW).unwrap();
        let judge = |token: &str| keys.judge(Some(token), &expected(), now);
        assert_eq!(judge(&theirs.token(&claims())), Err(BadToken::Forged));
        assert_eq!(judge(&Signer::new("k2").token(&claims())), Err(BadToken::UnknownKey));
        let body = text(claims().to_string().as_bytes());
        for alg in ["none", "None", "HS256", ""] {
            let header = text(json!({"alg": alg, "kid": "k1"}).to_string().as_bytes());
            for signature in ["", &text(b"x")] {
                let token = format!("Bearer {header}.{body}.{signature}");
                assert_eq!(judge(&token), Err(BadToken::Unsigned), "{alg}");
            }
        }
        let good = ours.token(&claims());
        let other = text(with("aud", "https://other").to_string().as_bytes());
        let mut parts: Vec<&str> = good.split('.').collect();
        parts[1] = &other;
        assert_eq!(judge(&parts.join(".")), Err(BadToken::Forged));
    }

    #[test]
    fn google_signs_with_rsa() {
        let made = Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
            .args(["-outform", "DER"])
            .output()
            .expect("openssl makes the key");
        // Which of the two forms it writes depends on its version.
        let (plain, wrapped) = (RsaKeyPair::from_der, RsaKeyPair::from_pkcs8);
        let pair = plain(&made.stdout).or_else(|_| wrapped(&made.stdout)).unwrap();
        let public = pair.public();
        let parts = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(public);
        let (n, e) = (text(&parts.n), text(&parts.e));
        let jwk = json!({"kid": "r", "kty": "RSA", "n": n, "e": e});
        let header = text(br#"{"alg":"RS256","kid":"r"}"#);
        let signed = format!("{header}.{}", text(claims().to_string().as_bytes()));
        let mut signature = vec![0; public.modulus_len()];
        let random = SystemRandom::new();
        pair.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).unwrap();
        let now = Timestamp::from_second(NOW).unwrap();
        let token = format!("Bearer {signed}.{}", text(&signature));
        assert_eq!(set(std::slice::from_ref(&jwk)).judge(Some(&token), &expected(), now), Ok(()));
        signature[7] ^= 1;
        let token = format!("Bearer {signed}.{}", text(&signature));
        assert_eq!(set(&[jwk]).judge(Some(&token), &expected(), now), Err(BadToken::Forged));
    }
}
