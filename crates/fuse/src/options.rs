//! Mount options: what `-o` takes.
//!
//! What must stay true: an unknown option is an error; it is never ignored.

use rustix::mount::{MountAttrFlags, MountFlags};

/// How a mount point is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What `df` and `mount` show as the source.
    pub fsname: String,
    /// The type, after `fuse.`.
    pub subtype: String,
    /// Other users may enter.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Largest READ in bytes, if it shall be less than the largest WRITE.
    pub max_read: Option<u32>,
    /// Requests shall come through `io_uring`. If that is not possible, the log says why, and they
    /// come from `/dev/fuse`.
    pub io_uring: bool,
    flags: MountFlags,
}

/// An unknown option.
#[derive(Debug, thiserror::Error)]
#[error(
    "unknown mount option `{0}`; known are the general ones of mount(8) and allow_other, default_permissions, fsname=, subtype=, max_read=, io_uring"
)]
pub struct BadOption(String);

/// Options that are a flag of mount(2), and whether they set or clear it.
const FLAGS: [(&str, MountFlags, bool); 18] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
    ("strictatime", MountFlags::STRICTATIME, true),
];

impl MountOptions {
    /// Options for a source named `fsname`, of type `fuse.subtype`: the kernel checks permissions,
    /// setuid and devices have no effect, and no other user may enter.
    pub fn new(fsname: impl Into<String>, subtype: impl Into<String>) -> Self {
        Self {
            fsname: fsname.into(),
            subtype: subtype.into(),
            allow_other: false,
            default_permissions: true,
            max_read: None,
            io_uring: false,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
        }
    }

    /// Applies the options of `-o`, separated by commas. Later ones win.
    ///
    /// # Errors
    /// [`BadOption`] names the first that is not known.
    pub fn apply(&mut self, options: &str) -> Result<(), BadOption> {
        options.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<(), BadOption> {
        if let Some((_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == option) {
            self.flags.set(*flag, *on);
            return Ok(());
        }
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match (name, value) {
            ("allow_other", "") => self.allow_other = true,
            ("io_uring", "") => self.io_uring = true,
            ("default_permissions", "") => self.default_permissions = true,
            ("fsname", value) => value.clone_into(&mut self.fsname),
            ("subtype", value) => value.clone_into(&mut self.subtype),
            ("max_read", value) => {
                self.max_read = Some(value.parse().map_err(|_| BadOption(option.into()))?);
            }
            // Options for other tools in fstab lines, and options that always hold here.
            (
                "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "nofail" | "_netdev"
                | "nonempty" | "auto_unmount",
                "",
            ) => {}
            (name, _) if name.starts_with("x-") || name.starts_with("comment") => {}
            _ => return Err(BadOption(option.into())),
        }
        Ok(())
    }

    /// The flags that a list of options sets. Later ones win, and other options are ignored.
    pub(crate) fn flags_in(options: &str) -> MountFlags {
        let times = MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME;
        let mut flags = MountFlags::empty();
        for option in options.split(',') {
            if let Some((_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == option) {
                if *on && times.contains(*flag) {
                    flags.remove(times);
                }
                flags.set(*flag, *on);
            }
        }
        flags
    }

    /// Whether nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// Mounts read-only, or not.
    pub fn set_read_only(&mut self, on: bool) {
        self.flags.set(MountFlags::RDONLY, on);
    }

    pub(crate) fn flags(&self) -> MountFlags {
        self.flags
    }

    /// The flags of the file system, by their names for fsconfig(2).
    pub(crate) fn superblock_flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = self.flags;
        let known =
            [("ro", MountFlags::RDONLY), ("sync", MountFlags::SYNCHRONOUS), ("dirsync", MountFlags::DIRSYNC)];
        known.into_iter().filter(move |(_, flag)| flags.contains(*flag)).map(|(name, _)| name)
    }

    /// The flags of the mount, as fsmount(2) takes them.
    pub(crate) fn attributes(&self) -> MountAttrFlags {
        let known = [
            (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
            (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
            (MountFlags::STRICTATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        ];
        let set = known.into_iter().filter(|(flag, _)| self.flags.contains(*flag));
        let mut attributes = set.fold(MountAttrFlags::empty(), |all, (_, attribute)| all | attribute);
        // The kernel takes one kind of access times only; mount(2) lets the strict one win, too.
        if self.flags.contains(MountFlags::NOATIME) && !self.flags.contains(MountFlags::STRICTATIME) {
            attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME;
        }
        attributes
    }

    /// The data that mount(2) passes to the kernel's FUSE.
    pub(crate) fn kernel_data(&self, fd: i32, uid: u32, gid: u32) -> String {
        let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid}");
        for option in self.fuse_options() {
            data.push(',');
            data.push_str(&option);
        }
        data
    }

    /// What `fusermount3 -o` takes.
    pub(crate) fn fusermount_options(&self) -> String {
        let escape = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
        let mut all =
            vec![format!("fsname={}", escape(&self.fsname)), format!("subtype={}", escape(&self.subtype))];
        all.extend(self.fuse_options());
        let set = FLAGS.iter().filter(|(_, flag, on)| *on && self.flags.contains(*flag));
        // It knows no atime options beyond noatime, and sets nosuid and nodev itself.
        let known = set.filter(|(name, ..)| {
            matches!(*name, "ro" | "nosuid" | "nodev" | "noexec" | "sync" | "dirsync" | "noatime")
        });
        all.extend(known.map(|(name, ..)| (*name).to_owned()));
        all.join(",")
    }

    /// All options as text, to compare two mounts.
    pub fn text(&self) -> String {
        let set = FLAGS.iter().filter(|(_, flag, on)| *on && self.flags.contains(*flag));
        let named = [format!("fsname={}", self.fsname), format!("subtype={}", self.subtype)];
        let rings = self.io_uring.then(|| "io_uring".to_owned());
        let all = named.into_iter().chain(self.fuse_options()).chain(rings);
        let all = all.chain(set.map(|(name, ..)| (*name).to_owned()));
        all.collect::<Vec<_>>().join(",")
    }

    fn fuse_options(&self) -> impl Iterator<Item = String> {
        let allow_other = self.allow_other.then(|| "allow_other".to_owned());
        let permissions = self.default_permissions.then(|| "default_permissions".to_owned());
        let max_read = self.max_read.map(|bytes| format!("max_read={bytes}"));
        [allow_other, permissions, max_read].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags_and_data() {
        let mut options = MountOptions::new("a,b", "sluice");
        options
            .apply("ro,allow_other,suid,,noatime,max_read=4096,_netdev,x-systemd.automount")
            .expect("known");
        assert!(options.is_read_only());
        assert_eq!(options.flags(), MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOATIME);
        let data = options.kernel_data(7, 1, 2);
        assert_eq!(
            data,
            "fd=7,rootmode=40000,user_id=1,group_id=2,allow_other,default_permissions,max_read=4096"
        );
        let helper = options.fusermount_options();
        assert_eq!(
            helper,
            "fsname=a\\,b,subtype=sluice,allow_other,default_permissions,max_read=4096,ro,nodev,noatime"
        );
        let (read_only, no_atime) = (MountAttrFlags::MOUNT_ATTR_RDONLY, MountAttrFlags::MOUNT_ATTR_NOATIME);
        assert_eq!(options.attributes(), read_only | MountAttrFlags::MOUNT_ATTR_NODEV | no_atime);
        assert_eq!(options.superblock_flags().collect::<Vec<_>>(), ["ro"]);
        options.apply("io_uring").expect("known");
        assert!(options.io_uring && options.text().contains("io_uring"));
        assert_eq!(options.fusermount_options(), helper, "the kernel does not know it");
        options.apply("strictatime").expect("known");
        assert!(!options.attributes().contains(no_atime), "both would be refused");
        options.apply("rw").expect("known");
        assert!(!options.is_read_only());
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let mut options = MountOptions::new("a", "b");
        for bad in ["alow_other", "max_read=many", "allow_other=1"] {
            let error = options.apply(&format!("ro,{bad}")).expect_err("unknown");
            assert!(error.to_string().contains(bad), "{error}");
        }
    }
}
