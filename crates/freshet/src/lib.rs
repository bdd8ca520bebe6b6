//! The program `freshet`: a node of the database, and everything that goes with it. The binary only
//! calls [`main`]; tests with real processes use [`client`] and [`children`].
//!
//! | module | is |
//! |---|---|
//! | [`cli`], [`config`] | what a user may say, and what follows from it |
//! | [`protocol`] | the frames between clients and nodes |
//! | `server`, [`client`] | the two ends of it |
//! | [`sql_client`] | a client of the SQL server, for the demo, the laboratory and tests |
//! | [`verdict`], [`prints`] | how a node and its cluster are, and how commands print what came of them |
//! | [`wrong_port`] | which port it is that a command was pointed at |
//! | [`shell`], [`stop`], [`serve`], [`status`], [`members`], [`maintenance`], [`advise`], [`promote`], [`checkpoint`], [`inspect`], [`verify`] | the commands of that name |
//! | [`messages`] | the process's messages on standard error |
//! | [`children`] | nodes in processes of their own |
//! | [`demo`] | a cluster on one machine that loses its primary, and nothing else |
//! | `rehearse` | a cluster made from a backup that loses its primary again and again |
//! | [`throwaway`] | the nodes of both, and a network to cut |
#![forbid(unsafe_code)]

mod advise;
mod backup;
mod begin_again;
mod beside;
mod certificates;
mod checkpoint;
pub mod children;
mod cli;
pub mod client;
mod config;
mod contest;
mod demo;
mod descriptors;
mod disk;
mod ending;
mod http;
mod init;
mod inspect;
pub mod interruption;
mod level;
mod maintenance;
mod members;
mod membership;
mod memory;
pub mod messages;
mod notify;
pub mod pin;
mod prints;
pub mod process;
mod promote;
pub mod protocol;
mod rehearse;
mod reload;
mod restart;
pub mod serve;
mod server;
mod shell;
mod sql;
pub mod sql_client;
pub mod status;
mod stop;
mod switch_over;
pub mod throwaway;
pub mod units;
mod upgrade;
mod verdict;
pub mod verify;
pub mod witness;
mod wrong_port;

use std::process::ExitCode;

use clap::Parser;

/// Why a command ended without success: one message, for people.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1 }
    }

    /// The same, which ends the program with this exit status instead of 1.
    pub fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
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
        Self::new(message)
    }
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    end(cli::Cli::parse().run())
}

/// Ends a program: tells a failure, and waits until all messages are written.
pub fn end(result: Result<ExitCode, Failure>) -> ExitCode {
    match result {
        Ok(code) => {
            messages::flush();
            code
        }
        Err(Failure { message, status }) => {
            messages::last_word(&message);
            ExitCode::from(status)
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
