//! A minimal SVG writer.

use std::fmt::Write;

#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

pub struct Svg(String);

impl Svg {
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

    pub fn end(mut self) -> String {
        self.push(format_args!("</svg>"));
        self.0
    }

    pub fn line(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashes: &str) {
        let dashes = if dashes.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dashes}""#) };
        let points = list(points);
        self.push(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\"{dashes}/>"
        ));
    }

    pub fn outline(&mut self, corners: &[(f64, f64)], colour: &str, is_full: bool) {
        let (corners, inside) = (list(corners), if is_full { colour } else { "none" });
        self.push(format_args!(
            "<polygon points=\"{corners}\" fill=\"{inside}\" stroke=\"{colour}\" stroke-width=\"1.8\" \
             stroke-linejoin=\"round\"/>"
        ));
    }

    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.push(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="none" stroke="{colour}" stroke-width="1.8"/>"#
        ));
    }

    pub fn disc(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{colour}"/>"#));
    }

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

    pub fn upright(&mut self, (x, y): (f64, f64), text: &str, size: f64) {
        let text = escape(text);
        self.push(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"{size}\" text-anchor=\"middle\">\
             {text}</text>"
        ));
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("writing to a string cannot fail");
    }
}

fn list(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

/// Estimates the width of a text from above, since fonts differ.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// Wraps a text into rows no wider than `most`, except for single words.
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

/// Escapes text for XML and HTML, including attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_between_words() {
        assert_eq!(wrapped("one way", 10.0, 100.0), ["one way"]);
        assert_eq!(wrapped("restart after 5 s", 10.0, 50.0), ["restart", "after 5", "s"]);
        assert_eq!(wrapped("incomprehensibilities", 10.0, 50.0), ["incomprehensibilities"]);
        assert_eq!(wrapped("", 10.0, 50.0), [""]);
    }
}
