//! Axes and tick labels.

use crate::figure::Scale;

#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Linear { low: f64, high: f64, step: f64 },
    Log { low: f64, high: f64 },
    Category { names: Vec<String> },
}

impl Axis {
    /// Returns a horizontal axis over the range of its values.
    pub fn horizontal(label: &str, scale: Scale, names: &[String], values: impl Iterator<Item = f64>) -> Self {
        let kind = match scale {
            Scale::Category => Kind::Category { names: names.to_vec() },
            Scale::Linear => {
                let (low, high) = ends(values, |_| true);
                linear(low, high)
            }
            Scale::Log => {
                let (low, high) = ends(values, |value| value > 0.0);
                let air = (high / low).powf(0.03);
                Kind::Log { low: low / air, high: high * air }
            }
        };
        Self { label: label.into(), kind }
    }

    /// Returns a vertical axis: from 0, or on a log scale between round numbers.
    pub fn vertical(label: &str, scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let kind = match scale {
            Scale::Log => {
                let (low, high) = ends(values, |value| value > 0.0);
                let (low, high) = (round_below(low), round_above(high));
                Kind::Log { low, high: if high > low { high } else { low * 10.0 } }
            }
            Scale::Linear | Scale::Category => linear(0.0, ends(values, |_| true).1),
        };
        Self { label: label.into(), kind }
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn shows(&self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || !matches!(self.kind, Kind::Log { .. }))
    }

    pub fn categories(&self) -> usize {
        match &self.kind {
            Kind::Category { names } => names.len(),
            _ => 0,
        }
    }

    pub fn joins(&self) -> bool {
        !matches!(self.kind, Kind::Category { .. })
    }

    /// Returns the position of a value, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        match &self.kind {
            Kind::Linear { low, high, .. } => (value - low) / (high - low),
            Kind::Log { low, high } => (value / low).ln() / (high / low).ln(),
            Kind::Category { names } => (value + 0.5) / names.len().max(1) as f64,
        }
    }

    /// Returns the offset of a curve within a category, so that curves do not overlap.
    pub fn dodge(&self, number: usize, of: usize) -> f64 {
        match &self.kind {
            Kind::Category { names } => {
                let middle = (of.max(1) - 1) as f64 / 2.0;
                (number as f64 - middle) * 0.6 / (of.max(1) * names.len().max(1)) as f64
            }
            _ => 0.0,
        }
    }

    pub fn borders(&self) -> Vec<f64> {
        match &self.kind {
            Kind::Category { names } => (1..names.len()).map(|at| at as f64 / names.len() as f64).collect(),
            _ => Vec::new(),
        }
    }

    pub fn ticks(&self) -> Vec<(f64, String)> {
        match &self.kind {
            Kind::Category { names } => {
                names.iter().enumerate().map(|(at, name)| (self.place(at as f64), name.clone())).collect()
            }
            Kind::Linear { low, high, step } => {
                let count = ((high - low) / step).round() as usize;
                (0..=count).map(|at| low + step * at as f64).map(|value| (self.place(value), tidy(value))).collect()
            }
            Kind::Log { low, high } => {
                let decades = (high / low).log10();
                let within: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let last = high.log10().ceil() as i32;
                let apart = (decades / 10.0).ceil().max(1.0) as i32;
                let first = (low.log10() / f64::from(apart)).floor() as i32 * apart;
                (first..=last)
                    .step_by(apart as usize)
                    .flat_map(|power| within.iter().map(move |digit| digit * 10f64.powi(power)))
                    .filter(|value| (*low * 0.999..=*high * 1.001).contains(value))
                    .map(|value| (self.place(value), tidy(value)))
                    .collect()
            }
        }
    }
}

/// Formats a number with few digits and separated thousands.
pub fn tidy(value: f64) -> String {
    let size = value.abs();
    if size > 0.0 && size < 1e-4 {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        let power: String = power.chars().map(raised).collect();
        return if digits == "1" { format!("10{power}") } else { format!("{digits}·10{power}") };
    }
    let decimals = match size {
        _ if size == 0.0 || size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ => 2 - size.log10().floor() as i32,
    };
    let text = format!("{value:.*}", decimals.max(0) as usize);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if size < 10_000.0 {
        return text.into();
    }
    let mut separated = String::new();
    for (at, digit) in text.char_indices() {
        if at > 0 && (text.len() - at) % 3 == 0 && !separated.ends_with('-') {
            separated.push(',');
        }
        separated.push(digit);
    }
    separated
}

fn raised(sign: char) -> char {
    match sign {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        _ => char::from_u32('⁰' as u32 + sign.to_digit(10).unwrap_or(0)).unwrap_or(sign),
    }
}

fn ends(values: impl Iterator<Item = f64>, fits: impl Fn(f64) -> bool) -> (f64, f64) {
    let fitting = values.filter(|value| value.is_finite() && fits(*value));
    let ends = fitting.fold(None, |ends: Option<(f64, f64)>, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    });
    ends.unwrap_or((1.0, 1.0))
}

fn linear(low: f64, high: f64) -> Kind {
    let range = if high > low { high - low } else { high.abs().max(1.0) };
    let size = 10f64.powf((range / 5.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|times| times * size).into_iter().find(|step| range / step <= 6.0);
    let step = step.unwrap_or(10.0 * size);
    let low = (low / step + 1e-9).floor() * step;
    let high = ((low + range).max(high) / step - 1e-9).ceil() * step;
    Kind::Linear { low, high, step }
}

fn round_below(value: f64) -> f64 {
    let size = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|digit| digit * size).into_iter().find(|round| *round <= value * 1.000_001).unwrap_or(size)
}

fn round_above(value: f64) -> f64 {
    let size = 10f64.powf(value.log10().floor());
    let above = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * size).into_iter().find(|round| *round >= value * 0.999_999);
    above.unwrap_or(10.0 * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn numbers_are_formatted_for_readers() {
        for (value, text) in [
            (0.0, "0"),
            (1e-40, "10⁻⁴⁰"),
            (7.2995e-43, "7.3·10⁻⁴³"),
            (0.01, "0.01"),
            (0.01234, "0.0123"),
            (0.5, "0.5"),
            (1.0, "1"),
            (2.5, "2.5"),
            (7.999, "8"),
            (11.749, "11.75"),
            (354.667, "354.7"),
            (1000.0, "1000"),
            (2107.9, "2108"),
            (10_000.0, "10,000"),
            (-100_000.0, "-100,000"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(tidy(value), text, "{value}");
        }
    }

    #[test]
    fn linear_axis_has_round_steps_from_0_and_covers_all_values() {
        for (most, ticks) in [
            (355.7, "0 100 200 300 400"),
            (2258.0, "0 500 1000 1500 2000 2500"),
            (15.0, "0 2.5 5 7.5 10 12.5 15"),
            (8.01, "0 2 4 6 8 10"),
            (1.0, "0 0.2 0.4 0.6 0.8 1"),
            (0.0, "0 0.2 0.4 0.6 0.8 1"),
        ] {
            let axis = Axis::vertical("", Scale::Linear, [0.5 * most, most].into_iter());
            assert_eq!(labels(&axis).join(" "), ticks, "{most}");
            assert!((0.0..=1.0).contains(&axis.place(most)), "{most}");
        }
        let near = Axis::horizontal("", Scale::Linear, &[], [361.2, 370.6].into_iter());
        assert_eq!(labels(&near).join(" "), "360 362 364 366 368 370 372");
    }

    #[test]
    fn log_axis_has_round_ends_and_excludes_0() {
        let axis = Axis::vertical("", Scale::Log, [0.0, 8.1, 1753.0].into_iter());
        assert_eq!(labels(&axis).join(" "), "5 10 20 50 100 200 500 1000 2000");
        assert!(!axis.shows(0.0) && axis.shows(8.1) && !axis.shows(f64::NAN));
        assert_eq!((axis.place(5.0), axis.place(2000.0)), (0.0, 1.0));
        let wide = Axis::horizontal("", Scale::Log, &[], [100.0, 1e6].into_iter());
        assert_eq!(labels(&wide).join(" "), "100 1000 10,000 100,000 1,000,000");
    }

    #[test]
    fn categories_are_separate_and_curves_side_by_side() {
        let names = ["a".to_string(), "b".to_string()];
        let axis = Axis::horizontal("", Scale::Category, &names, [].into_iter());
        assert_eq!(axis.ticks(), [(0.25, "a".into()), (0.75, "b".into())]);
        assert_eq!(axis.borders(), [0.5]);
        assert_eq!(axis.dodge(0, 1), 0.0);
        assert!(axis.dodge(0, 3) > -0.25 && axis.dodge(1, 3) == 0.0 && axis.dodge(2, 3) == -axis.dodge(0, 3));
    }
}
