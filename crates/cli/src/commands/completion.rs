//! `sluice completion`: prints the completion script of a shell.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

use crate::program::Program;

/// Print what a shell needs to complete command lines
#[derive(Args)]
#[command(after_help = "Examples:
  source <(sluice completion bash)
  sluice completion bash > /etc/bash_completion.d/sluice
  sluice completion zsh > /usr/local/share/zsh/site-functions/_sluice
  sluice completion fish > ~/.config/fish/completions/sluice.fish")]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(self, program: Program) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program(), "sluice", &mut script);
        out!("{}", String::from_utf8(script)?);
        Ok(ExitCode::SUCCESS)
    }
}
