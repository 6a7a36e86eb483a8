//! Settings that only the Hadoop client of `JuiceFS` uses. Sluice stores them for it.
//!
//! What must stay true: a setting that is not given stays as it is.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use sluice_meta::schema::VolumeFormat;

use crate::version::raise;

/// Oldest clients that know Apache Ranger.
const RANGER_VERSION: &str = "1.3.0-A";
/// Oldest clients that know Kerberos.
const KERBEROS_VERSION: &str = "1.4.0-A";

/// What the Hadoop client checks permissions and users with.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "For the Hadoop client of JuiceFS, which alone follows them")]
pub(super) struct Hadoop {
    /// URL of Apache Ranger
    #[arg(long, value_name = "URL")]
    ranger_rest_url: Option<String>,
    /// Name of the volume's service in Apache Ranger
    #[arg(long, value_name = "NAME")]
    ranger_service: Option<String>,
    /// Configuration of Kerberos; its content is kept with the settings
    #[arg(long, value_name = "FILE")]
    kerberos_config_file: Option<PathBuf>,
}

impl Hadoop {
    /// Changes the settings into what the flags say.
    pub(super) fn apply(&self, format: &mut VolumeFormat) -> Result<()> {
        let ranger = [("RangerRestUrl", &self.ranger_rest_url), ("RangerService", &self.ranger_service)];
        for (member, value) in ranger {
            if let Some(value) = value {
                set(format, member, value);
                raise(&mut format.min_client_version, RANGER_VERSION)?;
            }
        }
        if let Some(path) = &self.kerberos_config_file {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            set(format, "KerbConf", &text);
            raise(&mut format.min_client_version, KERBEROS_VERSION)?;
        }
        Ok(())
    }
}

/// Members without a value are left out, as JuiceFS does.
fn set(format: &mut VolumeFormat, member: &str, value: &str) {
    if value.is_empty() {
        format.unknown.remove(member);
    } else {
        format.unknown.insert(member.into(), value.into());
    }
}
