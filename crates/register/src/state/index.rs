//! Which resources a leader has to look at in every tick, so that it need not look at all of them. Follows from the
//! rest of the state, and is not kept with it.

use std::collections::{BTreeMap, BTreeSet};

use super::Resource;
use crate::Label;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Those of which somebody has to be told something.
    pub(super) talked_of: BTreeSet<Label>,
    /// Those with detached grants.
    pub(super) granted: BTreeSet<Label>,
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
        set(&mut self.granted, name, !resource.detached().is_empty());
    }
}

fn set(names: &mut BTreeSet<Label>, name: &Label, is_in: bool) {
    if !is_in {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}
