//! The little of SVG that a plot needs.

use std::fmt::Write;

/// Where a text stands from its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that grows by one element at a time.
pub struct Svg(String);

impl Svg {
    /// An empty picture on white, so that it can be read on any page.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self(String::new());
        let title = escape(title);
        svg.push(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
             font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\">"
        ));
        svg.push(format_args!("<title>{title}</title>"));
        svg.push(format_args!(r##"<rect width="{width}" height="{height}" fill="#ffffff"/>"##));
        svg
    }

    /// The finished picture.
    pub fn end(mut self) -> String {
        self.push(format_args!("</svg>"));
        self.0
    }

    /// A line through all points.
    pub fn line(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashes: &str) {
        let dashes = if dashes.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dashes}""#) };
        let points = list(points);
        self.push(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\"{dashes}/>"
        ));
    }

    /// A closed line, around nothing or full of its colour.
    pub fn outline(&mut self, corners: &[(f64, f64)], colour: &str, is_full: bool) {
        let (corners, inside) = (list(corners), if is_full { colour } else { "none" });
        self.push(format_args!(
            "<polygon points=\"{corners}\" fill=\"{inside}\" stroke=\"{colour}\" stroke-width=\"1.8\" \
             stroke-linejoin=\"round\"/>"
        ));
    }

    /// A circle that is not filled.
    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.push(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="none" stroke="{colour}" stroke-width="1.8"/>"#
        ));
    }

    /// A circle that is filled.
    pub fn disc(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{colour}"/>"#));
    }

    /// A line of text, anchored at this point.
    pub fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, anchor: Anchor, bold: bool) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if bold { r#" font-weight="bold""# } else { "" };
        let text = escape(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" text-anchor="{anchor}"{weight}>{text}</text>"#
        ));
    }

    /// A text that is read from below, centred on its point.
    pub fn upright(&mut self, (x, y): (f64, f64), text: &str, size: f64) {
        let text = escape(text);
        self.push(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"{size}\" text-anchor=\"middle\">\
             {text}</text>"
        ));
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("a string takes whatever is written");
    }
}

fn list(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

/// About how wide a text is. Fonts differ; a little too much does no harm.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// A text in rows that are no wider than this, if its words are not.
pub fn wrapped(text: &str, size: f64, most: f64) -> Vec<&str> {
    let mut rows: Vec<&str> = Vec::new();
    let mut from = 0;
    let mut end = 0;
    for word in text.split(' ') {
        let until = end + word.len() + usize::from(end > 0);
        if end > from && width(&text[from..until], size) > most {
            rows.push(&text[from..end]);
            from = end + 1;
        }
        end = until;
    }
    rows.push(&text[from..end]);
    rows
}

/// Text in XML and HTML, also within quotes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_into_rows_and_are_never_cut() {
        assert_eq!(wrapped("one way", 10.0, 100.0), ["one way"]);
        assert_eq!(wrapped("restart after 5 s", 10.0, 50.0), ["restart", "after 5", "s"]);
        assert_eq!(wrapped("incomprehensibilities", 10.0, 50.0), ["incomprehensibilities"]);
        assert_eq!(wrapped("", 10.0, 50.0), [""]);
    }
}
