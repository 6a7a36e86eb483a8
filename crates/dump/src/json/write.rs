//! Writes a JSON dump.

use std::io::Write;

use sluice_meta::{
    engine::LogLine,
    schema::{AclEntry, AclRule, Quota, QuotaKey},
};
use sluice_types::{Attr, FileType, Name, Slice};

use super::{
    COUNTERS, Head, KINDS, Node, Tree,
    escape::{escape, escape_plain},
};
use crate::DumpError;

/// Bytes that are collected before they are written.
const BUFFER: usize = 256 << 10;

/// Writes a head, then trees. Memory grows with the depth of the tree only.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    buffer: Vec<u8>,
    /// For each open directory whether it has an entry.
    open: Vec<bool>,
}

impl<W: Write> Writer<W> {
    /// A dump that goes to `out` and begins with `head`.
    pub fn new(out: W, head: &Head) -> Self {
        let mut writer = Self { out, buffer: Vec::with_capacity(2 * BUFFER), open: Vec::new() };
        writer.head(head);
        writer
    }

    /// Begins a tree with its root.
    pub fn begin(&mut self, tree: Tree, root: &Node) {
        self.text(",\n\"");
        self.text(tree.name());
        self.text("\":");
        self.node(root);
        self.text(",\"entries\":{");
        self.open.push(false);
    }

    /// A directory in the one that is open; it is open from now on.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn directory(&mut self, name: &Name, node: &Node) -> Result<(), DumpError> {
        self.name(name);
        self.node(node);
        self.text(",\"entries\":{");
        self.open.push(false);
        self.flush(BUFFER)
    }

    /// Something else in the directory that is open.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn file(&mut self, name: &Name, node: &Node) -> Result<(), DumpError> {
        self.name(name);
        self.node(node);
        self.text("}");
        self.flush(BUFFER)
    }

    /// Closes the directory, or the tree if it is its root.
    pub fn close(&mut self) {
        self.open.pop();
        self.text("}}");
    }

    /// Ends the dump and gives `out` back.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn finish(mut self) -> Result<W, DumpError> {
        self.text("\n}\n");
        self.flush(0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn head(&mut self, head: &Head) {
        self.text("{\n\"Setting\":");
        self.buffer.extend_from_slice(&head.setting);
        let counters = COUNTERS.map(|(counter, name)| {
            let value = head.counters.iter().find(|(known, _)| *known == counter);
            (name, value.map_or(0, |(_, value)| *value))
        });
        self.text(",\n\"Counters\":{");
        self.list(counters, |own, (name, value)| {
            own.text("\"");
            own.text(name);
            own.text("\":");
            own.number(value);
        });
        self.some("lastChangelog", head.last_logged);
        self.text("},\n\"Sustained\":[");
        let sessions = head.sustained.chunk_by(|a, b| a.0 == b.0);
        self.list(sessions, |own, files| {
            own.text("{\"sid\":");
            own.number(files[0].0);
            own.text(",\"inodes\":[");
            own.list(files, |own, (_, ino)| own.number(ino.0));
            own.text("]}");
        });
        self.text("],\n\"DelFiles\":[");
        self.list(&head.del_files, |own, (ino, length, expire)| {
            own.text("{\"inode\":");
            own.number(ino.0);
            own.member("length", *length);
            own.member("expire", *expire);
            own.text("}");
        });
        self.text("]");
        self.quotas(head);
        self.lines(&head.lines);
    }

    fn lines(&mut self, lines: &[LogLine]) {
        if lines.is_empty() {
            return;
        }
        self.text(",\n\"ChangeLog\":[");
        self.list(lines, |own, line| {
            own.text("{\"version\":");
            own.number(line.number);
            own.text(",\"entry\":");
            // Names in it are escaped already, in the way of the log.
            let entry = String::from_utf8_lossy(&line.text);
            own.text(&serde_json::Value::from(entry).to_string());
            own.text("}");
        });
        self.text("]");
    }

    fn quotas(&mut self, head: &Head) {
        self.quotas_of("Quotas", head, |key| if let QuotaKey::Dir(ino) = key { Some(ino.0) } else { None });
        self.quotas_of("UserQuotas", head, |key| {
            if let QuotaKey::User(uid) = key { Some(u64::from(uid)) } else { None }
        });
        self.quotas_of("GroupQuotas", head, |key| {
            if let QuotaKey::Group(gid) = key { Some(u64::from(gid)) } else { None }
        });
    }

    /// The quotas whose key has an `id`. Users and groups whose usage is only kept have no limit.
    fn quotas_of(&mut self, name: &str, head: &Head, id: impl Fn(QuotaKey) -> Option<u64>) {
        let limited = |quota: &Quota| quota.max_space >= 0 || quota.max_inodes >= 0;
        let wanted = head.quotas.iter().filter(|(_, quota)| limited(quota));
        self.text(",\n\"");
        self.text(name);
        self.text("\":{");
        self.list(wanted.filter_map(|(key, quota)| Some((id(*key)?, quota))), |own, (id, quota)| {
            own.text("\"");
            own.number(id);
            own.text("\":{\"maxSpace\":");
            own.number(quota.max_space);
            own.member("maxInodes", quota.max_inodes);
            own.text("}");
        });
        self.text("}");
    }

    fn name(&mut self, name: &Name) {
        let follows = self.open.last_mut().is_some_and(|entry| std::mem::replace(entry, true));
        self.text(if follows { ",\n" } else { "\n" });
        self.quoted(name);
        self.text(":");
    }

    /// The node without its end, which entries may follow.
    fn node(&mut self, node: &Node) {
        self.text("{\"attr\":{\"inode\":");
        self.number(node.ino.0);
        self.attr(&node.attr);
        self.text("}");
        if node.attr.kind == FileType::Symlink {
            self.text(",\"symlink\":");
            self.quoted(&node.symlink);
        }
        if !node.xattrs.is_empty() {
            self.text(",\"xattrs\":[");
            self.list(&node.xattrs, |own, (name, value)| {
                own.text("{\"name\":");
                own.xattr_name(name);
                own.text(",\"value\":");
                own.quoted(value);
                own.text("}");
            });
            self.text("]");
        }
        self.acl("posix_acl_access", node.access_acl.as_ref());
        self.acl("posix_acl_default", node.default_acl.as_ref());
        if !node.chunks.is_empty() {
            self.text(",\"chunks\":[");
            self.list(&node.chunks, |own, (index, slices)| own.chunk(*index, slices));
            self.text("]");
        }
    }

    fn attr(&mut self, attr: &Attr) {
        self.some("flags", attr.flags.0);
        self.text(",\"type\":\"");
        self.text(KINDS.iter().find(|(kind, _)| *kind == attr.kind).map_or("", |(_, name)| name));
        self.text("\"");
        self.member("mode", attr.mode);
        self.member("uid", attr.uid);
        self.member("gid", attr.gid);
        self.member("atime", attr.atime.sec);
        self.member("mtime", attr.mtime.sec);
        self.member("ctime", attr.ctime.sec);
        self.some("atimensec", attr.atime.nsec);
        self.some("mtimensec", attr.mtime.nsec);
        self.some("ctimensec", attr.ctime.nsec);
        self.member("nlink", attr.nlink);
        self.member("length", if attr.kind == FileType::File { attr.length } else { 0 });
        self.some("rdev", attr.rdev);
        self.some("tier", attr.tier);
    }

    fn chunk(&mut self, index: u32, slices: &[Slice]) {
        self.text("{\"index\":");
        self.number(index);
        self.text(",\"slices\":[");
        self.list(slices, |own, slice| {
            own.text("{\"id\":");
            own.number(slice.id);
            own.some("pos", slice.pos);
            own.member("size", slice.size);
            own.some("off", slice.off);
            own.member("len", slice.len);
            own.text("}");
        });
        self.text("]}");
    }

    fn acl(&mut self, name: &str, rule: Option<&AclRule>) {
        let Some(rule) = rule else { return };
        self.text(",\"");
        self.text(name);
        self.text("\":{\"owner\":");
        self.number(rule.owner);
        self.member("group", rule.group);
        self.member("other", rule.other);
        self.member("mask", rule.mask);
        for (name, entries) in [("users", &rule.users), ("groups", &rule.groups)] {
            self.text(",\"");
            self.text(name);
            self.text("\":[");
            self.list(entries, |own, AclEntry { id, perm }| {
                own.text("{\"id\":");
                own.number(*id);
                own.member("perm", *perm);
                own.text("}");
            });
            self.text("]");
        }
        self.text("}");
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.text(",");
            }
            write(self, item);
        }
    }

    /// A member that is left out at 0.
    fn some<N: itoa::Integer + Default + PartialEq>(&mut self, name: &str, number: N) {
        if number != N::default() {
            self.member(name, number);
        }
    }

    /// A member that is not the first.
    fn member(&mut self, name: &str, number: impl itoa::Integer) {
        self.text(",\"");
        self.text(name);
        self.text("\":");
        self.number(number);
    }

    fn number(&mut self, number: impl itoa::Integer) {
        self.text(itoa::Buffer::new().format(number));
    }

    /// JuiceFS knows no escape for this name. Where there must be one, a member of our own says so.
    fn xattr_name(&mut self, name: &[u8]) {
        let Ok(name) = std::str::from_utf8(name) else {
            self.quoted(name);
            self.text(",\"nameEscaped\":true");
            return;
        };
        self.text("\"");
        escape_plain(name, &mut self.buffer);
        self.text("\"");
    }

    fn quoted(&mut self, bytes: &[u8]) {
        self.text("\"");
        escape(bytes, &mut self.buffer);
        self.text("\"");
    }

    fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn flush(&mut self, above: usize) -> Result<(), DumpError> {
        if self.buffer.len() > above {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}
