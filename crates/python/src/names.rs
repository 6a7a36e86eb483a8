//! Calls that make, move, remove and list names, and those on whole trees.

use pyo3::{exceptions::PyValueError, prelude::*};
use sluice_fs::{Clone as CloneHow, RenameMode};

use crate::{
    stat::{StatFields, stat_fields},
    volume::Volume,
};

/// Name, type as in `st_mode`, and the attributes if they may be seen.
type Item = (Vec<u8>, u32, Option<StatFields>);

#[pymethods]
impl Volume {
    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u16) -> PyResult<()> {
        self.run(py, |fs| fs.mkdir(path, mode))
    }

    fn makedirs(&self, py: Python<'_>, path: &[u8], mode: u16) -> PyResult<()> {
        self.run(py, |fs| fs.mkdir_all(path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.rmdir(path))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.unlink(path))
    }

    fn remove_all(&self, py: Python<'_>, path: &[u8], skip_trash: bool) -> PyResult<()> {
        self.run(py, |fs| fs.remove_all(path, skip_trash))
    }

    /// Moves a name: 0 replaces, 1 does not, 2 swaps.
    fn rename(&self, py: Python<'_>, old: &[u8], new: &[u8], flags: u32) -> PyResult<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            1 => RenameMode::NoReplace,
            2 => RenameMode::Exchange,
            _ => return Err(PyValueError::new_err(format!("rename has no flags {flags}"))),
        };
        self.run(py, |fs| fs.rename(old, new, mode))
    }

    fn link(&self, py: Python<'_>, existing: &[u8], new: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.link(existing, new))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.run(py, |fs| fs.symlink(target, path))
    }

    fn readlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<u8>> {
        self.run(py, |fs| fs.readlink(path))
    }

    /// All names of a directory, with their attributes.
    fn listdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<Item>> {
        self.run(py, |fs| {
            let items = fs.list_all(path)?;
            let fields = |item: &sluice_fs::Item| item.attr.map(|attr| stat_fields(item.ino.0, &attr));
            Ok(items.iter().map(|item| (item.name.to_vec(), item.kind.mode_bits(), fields(item))).collect())
        })
    }

    /// Clones a tree without a copy of data; the inode of the clone.
    fn clone(&self, py: Python<'_>, from: &[u8], to: &[u8], preserve: bool) -> PyResult<u64> {
        self.run(py, |fs| fs.clone_tree(from, to, CloneHow { preserve })).map(|ino| ino.0)
    }

    /// Appends files to a file by reference, and removes them.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn concat(&self, py: Python<'_>, target: &[u8], sources: Vec<Vec<u8>>) -> PyResult<()> {
        self.run(py, |fs| fs.concat(target, &sources))
    }

    /// Length, size, files, directories, and the number of directories that were left out.
    fn summary(&self, py: Python<'_>, path: &[u8]) -> PyResult<(u64, u64, u64, u64, u64)> {
        let (total, denied) = self.run(py, |fs| fs.summary(path))?;
        Ok((total.length, total.size, total.files, total.dirs, denied.count))
    }
}
