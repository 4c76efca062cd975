use std::collections::BTreeMap;

use serde::Serialize;

/// Numbers by name, merged over trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Numbers(BTreeMap<&'static str, Number>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Number {
    Sum(u64),
    Most(u64),
    Mean(f64),
}

impl Numbers {
    /// Adds a count that is summed over the trials.
    pub fn sum(&mut self, name: &'static str, count: u64) {
        self.put(name, Number::Sum(count));
    }

    /// Adds a count of which the maximum is reported.
    pub fn most(&mut self, name: &'static str, count: u64) {
        self.put(name, Number::Most(count));
    }

    /// Adds a value of which the mean is reported.
    pub fn mean(&mut self, name: &'static str, value: f64) {
        self.put(name, Number::Mean(value));
    }

    fn put(&mut self, name: &'static str, number: Number) {
        let before = self.0.insert(name, number);
        assert!(before.is_none(), "two watchers count {name:?}");
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (name, more) in other.0 {
            let sum = match (self.0.get(name), more) {
                (Some(Number::Sum(one)), Number::Sum(other)) => Number::Sum(one + other),
                (Some(Number::Most(one)), Number::Most(other)) => Number::Most(other.max(*one)),
                (Some(Number::Mean(one)), Number::Mean(other)) => Number::Mean(one + other),
                (_, more) => more,
            };
            self.0.insert(name, sum);
        }
    }

    pub(crate) fn end(&mut self, trials: u32) {
        for number in self.0.values_mut() {
            if let Number::Mean(sum) = number {
                *sum /= f64::from(trials.max(1));
            }
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(Number::Sum(count) | Number::Most(count)) => *count,
            _ => 0,
        }
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        Some(match *self.0.get(name)? {
            Number::Sum(count) | Number::Most(count) => count as f64,
            Number::Mean(mean) => mean,
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

/// Declares counts with the names that they have in a report.
macro_rules! counts {
    ($vis:vis struct $type:ident { $($field:ident: $name:literal,)* }) => {
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $type {
            $(pub $field: u64,)*
        }

        impl $type {
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field)),*]
            }
        }
    };
}
pub(crate) use counts;
