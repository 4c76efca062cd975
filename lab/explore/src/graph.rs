//! The graph of states found by a search. Of a state only the fingerprint is kept.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::iter::successors;

/// States numbered in the order of discovery, from 0, the start. They are expanded in the same order.
pub(crate) struct Graph {
    numbers: HashMap<u64, u32>,
    fingerprints: Vec<u64>,
    from: Vec<u32>,
    /// For each state, the index of its first entry in `steps`.
    first_step: Vec<usize>,
    steps: Vec<u32>,
}

impl Graph {
    pub(crate) fn new(start: u64) -> Self {
        let numbers = HashMap::from([(start, 0)]);
        Self { numbers, fingerprints: vec![start], from: vec![0], first_step: Vec::new(), steps: Vec::new() }
    }

    /// Moves to the next state, at which the following steps start.
    pub(crate) fn next(&mut self) -> u32 {
        self.first_step.push(self.steps.len());
        self.first_step.len() as u32 - 1
    }

    /// Adds a step, and returns whether its state is new.
    pub(crate) fn step_to(&mut self, fingerprint: u64) -> bool {
        let new = u32::try_from(self.states()).expect("four billion states would not have fit in memory");
        let entry = self.numbers.entry(fingerprint);
        let is_new = matches!(entry, Entry::Vacant(_));
        self.steps.push(*entry.or_insert(new));
        if is_new {
            self.fingerprints.push(fingerprint);
            self.from.push(self.first_step.len() as u32 - 1);
        }
        is_new
    }

    pub(crate) fn states(&self) -> usize {
        self.fingerprints.len()
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn fingerprint(&self, at: u32) -> u64 {
        self.fingerprints[at as usize]
    }

    pub(crate) fn path_to(&self, at: u32) -> Vec<u32> {
        let mut path: Vec<u32> = successors(Some(at), |&at| (at != 0).then(|| self.from[at as usize])).collect();
        path.reverse();
        path
    }

    fn steps_from(&self, at: u32) -> &[u32] {
        let end = self.first_step.get(at as usize + 1).copied().unwrap_or(self.steps.len());
        &self.steps[self.first_step[at as usize]..end]
    }

    /// Returns the states on a cycle; the first and the last are the same.
    pub(crate) fn cycle(&self) -> Option<Vec<u32>> {
        let start = self.state_on_cycle()?;
        let mut from = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front()
            && !from.contains_key(&start)
        {
            for &next in self.steps_from(at) {
                if let Entry::Vacant(entry) = from.entry(next) {
                    entry.insert(at);
                    queue.push_back(next);
                }
            }
        }
        let back = successors(Some(from[&start]), |at| (*at != start).then(|| from[at]));
        let mut cycle: Vec<u32> = [start].into_iter().chain(back).collect();
        cycle.reverse();
        Some(cycle)
    }

    pub(crate) fn leads_to(&self, goals: impl Iterator<Item = u32>) -> Vec<bool> {
        // Sorted by target: the steps to state i are at indices first[i] to first[i + 1].
        let mut first = vec![0; self.states() + 1];
        self.steps.iter().for_each(|&next| first[next as usize + 1] += 1);
        (1..first.len()).for_each(|at| first[at] += first[at - 1]);
        let (mut place, mut back) = (first.clone(), vec![0; self.steps()]);
        for at in 0..self.states() as u32 {
            for &next in self.steps_from(at) {
                back[place[next as usize]] = at;
                place[next as usize] += 1;
            }
        }
        let mut leads_there = vec![false; self.states()];
        let mut found: Vec<u32> = goals.collect();
        while let Some(at) = found.pop() {
            let at = at as usize;
            if !std::mem::replace(&mut leads_there[at], true) {
                found.extend(&back[first[at]..first[at + 1]]);
            }
        }
        leads_there
    }

    /// Repeatedly removes states without predecessors. The others are on a cycle or behind one, so a walk backwards
    /// through them ends in a cycle, of which it returns the state nearest to the start.
    fn state_on_cycle(&self) -> Option<u32> {
        let mut steps_to = vec![0_u32; self.states()];
        self.steps.iter().for_each(|&next| steps_to[next as usize] += 1);
        let numbers = 0..self.states() as u32;
        let mut free: Vec<u32> = numbers.clone().filter(|&at| steps_to[at as usize] == 0).collect();
        while let Some(at) = free.pop() {
            for &next in self.steps_from(at) {
                steps_to[next as usize] -= 1;
                if steps_to[next as usize] == 0 {
                    free.push(next);
                }
            }
        }
        let mut back = HashMap::new();
        for at in numbers.filter(|&at| steps_to[at as usize] > 0) {
            self.steps_from(at).iter().for_each(|&next| _ = back.entry(next).or_insert(at));
        }
        let first = *back.keys().min()?;
        let on_cycle = (0..back.len()).fold(first, |at, _| back[&at]);
        successors(Some(back[&on_cycle]), |at| (*at != on_cycle).then(|| back[at])).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(steps: &[&[u64]]) -> Graph {
        let mut graph = Graph::new(0);
        for steps in steps {
            graph.next();
            steps.iter().for_each(|&next| _ = graph.step_to(next));
        }
        graph
    }

    #[test]
    fn cycles_are_found_where_there_are_any() {
        type Case = (&'static str, &'static [&'static [u64]], Option<&'static [u32]>);
        let table: [Case; 6] = [
            ("nothing happens", &[&[]], None),
            ("paths that join again", &[&[1, 2], &[3], &[3], &[]], None),
            ("a short and a long path to one state", &[&[1, 2], &[2], &[3], &[]], None),
            ("a step to its own state", &[&[1], &[1]], Some(&[1, 1])),
            ("two states", &[&[1], &[2], &[1, 3], &[]], Some(&[1, 2, 1])),
            ("a cycle with a short cut", &[&[1], &[2, 3], &[3], &[1]], Some(&[1, 3, 1])),
        ];
        for (what, steps, cycle) in table {
            assert_eq!(graph(steps).cycle().as_deref(), cycle, "{what}");
        }
    }

    #[test]
    fn some_states_lead_to_a_goal() {
        let leads_to = |steps, goals: &[u32]| graph(steps).leads_to(goals.iter().copied());

        assert_eq!(leads_to(&[&[1, 2], &[3], &[4], &[], &[2]], &[3]), [true, true, false, true, false]);
        assert_eq!(leads_to(&[&[1], &[0, 2], &[]], &[0]), [true, true, false]);
        assert_eq!(leads_to(&[&[1], &[]], &[]), [false, false]);
    }

    #[test]
    fn path_to_state_is_shortest() {
        assert_eq!(graph(&[&[1, 2], &[3], &[4], &[4], &[]]).path_to(4), [0, 2, 4]);
    }
}
