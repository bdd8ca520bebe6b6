//! Where etcd is, and how it is reached.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use ureq::{
    Agent,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem},
};

/// A connection that is not used is closed after this.
const IDLE: Duration = Duration::from_secs(10);

/// Where an etcd cluster is, and how this process proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdConfig {
    /// `http://host:port` or `https://host:port` of its members: one at least.
    pub endpoints: Vec<String>,
    /// How endpoints with `https` are reached.
    pub tls: Option<Tls>,
    /// Who this is, for an etcd that asks.
    pub login: Option<Login>,
}

/// Files in PEM, for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificates of those who may have signed the servers' certificates.
    pub authority: PathBuf,
    /// The certificate that this process shows, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An endpoint is none.
    #[error("{0:?} is no endpoint of etcd: write http://HOST:PORT or https://HOST:PORT")]
    Endpoint(String),
    /// An endpoint has no port: the protocol's own would be taken, which is not etcd's.
    #[error(
        "{0:?} names no port: etcd's is 2379, unless it was set otherwise; write http://HOST:PORT or https://HOST:PORT"
    )]
    NoPort(String),
    /// An endpoint has `https`, and nothing says whom to trust.
    #[error("{0} is reached by TLS: name the certificate of who has signed etcd's certificates")]
    NoAuthority(String),
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A file has nothing that can be used.
    #[error("{} has no {what} in PEM", .path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
    },
}

/// What the connection says.
pub fn reported(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "nothing came back in time".into(),
        ureq::Error::Io(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

fn pem(path: &PathBuf) -> Result<Vec<PemItem<'static>>, ConfigError> {
    let bytes = fs::read(path).map_err(|cause| ConfigError::File { path: path.clone(), cause })?;
    Ok(parse_pem(&bytes).filter_map(Result::ok).collect())
}

fn certificates(path: &PathBuf) -> Result<Vec<Certificate<'static>>, ConfigError> {
    let of = |item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None };
    let all: Vec<_> = pem(path)?.into_iter().filter_map(of).collect();
    if all.is_empty() { Err(ConfigError::Pem { path: path.clone(), what: "certificate" }) } else { Ok(all) }
}

fn key(path: &PathBuf) -> Result<PrivateKey<'static>, ConfigError> {
    let of = |item| if let PemItem::PrivateKey(key) = item { Some(key) } else { None };
    let key = pem(path)?.into_iter().find_map(of);
    key.ok_or_else(|| ConfigError::Pem { path: path.clone(), what: "private key" })
}

impl Tls {
    fn config(&self) -> Result<TlsConfig, ConfigError> {
        let own = self.own.as_ref().map(|(chain, private)| {
            Ok::<_, ConfigError>(ClientCert::new_with_certs(&certificates(chain)?, key(private)?))
        });
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&certificates(&self.authority)?))
            .client_cert(own.transpose()?);
        Ok(tls.build())
    }
}

impl EtcdConfig {
    /// What makes its connections.
    pub(crate) fn agent(&self) -> Result<Agent, ConfigError> {
        if self.endpoints.is_empty() {
            return Err(ConfigError::Endpoint(String::new()));
        }
        for endpoint in &self.endpoints {
            let secured = endpoint.starts_with("https://");
            let host = endpoint.strip_prefix(if secured { "https://" } else { "http://" });
            let host = host.map(|host| host.trim_end_matches('/'));
            let is_one = |host: &&str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
            let host = host.filter(is_one).ok_or_else(|| ConfigError::Endpoint(endpoint.clone()))?;
            // An address of IPv6 is between brackets, and has colons of its own.
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !port.contains(']') => (name, port),
                _ => return Err(ConfigError::NoPort(endpoint.clone())),
            };
            if name.is_empty() || port.parse::<u16>().is_err_and(|_| !port.is_empty()) || port.parse() == Ok(0) {
                return Err(ConfigError::Endpoint(endpoint.clone()));
            }
            if port.is_empty() {
                return Err(ConfigError::NoPort(endpoint.clone()));
            }
            if secured && self.tls.is_none() {
                return Err(ConfigError::NoAuthority(endpoint.clone()));
            }
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_idle_age(IDLE)
            .max_idle_connections_per_host(2);
        let config = match &self.tls {
            Some(tls) => config.tls_config(tls.config()?),
            None => config,
        };
        Ok(config.build().new_agent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Etcd;

    #[test]
    fn what_is_no_endpoint_is_refused() {
        let refused = |endpoint: &str| {
            let config = EtcdConfig { endpoints: vec![endpoint.into()], ..EtcdConfig::default() };
            Etcd::new(config).unwrap_err().to_string()
        };
        for endpoint in ["", "127.0.0.1:2379", "http://", "http://user@host:1", "ftp://host:1", "http://host:1/x"] {
            assert!(refused(endpoint).contains("is no endpoint"), "{endpoint}");
        }
        for endpoint in ["http://host:0", "http://host:65536", "http://host:etcd", "http://:2379"] {
            assert!(refused(endpoint).contains("is no endpoint"), "{endpoint}");
        }
        for endpoint in ["http://host", "http://host/", "http://host:", "https://10.0.0.7", "http://[::1]"] {
            assert!(refused(endpoint).contains("names no port: etcd's is 2379"), "{endpoint}");
        }
        let of_six = EtcdConfig { endpoints: vec!["http://[::1]:2379".into()], ..EtcdConfig::default() };
        Etcd::new(of_six).unwrap();
        assert!(refused("https://host:2379").contains("by TLS"));
        let plain = EtcdConfig { endpoints: vec!["http://host:2379/".into()], ..EtcdConfig::default() };
        Etcd::new(plain).unwrap();
        assert!(!format!("{:?}", Login { user: "u".into(), password: "secret".into() }).contains("secret"));
    }
}
