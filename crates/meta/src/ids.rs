//! Ids of new nodes and slices.

use sluice_types::{FsResult, Ino};

use crate::{batch::Interrupt, id_pool::Allocates, meta::Meta, ops::allocate::Allocate, schema::Counter};

impl Allocates for Meta {
    fn allocate(&self, counter: Counter, count: u64, interrupt: &Interrupt) -> FsResult<u64> {
        self.run(Allocate { counter, count }, interrupt)
    }
}

impl Meta {
    /// A number for a new node.
    pub fn new_ino(&self, interrupt: &Interrupt) -> FsResult<Ino> {
        loop {
            let ino = Ino(self.inodes.next(self, interrupt)?);
            if ino > Ino::ROOT {
                return Ok(ino);
            }
        }
    }

    /// Numbers for so many new nodes.
    pub(crate) fn new_inos(&self, count: usize, interrupt: &Interrupt) -> FsResult<Vec<Ino>> {
        let ids = self.inodes.several(count, self, interrupt)?;
        let mut inos: Vec<Ino> = ids.into_iter().map(Ino).filter(|ino| *ino > Ino::ROOT).collect();
        while inos.len() < count {
            inos.push(self.new_ino(interrupt)?);
        }
        Ok(inos)
    }

    /// A number for a new slice.
    pub fn new_slice(&self, interrupt: &Interrupt) -> FsResult<u64> {
        loop {
            let id = self.slices.next(self, interrupt)?;
            if id > 0 {
                return Ok(id);
            }
        }
    }
}
