//! Open files.
//!
//! What must stay true: a file has no cursor here, so threads share it; the package keeps one for
//! each file object.

use std::{ops::Deref, sync::Arc};

use parking_lot::Mutex;
use pyo3::{buffer::PyBuffer, prelude::*, types::PyBytes};
use sluice_fs::File as Inner;

use crate::{
    buffer,
    error::{closed, of_path},
    ranges,
    stat::{StatFields, stat_fields},
};

/// An open file.
#[pyclass(frozen)]
pub(crate) struct File(Mutex<Option<Arc<Inner>>>);

impl File {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Mutex::new(Some(Arc::new(inner))))
    }

    fn inner(&self) -> PyResult<InUse> {
        let file = self.0.lock().clone();
        file.map(|file| InUse(Some(file))).ok_or_else(|| closed("file"))
    }
}

/// A file that a call uses. If another thread closed it meanwhile, this closes it, without the lock
/// of the interpreter.
struct InUse(Option<Arc<Inner>>);

impl Deref for InUse {
    type Target = Arc<Inner>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(last) = self.0.take().and_then(Arc::into_inner) {
            Python::attach(|py| py.detach(|| drop(last)));
        }
    }
}

#[pymethods]
impl File {
    /// Reads into a buffer; the number of bytes.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn readinto(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let file = self.inner()?;
        buffer::fill(py, &buffer, |bytes| file.read_at(bytes, offset))?.map_err(of_path)
    }

    /// Reads up to `size` bytes.
    fn read<'py>(&self, py: Python<'py>, size: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.inner()?;
        let length = py.detach(|| file.len()).map_err(of_path)?;
        let size = size.min(usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut count = 0;
        let bytes = PyBytes::new_with(py, size, |bytes| {
            count = py.detach(|| file.read_at(bytes, offset)).map_err(of_path)?;
            Ok(())
        })?;
        if count == size {
            return Ok(bytes);
        }
        // Somebody cut the file off meanwhile.
        Ok(PyBytes::new(py, &bytes.as_bytes()[..count]))
    }

    /// Reads several ranges (offset, length) at once.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, usize)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let file = self.inner()?;
        let read = py.detach(|| {
            ranges::each(ranges.len(), |at| {
                let (offset, length) = ranges[at];
                file.read_pieces(offset, length)
            })
        });
        read.into_iter().map(|pieces| joined(py, &pieces.map_err(of_path)?)).collect()
    }

    /// Writes all of a buffer.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn write(&self, py: Python<'_>, data: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let file = self.inner()?;
        buffer::take(py, &data, |bytes| file.write_at(bytes, offset).map(|()| bytes.len()))?.map_err(of_path)
    }

    /// Writes all of a buffer at the end of the file; where it lies.
    #[allow(clippy::needless_pass_by_value, reason = "as Python passes it")]
    fn append(&self, py: Python<'_>, data: PyBuffer<u8>) -> PyResult<u64> {
        let file = self.inner()?;
        buffer::take(py, &data, |bytes| file.append(bytes))?.map_err(of_path)
    }

    /// Stores what was written.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.inner()?;
        py.detach(|| file.flush()).map_err(of_path)
    }

    /// Stores what was written so that it survives a power cut.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.inner()?;
        py.detach(|| file.sync()).map_err(of_path)
    }

    /// Sets the length.
    fn truncate(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        let file = self.inner()?;
        py.detach(|| file.set_len(length)).map_err(of_path)
    }

    /// The length.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        let file = self.inner()?;
        py.detach(|| file.len()).map_err(of_path)
    }

    /// The attributes.
    fn stat(&self, py: Python<'_>) -> PyResult<StatFields> {
        let file = self.inner()?;
        py.detach(|| file.stat()).map(|stat| stat_fields(stat.ino.0, &stat.attr)).map_err(of_path)
    }

    /// Copies from another file by reference; the number of bytes.
    fn copy_from(
        &self,
        py: Python<'_>,
        offset: u64,
        source: &Self,
        source_offset: u64,
        length: u64,
    ) -> PyResult<u64> {
        let (file, source) = (self.inner()?, source.inner()?);
        py.detach(|| file.copy_from(offset, &source, source_offset, length)).map_err(of_path)
    }

    /// Stores what was written and closes the file.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.0.lock().take() else { return Ok(()) };
        py.detach(|| match Arc::try_unwrap(file) {
            Ok(file) => file.close(),
            // Another thread is in a call, and closes it when it comes back.
            Err(file) => file.flush(),
        })
        .map_err(of_path)
    }
}

/// Pieces as one object.
pub(crate) fn joined<'py>(
    py: Python<'py>,
    pieces: &[impl AsRef<[u8]> + Sync],
) -> PyResult<Bound<'py, PyBytes>> {
    let length = pieces.iter().map(|piece| piece.as_ref().len()).sum();
    PyBytes::new_with(py, length, |bytes| {
        py.detach(|| {
            let mut at = 0;
            for piece in pieces.iter().map(AsRef::as_ref) {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        });
        Ok(())
    })
}
