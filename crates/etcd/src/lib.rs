//! A client of etcd for one thing: to read a key, and to change it unless another client has.
//!
//! It speaks HTTP with JSON, as etcd's servers offer it beside gRPC (`/v3/kv/range`, `/v3/kv/txn`,
//! `/v3/auth/authenticate`), over blocking sockets. Each question is asked at one endpoint, once,
//! within a time that the caller gives; when that fails, the next question goes to the next
//! endpoint. All reads are linearizable: etcd answers them with the consent of most of its members.
//!
//! An answer that is lost says nothing: the change may have taken effect. Who asks again reads
//! first.

#![forbid(unsafe_code)]

mod reply;
mod settings;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use ureq::Agent;

pub use self::settings::{ConfigError, EtcdConfig, Login, Tls};

/// No answer is longer.
const LONGEST: u64 = 1 << 20;

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which etcd cluster says so, as it calls itself.
    pub cluster: u64,
    /// By which revision of that cluster the key was changed last; zero if it has no value.
    pub revision: u64,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// Nothing came back in time, or no connection. What was asked may have taken effect.
    #[error("etcd at {endpoint} does not answer: {why}")]
    Silent {
        /// Where.
        endpoint: String,
        /// What the connection says.
        why: String,
    },
    /// It answers with an error.
    #[error("etcd at {endpoint} refuses: {why}")]
    Refused {
        /// Where.
        endpoint: String,
        /// What it says.
        why: String,
    },
    /// What it says is not what etcd says.
    #[error("what answers at {endpoint} is not etcd's v3 JSON interface: {why}; check witness.etcd")]
    Malformed {
        /// Where.
        endpoint: String,
        /// What is wrong.
        why: String,
    },
}

/// A client.
#[derive(Debug)]
pub struct Etcd {
    agent: Agent,
    endpoints: Vec<String>,
    login: Option<Login>,
    /// The endpoint that is asked next, among these.
    next: AtomicUsize,
    /// What etcd has given for the login.
    token: Mutex<Option<String>>,
}

impl Etcd {
    /// A client, which has not connected yet.
    ///
    /// # Errors
    /// [`ConfigError`]: a file cannot be read or used, or an endpoint is none.
    pub fn new(config: EtcdConfig) -> Result<Self, ConfigError> {
        let agent = config.agent()?;
        let EtcdConfig { endpoints, login, .. } = config;
        let endpoints = endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_owned()).collect();
        Ok(Self { agent, endpoints, login, next: AtomicUsize::new(0), token: Mutex::default() })
    }

    /// Reads a key, linearizably. Blocks for `patience` at most.
    ///
    /// # Errors
    /// [`EtcdError`]
    pub fn read(&self, key: &str, patience: Duration) -> Result<Found, EtcdError> {
        let asked = json!({ "key": STANDARD.encode(key), "limit": "1" });
        self.ask("/v3/kv/range", &asked, patience, reply::found)
    }

    /// Gives a key this value if it was changed by `revision` last; zero: if it has none. Says
    /// whether it has it now. Blocks for `patience` at most.
    ///
    /// # Errors
    /// [`EtcdError`]: it may have the value, or get it later as long as the revision is still that.
    pub fn swap(&self, key: &str, revision: u64, value: &[u8], patience: Duration) -> Result<bool, EtcdError> {
        let key = STANDARD.encode(key);
        let is_last = json!({
            "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()
        });
        let put = json!({ "request_put": { "key": key, "value": STANDARD.encode(value) } });
        let asked = json!({ "compare": [is_last], "success": [put] });
        self.ask("/v3/kv/txn", &asked, patience, reply::succeeded)
    }

    /// Asks the present endpoint, and another one next time if that fails.
    fn ask<T>(
        &self,
        path: &str,
        asked: &Value,
        patience: Duration,
        read: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<T, EtcdError> {
        let (deadline, at) = (Instant::now() + patience, self.next.load(Ordering::Relaxed));
        let endpoint = &self.endpoints[at % self.endpoints.len()];
        let answer = self
            .ask_as_user(endpoint, path, asked, deadline)
            .and_then(|answer| read(&answer).map_err(|why| EtcdError::Malformed { endpoint: endpoint.clone(), why }));
        if answer.is_err() {
            // Of several threads that fail here, one moves on.
            let _ = self.next.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
        }
        answer
    }

    /// Logs in before, if that is to be and has not happened; and again if etcd has forgotten it.
    fn ask_as_user(&self, endpoint: &str, path: &str, asked: &Value, deadline: Instant) -> Result<Value, EtcdError> {
        let Some(login) = &self.login else { return self.post(endpoint, path, asked, None, deadline) };
        let known = self.token().clone();
        let is_known = known.is_some();
        let token = known.map_or_else(|| self.log_in(endpoint, login, deadline), Ok)?;
        match self.post(endpoint, path, asked, Some(&token), deadline) {
            // Which of its errors say that a token is over, differs from version to version.
            Err(EtcdError::Refused { .. }) if is_known => {
                let token = self.log_in(endpoint, login, deadline)?;
                self.post(endpoint, path, asked, Some(&token), deadline)
            }
            answer => answer,
        }
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.token.lock().expect("no code panics under this mutex")
    }

    fn log_in(&self, endpoint: &str, Login { user, password }: &Login, deadline: Instant) -> Result<String, EtcdError> {
        *self.token() = None;
        let asked = json!({ "name": user, "password": password });
        let answer = self.post(endpoint, "/v3/auth/authenticate", &asked, None, deadline)?;
        let malformed = |why| EtcdError::Malformed { endpoint: endpoint.to_owned(), why };
        let token = reply::token(&answer).map_err(malformed)?;
        *self.token() = Some(token.clone());
        Ok(token)
    }

    fn post(
        &self,
        endpoint: &str,
        path: &str,
        asked: &Value,
        token: Option<&str>,
        deadline: Instant,
    ) -> Result<Value, EtcdError> {
        let silent =
            |why: ureq::Error| EtcdError::Silent { endpoint: endpoint.to_owned(), why: settings::reported(&why) };
        let patience = deadline.saturating_duration_since(Instant::now());
        if patience.is_zero() {
            return Err(silent(ureq::Error::Timeout(ureq::Timeout::Global)));
        }
        let request = self.agent.post(format!("{endpoint}{path}")).content_type("application/json");
        let request = request.config().timeout_global(Some(patience)).build();
        let request = match token {
            Some(token) => request.header("authorization", token),
            None => request,
        };
        let mut answer = request.send(asked.to_string()).map_err(silent)?;
        let bytes = answer.body_mut().with_config().limit(LONGEST).read_to_vec().map_err(silent)?;
        let body = serde_json::from_slice(&bytes);
        if !answer.status().is_success() {
            let why = reply::error(answer.status().as_u16(), &body.unwrap_or_default());
            return Err(EtcdError::Refused { endpoint: endpoint.to_owned(), why });
        }
        body.map_err(|why| EtcdError::Malformed { endpoint: endpoint.to_owned(), why: why.to_string() })
    }
}
