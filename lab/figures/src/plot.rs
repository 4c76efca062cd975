//! Plots as SVG: dash patterns, markers and log axes without system fonts, and the same bytes for the same data.

mod axis;
mod svg;

pub use axis::{Axis, tidy};
pub use svg::escape;

use svg::{Anchor, Svg};

#[derive(Debug)]
pub struct Plot {
    /// The text alternative.
    pub title: String,
    pub panels: Vec<Panel>,
    pub legend: Vec<(String, usize)>,
}

#[derive(Debug)]
pub struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Published numbers, drawn as rings.
    pub rings: Vec<(f64, f64)>,
}

#[derive(Debug)]
pub struct Series {
    pub style: usize,
    pub points: Vec<(f64, f64)>,
    /// Confidence intervals: place, lower end, upper end.
    pub bars: Vec<(f64, f64, f64)>,
    /// Draws a marker at every nth point.
    pub marker_every: usize,
}

/// A style that is distinguishable by colour (Okabe and Ito's palette), dashes or marker alone. Beyond six curves,
/// markers are filled.
#[derive(Clone, Copy)]
struct Style {
    colour: &'static str,
    dashes: &'static str,
    marker: Marker,
    is_full: bool,
}

#[derive(Clone, Copy)]
enum Marker {
    Disc,
    Square,
    Plus,
    Diamond,
    Up,
    Down,
}

const STYLES: [Style; 6] = [
    Style { colour: "#0072b2", dashes: "", marker: Marker::Disc, is_full: false },
    Style { colour: "#d55e00", dashes: "8 4", marker: Marker::Square, is_full: false },
    Style { colour: "#000000", dashes: "2 3", marker: Marker::Plus, is_full: false },
    Style { colour: "#009e73", dashes: "10 3 2 3", marker: Marker::Diamond, is_full: false },
    Style { colour: "#cc79a7", dashes: "5 2", marker: Marker::Up, is_full: false },
    Style { colour: "#e69f00", dashes: "14 4", marker: Marker::Down, is_full: false },
];

/// A panel with more categories has its own row.
const CATEGORIES: usize = 5;
const NAME_ROW: f64 = 14.0;
const LEGEND_ROW: f64 = 22.0;
const LEGEND_SAMPLE: f64 = 40.0;
const RING: f64 = 9.0;

#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot {
    pub fn svg(&self) -> String {
        let is_long = self.panels.iter().any(|panel| panel.x.categories() > CATEGORIES);
        let (columns, width, height) = match self.panels.len() {
            _ if is_long => (1, 900.0, 330.0),
            0 | 1 => (1, 720.0, 400.0),
            _ => (2, 450.0, 330.0),
        };
        let names = self.panels.iter().map(|panel| panel.rows(width - 18.0 - panel.margin()));
        let height = height + NAME_ROW * (names.max().unwrap_or(1) - 1) as f64;
        let legend = self.legend_places(width * columns as f64);
        let legend_height = legend.last().map_or(0.0, |(_, y)| y + LEGEND_ROW);
        let rows = self.panels.len().div_ceil(columns);
        let mut svg = Svg::new(width * columns as f64, legend_height + height * rows as f64, &self.title);

        for ((label, style), &(x, y)) in self.legend_items().iter().zip(&legend) {
            let middle = y + LEGEND_ROW / 2.0;
            match style {
                Some(style) => {
                    let style = self::style(*style);
                    svg.line(&[(x, middle), (x + LEGEND_SAMPLE - 8.0, middle)], style.colour, 2.0, style.dashes);
                    marker(&mut svg, style, (x + LEGEND_SAMPLE / 2.0 - 4.0, middle));
                }
                None => svg.circle((x + LEGEND_SAMPLE / 2.0, middle), RING, "#000000"),
            }
            svg.text((x + LEGEND_SAMPLE, middle + 4.5), label, 13.0, Anchor::Start, false);
        }
        for (number, panel) in self.panels.iter().enumerate() {
            let left = width * (number % columns) as f64;
            let top = legend_height + height * (number / columns) as f64;
            let right = left + width - 18.0;
            let left = left + panel.margin();
            let names = NAME_ROW * (panel.rows(right - left) - 1) as f64;
            let frame = Frame { left, right, top: top + 34.0, bottom: top + height - 56.0 - names };
            panel.draw(&mut svg, frame);
        }
        svg.end()
    }

    fn legend_items(&self) -> Vec<(&str, Option<usize>)> {
        let mut items: Vec<(&str, Option<usize>)> =
            self.legend.iter().map(|(label, style)| (label.as_str(), Some(*style))).collect();
        if self.panels.iter().any(|panel| !panel.rings.is_empty()) {
            items.push(("published", None));
        }
        items
    }

    fn legend_places(&self, width: f64) -> Vec<(f64, f64)> {
        let (mut x, mut y) = (66.0, 6.0);
        let mut places = Vec::new();
        for (label, _) in self.legend_items() {
            let wide = LEGEND_SAMPLE + svg::width(label, 13.0) + 22.0;
            if x + wide > width && x > 66.0 {
                (x, y) = (66.0, y + LEGEND_ROW);
            }
            places.push((x, y));
            x += wide;
        }
        places
    }
}

impl Panel {
    fn tick_width(&self) -> f64 {
        self.y.ticks().iter().map(|(_, label)| svg::width(label, 12.0)).fold(0.0, f64::max)
    }

    fn margin(&self) -> f64 {
        (self.tick_width() + 32.0).max(66.0)
    }

    fn wrapped<'a>(&self, label: &'a str, length: f64) -> Vec<&'a str> {
        match self.x.categories() {
            0 => vec![label],
            number => svg::wrapped(label, 12.0, length / number as f64 - 6.0),
        }
    }

    fn rows(&self, length: f64) -> usize {
        self.x.ticks().iter().map(|(_, label)| self.wrapped(label, length).len()).max().unwrap_or(1)
    }

    fn draw(&self, svg: &mut Svg, frame: Frame) {
        let Frame { left, right, top, bottom } = frame;
        let at =
            |(x, y): (f64, f64)| (left + self.x.place(x) * (right - left), bottom - self.y.place(y) * (bottom - top));
        svg.text((left, top - 12.0), &self.title, 14.0, Anchor::Start, true);
        for (place, label) in self.y.ticks() {
            let y = bottom - place * (bottom - top);
            svg.line(&[(left, y), (right, y)], "#dddddd", 1.0, "");
            svg.text((left - 7.0, y + 4.0), &label, 12.0, Anchor::End, false);
        }
        for (place, label) in self.x.ticks() {
            let x = left + place * (right - left);
            svg.line(&[(x, bottom), (x, bottom + 5.0)], "#444444", 1.0, "");
            for (row, words) in self.wrapped(&label, right - left).iter().enumerate() {
                svg.text((x, bottom + 19.0 + NAME_ROW * row as f64), words, 12.0, Anchor::Middle, false);
            }
        }
        for place in self.x.borders() {
            let x = left + place * (right - left);
            svg.line(&[(x, top), (x, bottom)], "#dddddd", 1.0, "");
        }
        svg.line(&[(left, top), (left, bottom), (right, bottom)], "#444444", 1.0, "");
        let below = bottom + 42.0 + NAME_ROW * (self.rows(right - left) - 1) as f64;
        svg.text(((left + right) / 2.0, below), self.x.label(), 13.0, Anchor::Middle, false);
        svg.upright((left - (self.tick_width() + 16.0).max(48.0), (top + bottom) / 2.0), self.y.label(), 13.0);

        for (number, line) in self.series.iter().enumerate() {
            let style = style(line.style);
            let shift = self.x.dodge(number, self.series.len()) * (right - left);
            let points: Vec<(f64, f64)> = line
                .points
                .iter()
                .filter(|&&(x, y)| self.x.shows(x) && self.y.shows(y))
                .map(|&point| at(point))
                .map(|(x, y)| (x + shift, y))
                .collect();
            for &(x, low, high) in line.bars.iter().filter(|&&(x, low, high)| low < high && self.x.shows(x)) {
                // Bars are clipped at the axis.
                let floor = if self.y.shows(low) { self.y.place(low).max(0.0) } else { 0.0 };
                let (x, top) = (at((x, high)).0 + shift, at((x, high)).1);
                let foot = bottom - floor * (bottom - frame.top);
                svg.line(&[(x, foot), (x, top)], style.colour, 1.0, "");
                for y in [foot, top] {
                    svg.line(&[(x - 3.0, y), (x + 3.0, y)], style.colour, 1.0, "");
                }
            }
            if self.x.joins() && !points.is_empty() {
                svg.line(&points, style.colour, 2.0, style.dashes);
            }
            for &point in points.iter().step_by(line.marker_every) {
                marker(svg, style, point);
            }
        }
        for &ring in self.rings.iter().filter(|&&(x, y)| self.x.shows(x) && self.y.shows(y)) {
            svg.circle(at(ring), RING, "#000000");
        }
    }
}

fn style(number: usize) -> Style {
    let number = number.max(1) - 1;
    Style { is_full: number / STYLES.len() % 2 == 1, ..STYLES[number % STYLES.len()] }
}

/// Draws a marker; hollow ones stay visible where they overlap.
fn marker(svg: &mut Svg, style: Style, (x, y): (f64, f64)) {
    let colour = style.colour;
    let mut shape = |corners: &[(f64, f64)]| svg.outline(corners, colour, style.is_full);
    match style.marker {
        Marker::Disc if style.is_full => svg.disc((x, y), 4.5, colour),
        Marker::Disc => svg.circle((x, y), 4.5, colour),
        Marker::Square => shape(&[(x - 4.0, y - 4.0), (x + 4.0, y - 4.0), (x + 4.0, y + 4.0), (x - 4.0, y + 4.0)]),
        Marker::Plus if style.is_full => {
            svg.line(&[(x - 4.0, y - 4.0), (x + 4.0, y + 4.0)], colour, 2.5, "");
            svg.line(&[(x - 4.0, y + 4.0), (x + 4.0, y - 4.0)], colour, 2.5, "");
        }
        Marker::Plus => {
            svg.line(&[(x - 5.0, y), (x + 5.0, y)], colour, 2.0, "");
            svg.line(&[(x, y - 5.0), (x, y + 5.0)], colour, 2.0, "");
        }
        Marker::Diamond => shape(&[(x, y - 7.0), (x + 7.0, y), (x, y + 7.0), (x - 7.0, y)]),
        Marker::Up => shape(&[(x, y - 5.5), (x + 5.5, y + 4.0), (x - 5.5, y + 4.0)]),
        Marker::Down => shape(&[(x, y + 5.5), (x + 5.5, y - 4.0), (x - 5.5, y - 4.0)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Scale;

    fn plot(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
        let panel = || Panel {
            title: "one of two".into(),
            x: Axis::horizontal("fault", Scale::Category, &names, [].into_iter()),
            y: Axis::vertical("share", Scale::Linear, [1.0].into_iter()),
            series: Vec::new(),
            rings: Vec::new(),
        };
        let legend = (1..=12).map(|style| (format!("curve {style}"), style)).collect();
        Plot { title: String::new(), panels: vec![panel(), panel()], legend }.svg()
    }

    #[test]
    fn category_names_wrap_only_if_needed() {
        let few = plot(&["halves", "one way"]);
        assert!(few.contains("viewBox=\"0 0 900 ") && few.contains(">one way</text>"), "two panels beside each other");
        let many = plot(&["loss 1 %", "a node crashes and restarts after 5 s", "c", "d", "e", "f", "g", "h"]);
        for row in ["loss 1 %", "a node crashes", "and restarts", "after 5 s"] {
            assert!(many.contains(&format!(">{row}</text>")), "{row}: {many}");
        }
    }

    #[test]
    fn ring_at_zero_is_left_out_of_a_log_axis() {
        let panel = |rings| Panel {
            title: String::new(),
            x: Axis::horizontal("load", Scale::Linear, &[], [0.0, 10.0].into_iter()),
            y: Axis::vertical("seconds", Scale::Log, [1.0, 100.0].into_iter()),
            series: Vec::new(),
            rings,
        };
        let plot = |rings| Plot { title: String::new(), panels: vec![panel(rings)], legend: Vec::new() }.svg();
        let all = plot(vec![(5.0, 0.0), (5.0, 10.0)]);
        assert!(!all.contains("inf") && !all.contains("NaN"), "{all}");
        assert_eq!(all, plot(vec![(5.0, 10.0)]));
    }

    #[test]
    fn twelve_curves_look_different() {
        let plot = plot(&["a"]);
        let sample = |number: usize| {
            let legend = plot.split(&format!(">curve {number}</text>")).next().unwrap_or_default();
            let own = legend.rsplit("</text>").next().unwrap_or_default();
            // Coordinates differ in any case, and are removed.
            own.lines()
                .map(|line| line.split(' ').filter(|word| !word.contains(['.', ','])))
                .fold(String::new(), |all, words| all + &words.collect::<Vec<_>>().join(" "))
        };
        for one in 1..=12 {
            for other in 1..one {
                assert_ne!(sample(one), sample(other), "{one} and {other}");
            }
        }
    }
}
