//! What operations find out about the volume.

use std::sync::Arc;

use sluice_types::Ino;

use crate::schema::AclRule;

/// What an operation found out. It stays true whatever becomes of the commit.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// The rule of an ACL id.
    Acl(u32, Arc<AclRule>),
    /// The hour directory of the trash of that name.
    TrashHour(String, Ino),
    /// A directory, and the one that it lay in.
    Above(Ino, Ino),
}
