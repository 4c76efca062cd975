//! Which resources a leader has to look at in every tick, so that it need not look at all of them. Follows from the
//! rest of the state, and is not kept with it.

use std::collections::{BTreeMap, BTreeSet};

use super::Resource;
use crate::Label;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Those of which somebody has to be told something.
    pub(super) talked_of: BTreeSet<Label>,
    /// Those with detached grants, and how many each one has.
    pub(super) granted: BTreeMap<Label, usize>,
    /// How many that are.
    grants: usize,
}

impl Index {
    pub(super) fn of(resources: &BTreeMap<Label, Resource>) -> Self {
        let mut index = Self::default();
        resources.iter().for_each(|(name, resource)| index.note(name, resource));
        index
    }

    /// A resource is like this now.
    pub(super) fn note(&mut self, name: &Label, resource: &Resource) {
        set(&mut self.talked_of, name, resource.words().next().is_some());
        let (before, now) = (self.granted.get(name).copied().unwrap_or(0), resource.detached().len());
        self.grants = self.grants - before + now;
        match (before, now) {
            (_, 0) => _ = self.granted.remove(name),
            (before, now) if before == now => {}
            (_, now) => _ = self.granted.insert(name.clone(), now),
        }
    }

    /// How many grants are detached, of all resources.
    pub(super) fn grants(&self) -> usize {
        self.grants
    }
}

fn set(names: &mut BTreeSet<Label>, name: &Label, is_in: bool) {
    if !is_in {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}
