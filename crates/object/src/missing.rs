//! Storages of `JuiceFS` that have no driver, with the reason of each.
//!
//! What must stay true: the error for each of these storages says what to use instead.

use crate::{
    drivers::{Driver, names},
    store::ObjectError,
};

/// Storages of `JuiceFS` that have no driver here, and why.
const MISSING: &[(&str, &str)] = &[
    ("bunny", "it has an interface of its own that no library here speaks"),
    ("ceph", "it needs librados; Ceph's RADOS gateway speaks S3, so a pool behind it works as s3"),
    ("cifs", "mount the share, and use file"),
    ("dragonfly", "its daemon has an interface of its own; use the storage behind it"),
    ("etcd", "what each program keeps in a database looks different"),
    ("gluster", "it needs libgfapi; mount the volume, and use file"),
    ("hdfs", "it needs the Hadoop libraries and a Java VM"),
    ("ibmcos", "it logs in with API keys of IBM's; with HMAC keys the same bucket works as s3"),
    ("jfs", "a volume in a volume would need a client of JuiceFS"),
    ("mysql", "what each program keeps in a database looks different"),
    ("nfs", "mount the export, and use file"),
    ("postgres", "what each program keeps in a database looks different"),
    ("redis", "what each program keeps in a database looks different"),
    ("sftp", "mount the folder with sshfs, and use file"),
    ("smb", "mount the share, and use file"),
    ("sqlite3", "what each program keeps in a database looks different"),
    ("storj", "it needs Storj's own library; its gateway speaks S3, so a bucket behind it works as s3"),
    ("swift", "its login with a user and a key is missing; where Swift's S3 interface is on, use s3"),
    ("tikv", "what each program keeps in a database looks different"),
    ("ufile", "it has a signature of its own; its S3 endpoint works as s3"),
];

/// Why a storage that has no driver cannot be used.
pub(crate) fn unknown(storage: &str) -> ObjectError {
    let name = storage.to_ascii_lowercase();
    let why = match MISSING.iter().find(|(missing, _)| *missing == name) {
        Some((_, why)) => format!("this storage of JuiceFS cannot be used here: {why}"),
        None => format!("unknown storage: use one of {}", names().join(", ")),
    };
    ObjectError::Config { store: storage.to_owned(), reason: why }
}

/// Whether there is a driver of this name.
///
/// # Errors
/// There is none: what to use instead.
pub fn check(storage: &str) -> Result<(), ObjectError> {
    let own = matches!(storage.to_ascii_lowercase().as_str(), "file" | "mem" | "");
    if own || Driver::named(storage).is_some() { Ok(()) } else { Err(unknown(storage)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storages_without_a_driver_say_why() {
        for (name, why) in MISSING {
            assert!(Driver::named(name).is_none(), "{name} has a driver");
            let said = check(&name.to_uppercase()).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        assert!(check("nope").unwrap_err().to_string().contains("use one of b2, bos"));
        assert!(names().into_iter().all(|name| check(name).is_ok()));
    }
}
