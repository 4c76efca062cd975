//! What `bench --out` writes: one page, no script, nothing from the network; on a telephone, in the dark and on paper.
//!
//! A plot is a row for each case with its numbers on a log axis. Rows and not `reproduce`'s curves: a case has a name
//! and no place on an axis of its own, and a few to a thousand messages belong into one picture.

use std::fmt::Write;

use peerlock_bench::{Case, Recovery, Report, Target};
use peerlock_figures::Scale;
use peerlock_figures::plot::{Axis, escape, tidy};

const STYLE: &str = include_str!("page.css");
const INFALLIBLE: &str = "a string takes whatever is written";
/// More words than this on an axis would meet on a telephone.
const MOST_TICKS: usize = 6;

/// The whole page.
pub fn html(report: &Report, command: &str) -> String {
    let mut body = String::new();
    put(&mut body, format_args!("<h1>Hand-over, measured</h1>"));
    let Report { version, cores, .. } = report;
    put(
        &mut body,
        format_args!(
            "<p class=\"soft\">peerlock {version}, real processes on one machine with {cores} cores. One message costs {} µs there, {} µs after a rest.</p>",
            tidy(report.floor.p50_us),
            tidy(report.floor_after_rest.p50_us),
        ),
    );
    let (far, near): (Vec<&Case>, Vec<&Case>) = report.cases.iter().partition(|case| case.delay_ms > 0.0);
    handovers(&mut body, "Hand-over between processes", &near);
    if !far.is_empty() {
        handovers(&mut body, "Hand-over over a distance", &far);
        put(
            &mut body,
            format_args!(
                "<p class=\"soft\">A relay keeps back every message between two processes: of peers, of a server's \
                 nodes, and of a server and its clients. So a hand-over is as many delays as messages follow on one \
                 another.</p>"
            ),
        );
    }
    waits(&mut body, &report.cases);
    rates(&mut body, &near);
    targets(&mut body, &report.targets);
    numbers(&mut body, &report.cases);
    readings(&mut body, report, command);
    document("hand-over, measured", &body)
}

/// The page of `--recovery`: a table.
pub fn recovery(report: &Recovery, command: &str) -> String {
    let mut body = String::new();
    put(&mut body, format_args!("<h1>Recovery, measured</h1>"));
    put(
        &mut body,
        format_args!(
            "<p class=\"soft\">peerlock {}. From kill -9 of the holder to the next entry, in seconds, with the same \
             session or lease for all.</p>",
            report.version
        ),
    );
    let heads = ["lease", "times", "median", "shortest", "longest", "median − lease"];
    let heads: String = heads.iter().map(|name| format!("<th class=\"n\">{name}</th>")).collect();
    put(
        &mut body,
        format_args!("<div class=\"scroll\"><table><thead><tr><th>who</th>{heads}<th>what</th></tr></thead><tbody>"),
    );
    for row in &report.rows {
        let ((low, high), times) = (row.range(), row.seconds.len() as f64);
        let numbers = [row.lease_s, times, row.median_s, low, high, row.median_s - row.lease_s];
        let cells: String = numbers.iter().map(|value| format!("<td class=\"n\">{}</td>", tidy(*value))).collect();
        put(&mut body, format_args!("<tr><td>{}</td>{cells}<td>{}</td></tr>", escape(row.who), escape(row.what)));
    }
    put(&mut body, format_args!("</tbody></table></div>"));
    report.left_out.iter().for_each(|line| put(&mut body, format_args!("<p class=\"soft\">{}.</p>", escape(line))));
    source(&mut body, command);
    document("recovery, measured", &body)
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>peerlock: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// A row of a plot.
struct Row<'a> {
    case: &'a Case,
    /// Numbers on the axis; the first is the one that counts.
    marks: Vec<f64>,
    /// What stands beside it.
    text: String,
}

fn handovers(body: &mut String, title: &str, cases: &[&Case]) {
    let rows = cases.iter().map(|case| {
        // The median is so many messages; so a message is as long as that.
        let message = case.gap.p50_us / case.gap_in_messages;
        let marks = [case.gap.p50_us, case.gap.p99_us, case.gap.max_us].map(|gap| gap / message).to_vec();
        let text = match case.gap.count {
            0 => "none".to_owned(),
            _ => format!("{} messages", tidy(case.gap_in_messages)),
        };
        Row { case, marks, text }
    });
    let what = "from one client's leaving to the next one's entering, in messages: median (filled), 99th percentile, \
                longest";
    plot(body, title, what, &rows.collect::<Vec<_>>());
}

fn waits(body: &mut String, cases: &[Case]) {
    let rows = cases.iter().map(|case| Row {
        case,
        marks: vec![case.mean_wait_ms, case.wait.max_us / 1e3],
        text: format!("{} × the mean", tidy(case.longest_wait_over_mean)),
    });
    plot(body, "Waits", "from asking to entering, in ms: mean (filled) and longest", &rows.collect::<Vec<_>>());
}

fn rates(body: &mut String, cases: &[&Case]) {
    let rows = cases.iter().map(|case| Row {
        case,
        marks: vec![case.gaps_per_second, case.entries_per_second],
        text: format!("{} handed/s", tidy(case.gaps_per_second)),
    });
    let what = "in a second: hand-overs between processes (filled) and all entries";
    plot(body, "Rates", what, &rows.collect::<Vec<_>>());
}

/// A plot of these rows, those with the same setting together.
fn plot(body: &mut String, title: &str, what: &str, rows: &[Row<'_>]) {
    let values = rows.iter().flat_map(|row| row.marks.iter().copied());
    let axis = Axis::horizontal(title, Scale::Log, &[], values);
    let ticks = axis.ticks();
    // On a log axis every third is ten times as much.
    let ticks: Vec<_> = ticks.iter().step_by(if ticks.len() > MOST_TICKS { 3 } else { 1 }).collect();
    put(body, format_args!("<h2>{}</h2>\n<p class=\"soft\">{}</p>\n<div class=\"plot\">", escape(title), escape(what)));
    let mut settings: Vec<String> = Vec::new();
    for setting in rows.iter().map(|row| setting(row.case)) {
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    for setting in &settings {
        put(body, format_args!("<h3>{}</h3>", escape(setting)));
        for row in rows.iter().filter(|row| self::setting(row.case) == *setting) {
            let (who, text) = (escape(row.case.who), escape(&row.text));
            let track = track(&axis, &ticks, &row.marks);
            put(
                body,
                format_args!(
                    "<div class=\"row {who}\"><span class=\"name\">{who}</span><span class=\"track\">{track}</span>\
                     <span class=\"text\">{text}</span></div>"
                ),
            );
        }
    }
    let labels: String =
        ticks.iter().map(|(at, label)| format!("<span style=\"left:{:.1}%\">{label}</span>", at * 100.0)).collect();
    put(
        body,
        format_args!(
            "<div class=\"row axis\" aria-hidden=\"true\"><span></span><span class=\"track\">{labels}</span>\
             <span></span></div>\n</div>"
        ),
    );
}

/// The lines of the axis, a bar over all numbers, and a circle for each; the first is drawn last.
fn track(axis: &Axis, ticks: &[&(f64, String)], marks: &[f64]) -> String {
    let mut track = String::new();
    for (at, _) in ticks {
        write!(track, "<i style=\"left:{:.1}%\"></i>", at * 100.0).expect(INFALLIBLE);
    }
    let place = |value: &f64| axis.place(*value) * 100.0;
    let shown: Vec<&f64> = marks.iter().filter(|value| axis.shows(**value)).collect();
    if let (Some(low), Some(high)) = (shown.first(), shown.last()) {
        let (low, high) = (place(low), place(high));
        write!(track, "<s style=\"left:{low:.1}%;width:{:.1}%\"></s>", (high - low).max(0.0)).expect(INFALLIBLE);
    }
    for (number, value) in marks.iter().enumerate().rev().filter(|(_, value)| axis.shows(**value)) {
        let class = if number == 0 { " class=\"first\"" } else { "" };
        write!(track, "<b{class} style=\"left:{:.1}%\" title=\"{}\"></b>", place(value), tidy(*value))
            .expect(INFALLIBLE);
    }
    track
}

/// What a case is about, but for who hands over.
fn setting(case: &Case) -> String {
    let Case { clients, processes, slots, hold_ms, delay_ms, .. } = case;
    let inside = if *hold_ms > 0.0 { format!("{} ms inside", tidy(*hold_ms)) } else { "nothing to do inside".into() };
    let mut words = format!("{clients} clients in {processes} processes, {inside}");
    if *slots > 1 {
        write!(words, ", {slots} slots").expect(INFALLIBLE);
    }
    if *delay_ms > 0.0 {
        write!(words, ", {} ms apart", tidy(*delay_ms)).expect(INFALLIBLE);
    }
    words
}

fn targets(body: &mut String, targets: &[Target]) {
    let met = targets.iter().filter(|target| target.met).count();
    put(body, format_args!("<h2>What we want</h2>\n<p>{met} of {} were met in this run.</p>", targets.len()));
    put(
        body,
        format_args!(
            "<div class=\"scroll\"><table><thead><tr><th>verdict</th><th class=\"n\">measured</th><th class=\"n\">wanted\
             </th><th>what</th></tr></thead><tbody>"
        ),
    );
    for Target { what, measured, bound, met, at_least } in targets {
        let (class, way) = (if *met { "met" } else { "missed" }, if *at_least { "≥" } else { "≤" });
        let (measured, bound) = (tidy(*measured), tidy(*bound));
        put(
            body,
            format_args!(
                "<tr><td class=\"{class}\">{class}</td><td class=\"n\">{measured}</td><td class=\"n\">{way} {bound}</td>\
                 <td>{}</td></tr>",
                escape(what)
            ),
        );
    }
    put(body, format_args!("</tbody></table></div>"));
}

/// A column of the table: its name, and where its number comes from.
type Column = (&'static str, fn(&Case) -> f64);

fn numbers(body: &mut String, cases: &[Case]) {
    let columns: [Column; 10] = [
        ("gap p50, µs", |case| case.gap.p50_us),
        ("p99, µs", |case| case.gap.p99_us),
        ("max, µs", |case| case.gap.max_us),
        ("messages", |case| case.gap_in_messages),
        ("handed/s", |case| case.gaps_per_second),
        ("entries/s", |case| case.entries_per_second),
        ("mean wait, ms", |case| case.mean_wait_ms),
        ("longest × mean", |case| case.longest_wait_over_mean),
        ("entries", |case| case.entries as f64),
        ("out of order", |case| case.out_of_order as f64),
    ];
    let heads: String = columns.iter().map(|(name, _)| format!("<th class=\"n\">{name}</th>")).collect();
    put(
        body,
        format_args!(
            "<h2>All numbers</h2>\n<div class=\"scroll\"><table><thead><tr><th>who</th><th>case</th>{heads}</tr></thead><tbody>"
        ),
    );
    for case in cases {
        let cells: String =
            columns.iter().map(|(_, value)| format!("<td class=\"n\">{}</td>", tidy(value(case)))).collect();
        put(body, format_args!("<tr><td>{}</td><td>{}</td>{cells}</tr>", escape(case.who), escape(&setting(case))));
    }
    put(body, format_args!("</tbody></table></div>"));
}

fn readings(body: &mut String, report: &Report, command: &str) {
    put(
        body,
        format_args!(
            "<h2>How to read it</h2>\n<p>Clients ask, enter and leave all the time, and note when, by one clock for all \
             processes. A <em>message</em> is half a round trip of 128 bytes by TCP between two processes, measured \
             before every turn, through the relay where there is one. An entry is <em>out of order</em> if somebody who \
             got in after it had asked more than two messages earlier. Numbers of a machine that does something else \
             are worth little: look at ratios, within one run.</p>"
        ),
    );
    let mut others: Vec<&Case> = Vec::new();
    for case in report.cases.iter().filter(|case| case.who != "peerlock") {
        if others.iter().all(|other| other.who != case.who) {
            put(body, format_args!("<p class=\"soft\">{}: {}.</p>", escape(case.who), escape(case.what)));
            others.push(case);
        }
    }
    source(body, command);
}

/// Where the numbers are from.
fn source(body: &mut String, command: &str) {
    let commit = env!("PEERLOCK_COMMIT");
    put(
        body,
        format_args!(
            "<p class=\"soft\">Commit <code>{}</code>, <code>{}</code>. The numbers: <a href=\"bench.json\">bench.json\
             </a>.</p>",
            escape(commit),
            escape(command)
        ),
    );
}

fn put(body: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(body, "{line}").expect(INFALLIBLE);
}
