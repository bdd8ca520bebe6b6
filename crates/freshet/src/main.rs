//! The binary `freshet`: a node of the database, and everything that goes with it.
//!
//! | module | is |
//! |---|---|
//! | [`cli`], [`config`] | what a user may say, and what follows from it |
//! | [`protocol`] | the frames between clients and nodes |
//! | [`server`], [`client`] | the two ends of it |
//! | [`serve`], [`status`], [`promote`], [`inspect`] | the commands of that name |
//! | [`bench`] | measures the engine within this process, standbys beside it |
//! | [`demo`] | a cluster on one machine that loses its primary, and nothing else |
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod client;
mod config;
mod inspect;
mod pin;
mod process;
mod promote;
mod protocol;
mod serve;
mod server;
mod status;
mod units;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a command ended without success: one message, for people.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Many errors already quote their cause.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self(message)
    }
}

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(Failure(message)) => {
            eprintln!("freshet: {message}");
            ExitCode::FAILURE
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
