//! Plots as SVG, written by hand: a few axes, lines and words. No plotting crate knows dash patterns, markers and log
//! axes together without fonts of the system, and the same data must give the same bytes.

mod axis;
mod svg;

pub use axis::{Axis, tidy};
pub use svg::escape;

use svg::{Anchor, Svg};

/// A row or a square of pictures under one legend.
#[derive(Debug)]
pub struct Plot {
    /// For those who cannot see it.
    pub title: String,
    /// The panels, from left to right and from top to bottom.
    pub panels: Vec<Panel>,
    /// What each style stands for.
    pub legend: Vec<(String, usize)>,
}

/// One diagram with its own axes.
#[derive(Debug)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves; the first is drawn first.
    pub lines: Vec<Line>,
    /// Published numbers: rings where the paper says the curves should be.
    pub rings: Vec<(f64, f64)>,
}

/// One curve in one picture.
#[derive(Debug)]
pub struct Line {
    /// Its style, counted from 1.
    pub style: usize,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
    /// How certain its points are: where, from which height to which.
    pub bars: Vec<(f64, f64, f64)>,
    /// Every nth point bears a marker.
    pub marker_every: usize,
}

/// A line that can be told from the others by colour, by dashes and by markers, each alone: on paper, in grey, and by
/// those who see colours differently (the colours are Okabe and Ito's).
struct Style {
    colour: &'static str,
    dashes: &'static str,
    marker: Marker,
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
    Style { colour: "#0072b2", dashes: "", marker: Marker::Disc },
    Style { colour: "#d55e00", dashes: "8 4", marker: Marker::Square },
    Style { colour: "#000000", dashes: "2 3", marker: Marker::Plus },
    Style { colour: "#009e73", dashes: "10 3 2 3", marker: Marker::Diamond },
    Style { colour: "#cc79a7", dashes: "5 2", marker: Marker::Up },
    Style { colour: "#e69f00", dashes: "14 4", marker: Marker::Down },
];

const LEGEND_ROW: f64 = 22.0;
const LEGEND_SAMPLE: f64 = 40.0;
const RING: f64 = 9.0;

/// Where things are in one panel, in pixels.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot {
    /// The whole plot as an SVG document.
    pub fn svg(&self) -> String {
        let columns = self.panels.len().min(2);
        let (width, height) = if columns == 1 { (720.0, 400.0) } else { (450.0, 330.0) };
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
            let frame = Frame { left: left + panel.margin(), right, top: top + 34.0, bottom: top + height - 56.0 };
            panel.draw(&mut svg, frame);
        }
        svg.end()
    }

    /// Labels with their style, or none for the ring of the published numbers.
    fn legend_items(&self) -> Vec<(&str, Option<usize>)> {
        let mut items: Vec<(&str, Option<usize>)> =
            self.legend.iter().map(|(label, style)| (label.as_str(), Some(*style))).collect();
        if self.panels.iter().any(|panel| !panel.rings.is_empty()) {
            items.push(("published", None));
        }
        items
    }

    /// Where each item of the legend goes: in rows that are never wider than the plot.
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
    /// How wide the numbers beside the vertical axis are.
    fn numbers(&self) -> f64 {
        self.y.ticks().iter().map(|(_, label)| svg::width(label, 12.0)).fold(0.0, f64::max)
    }

    /// The room that the vertical axis needs: its label, and its numbers.
    fn margin(&self) -> f64 {
        (self.numbers() + 32.0).max(66.0)
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
            svg.text((x, bottom + 19.0), &label, 12.0, Anchor::Middle, false);
        }
        for place in self.x.borders() {
            let x = left + place * (right - left);
            svg.line(&[(x, top), (x, bottom)], "#dddddd", 1.0, "");
        }
        svg.line(&[(left, top), (left, bottom), (right, bottom)], "#444444", 1.0, "");
        svg.text(((left + right) / 2.0, bottom + 42.0), self.x.label(), 13.0, Anchor::Middle, false);
        svg.upright((left - (self.numbers() + 16.0).max(48.0), (top + bottom) / 2.0), self.y.label(), 13.0);

        for (number, line) in self.lines.iter().enumerate() {
            let style = style(line.style);
            let shift = self.x.dodge(number, self.lines.len()) * (right - left);
            let points: Vec<(f64, f64)> = line
                .points
                .iter()
                .filter(|&&(x, y)| self.x.shows(x) && self.y.shows(y))
                .map(|&point| at(point))
                .map(|(x, y)| (x + shift, y))
                .collect();
            for &(x, low, high) in line.bars.iter().filter(|&&(x, low, high)| low < high && self.x.shows(x)) {
                // What reaches below a log axis, or below 0, ends where the axis does.
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
        for &ring in &self.rings {
            svg.circle(at(ring), RING, "#000000");
        }
    }
}

fn style(number: usize) -> &'static Style {
    &STYLES[(number.max(1) - 1) % STYLES.len()]
}

/// Markers are hollow: where curves meet, all of them can be seen.
fn marker(svg: &mut Svg, style: &Style, (x, y): (f64, f64)) {
    let colour = style.colour;
    match style.marker {
        Marker::Disc => svg.circle((x, y), 4.5, colour),
        Marker::Square => {
            svg.outline(&[(x - 4.0, y - 4.0), (x + 4.0, y - 4.0), (x + 4.0, y + 4.0), (x - 4.0, y + 4.0)], colour)
        }
        Marker::Plus => {
            svg.line(&[(x - 5.0, y), (x + 5.0, y)], colour, 2.0, "");
            svg.line(&[(x, y - 5.0), (x, y + 5.0)], colour, 2.0, "");
        }
        Marker::Diamond => svg.outline(&[(x, y - 7.0), (x + 7.0, y), (x, y + 7.0), (x - 7.0, y)], colour),
        Marker::Up => svg.outline(&[(x, y - 5.5), (x + 5.5, y + 4.0), (x - 5.5, y + 4.0)], colour),
        Marker::Down => svg.outline(&[(x, y + 5.5), (x + 5.5, y - 4.0), (x - 5.5, y - 4.0)], colour),
    }
}
