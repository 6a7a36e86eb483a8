//! A volume as a user sees it: opening it, and the files in it.

use std::collections::HashMap;

use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use sluice_fs::{Fs, OpenOptions, User};
use sluice_open::VolumeOptions;

use crate::{
    error::{closed, of_open, of_path, plain},
    file::{File, joined},
    ranges,
};

/// A user: uid, gid, further groups, whether it is a superuser, and the umask.
type UserFields = (u32, u32, Vec<u32>, bool, u16);

/// A volume as a user sees it.
#[pyclass(frozen)]
pub(crate) struct Volume(Mutex<Option<Fs>>);

impl Volume {
    /// Runs a call without the lock of the interpreter.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Fs) -> sluice_fs::Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.0.lock().clone().ok_or_else(|| closed("volume"))?;
        // The last one who uses the volume closes it: without the lock, too.
        py.detach(move || call(&fs)).map_err(of_path)
    }
}

#[pymethods]
impl Volume {
    /// Opens a volume: `options` by name, `variables` of the environment that it may see.
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn new(
        py: Python<'_>,
        url: &str,
        options: Vec<(String, String)>,
        variables: HashMap<String, String>,
        user: UserFields,
    ) -> PyResult<Self> {
        let mut wanted = VolumeOptions::default();
        for (name, value) in &options {
            if !wanted.set(name, value).map_err(of_open)? {
                return Err(PyValueError::new_err(format!("there is no option {name}")));
            }
        }
        let (uid, gid, groups, superuser, umask) = user;
        let user = User { groups, superuser, ..User::new(uid, gid) }.with_umask(umask);
        let volume = py
            .detach(|| sluice_open::volume(url, &wanted, &|name| variables.get(name).cloned()))
            .map_err(of_open)?;
        Ok(Self(Mutex::new(Some(volume.fs(&user)))))
    }

    /// Another user's view of the volume.
    fn as_user(&self, user: UserFields) -> PyResult<Self> {
        let fs = self.0.lock().clone().ok_or_else(|| closed("volume"))?;
        let (uid, gid, groups, superuser, umask) = user;
        let user = User { groups, superuser, ..User::new(uid, gid) }.with_umask(umask);
        Ok(Self(Mutex::new(Some(fs.volume().fs(&user)))))
    }

    /// Name of the volume.
    fn name(&self) -> PyResult<String> {
        let fs = self.0.lock().clone().ok_or_else(|| closed("volume"))?;
        Ok(fs.volume().name())
    }

    /// Stores what was written to all files, and lets go of the volume. It is closed with the last
    /// of its files.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(fs) = self.0.lock().take() else { return Ok(()) };
        py.detach(|| {
            let stored = fs.volume().flush();
            drop(fs);
            stored
        })
        .map_err(plain)
    }

    /// Stores what was written to all files.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.0.lock().clone().ok_or_else(|| closed("volume"))?;
        py.detach(move || fs.volume().flush()).map_err(plain)
    }

    /// Opens a file. `flags` has letters: r, w, a(ppend), c(reate), x (create, or fail) and
    /// t(runcate).
    fn open(&self, py: Python<'_>, path: &[u8], flags: &str, mode: u16) -> PyResult<File> {
        let has = |flag| flags.contains(flag);
        let options = OpenOptions::new()
            .read(has('r'))
            .write(has('w'))
            .append(has('a'))
            .create(has('c'))
            .create_new(has('x'))
            .truncate(has('t'))
            .mode(mode);
        self.run(py, |fs| fs.open_with(path, options)).map(File::new)
    }

    /// Reads ranges of many files at once: path, begin and end, where a number below 0 counts from
    /// the end of the file. The results are the bytes, or the error.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn read_files<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<(Vec<u8>, Option<i64>, Option<i64>)>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let read = self.run(py, |fs| {
            Ok(ranges::each(wanted.len(), |at| {
                let (path, begin, end) = &wanted[at];
                let file = fs.open(path)?;
                let length = file.len()?;
                let begin = begin.map_or(0, |begin| place(begin, length));
                let end = end.map_or(length, |end| place(end, length));
                file.read_pieces(begin, end.saturating_sub(begin) as usize)
            }))
        })?;
        read.into_iter()
            .map(|pieces| match pieces {
                Ok(pieces) => joined(py, &pieces).map(Bound::<PyBytes>::into_any),
                Err(error) => Ok(of_path(error).into_value(py).into_bound(py).into_any()),
            })
            .collect()
    }

    /// Writes whole files at once: path and content. They are stored when it returns.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn write_files(&self, py: Python<'_>, files: Vec<(Vec<u8>, Bound<'_, PyBytes>)>) -> PyResult<()> {
        let files: Vec<(&[u8], &[u8])> =
            files.iter().map(|(path, content)| (path.as_slice(), content.as_bytes())).collect();
        self.run(py, |fs| {
            let written = ranges::each(files.len(), |at| {
                let (path, content) = files[at];
                let file = fs.create(path)?;
                file.write_at(content, 0)?;
                file.close()
            });
            written.into_iter().collect()
        })
    }
}

/// A place in a file of this length; below 0 it counts from the end.
fn place(at: i64, length: u64) -> u64 {
    let at = if at < 0 { length.saturating_sub(at.unsigned_abs()) } else { at.unsigned_abs() };
    at.min(length)
}
