//! The page of `bench --out`.

use peerlock_bench::{Case, Recovery, Report};
use peerlock_figures::plot::{escape, tidy};
use peerlock_figures::put;

use crate::html::{self, Row, document};

pub fn html(report: &Report, command: &str) -> String {
    let mut body = String::new();
    put!(&mut body, "<h1>Hand-over, measured</h1>");
    let Report { version, cores, .. } = report;
    put!(
        &mut body,
        "<p class=\"soft\">peerlock {version}, real processes on one machine with {cores} cores. A message takes \
             {} µs between processes on one core, and {} µs if it wakes another core.</p>",
        tidy(report.messages.one_core.p50_us),
        tidy(report.messages.two_cores.p50_us)
    );
    let (far, near): (Vec<&Case>, Vec<&Case>) = report.cases.iter().partition(|case| case.delay_ms > 0.0);
    handovers(&mut body, "Hand-over between processes", &near);
    if !far.is_empty() {
        handovers(&mut body, "Hand-over with delayed messages", &far);
        put!(
            &mut body,
            "<p class=\"soft\">A relay delays every message between processes: peers, server nodes, and clients. A \
                 hand-over takes as many delays as it has sequential messages.</p>"
        );
    }
    waits(&mut body, &report.cases);
    rates(&mut body, &near);
    numbers(&mut body, &report.cases);
    readings(&mut body, report, command);
    document("hand-over, measured", &body)
}

pub fn recovery(report: &Recovery, command: &str) -> String {
    let mut body = String::new();
    put!(&mut body, "<h1>Recovery, measured</h1>");
    put!(
        &mut body,
        "<p class=\"soft\">peerlock {}. Time from the kill of a holder to the next grant, in seconds, \
             with the same session length or lease for all.</p>",
        report.version
    );
    let heads = ["lease", "times", "median", "shortest", "longest", "median − lease"];
    let heads: String = heads.iter().map(|name| format!("<th class=\"n\">{name}</th>")).collect();
    put!(
        &mut body,
        "<div class=\"scroll\"><table><thead><tr><th>system</th>{heads}<th>method</th></tr></thead><tbody>"
    );
    for row in &report.rows {
        let ((low, high), times) = (row.range(), row.seconds.len() as f64);
        let numbers = [row.lease_s, times, row.median_s, low, high, row.median_s - row.lease_s];
        let cells: String = numbers.iter().map(|value| format!("<td class=\"n\">{}</td>", tidy(*value))).collect();
        put!(&mut body, "<tr><td>{}</td>{cells}<td>{}</td></tr>", escape(row.system), escape(row.what));
    }
    put!(&mut body, "</tbody></table></div>");
    report.left_out.iter().for_each(|line| put!(&mut body, "<p class=\"soft\">{}.</p>", escape(line)));
    html::source(&mut body, command, "bench.json");
    document("recovery, measured", &body)
}

fn row(case: &Case, marks: Vec<f64>, text: String) -> Row {
    Row { name: case.system.into(), class: case.system.into(), marks, text }
}

fn handovers(body: &mut String, title: &str, cases: &[&Case]) {
    let rows = cases.iter().map(|case| {
        let message = case.gap.p50_us / case.gap_in_messages;
        let marks = [case.gap.p50_us, case.gap.p99_us, case.gap.max_us].map(|gap| gap / message).to_vec();
        let text = match case.gap.count {
            0 => "none".to_owned(),
            _ => format!("{} messages", tidy(case.gap_in_messages)),
        };
        (*case, row(case, marks, text))
    });
    let what = "from a release to the next grant, in messages: median (filled), 99th percentile, longest";
    plot(body, title, what, rows);
}

fn waits(body: &mut String, cases: &[Case]) {
    let rows = cases.iter().map(|case| {
        let text = format!("{} × the mean", tidy(case.longest_wait_over_mean));
        (case, row(case, vec![case.mean_wait_ms, case.wait.max_us / 1e3], text))
    });
    plot(body, "Waits", "from request to grant, in ms: mean (filled) and longest", rows);
}

fn rates(body: &mut String, cases: &[&Case]) {
    let rows = cases.iter().map(|case| {
        let text = format!("{} hand-overs/s", tidy(case.gaps_per_second));
        (*case, row(case, vec![case.gaps_per_second, case.entries_per_second], text))
    });
    let what = "per second: hand-overs between processes (filled) and all entries";
    plot(body, "Rates", what, rows);
}

fn plot<'a>(body: &mut String, title: &str, what: &str, rows: impl Iterator<Item = (&'a Case, Row)>) {
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    for (case, row) in rows {
        let setting = setting(case);
        match groups.iter_mut().find(|(other, _)| *other == setting) {
            Some((_, together)) => together.push(row),
            None => groups.push((setting, vec![row])),
        }
    }
    html::plot(body, title, what, &groups);
}

fn setting(case: &Case) -> String {
    let Case { clients, processes, slots, hold_ms, delay_ms, .. } = case;
    let hold = if *hold_ms > 0.0 { format!("hold time {} ms", tidy(*hold_ms)) } else { "no hold time".into() };
    let mut words = format!("{clients} clients in {processes} processes, {hold}");
    if *slots > 1 {
        words += &format!(", {slots} slots");
    }
    if *delay_ms > 0.0 {
        words += &format!(", delay {} ms", tidy(*delay_ms));
    }
    words
}

type Column = (&'static str, fn(&Case) -> Option<f64>);

/// Returns a number that exists only if there were hand-overs.
fn of_gaps(case: &Case, number: f64) -> Option<f64> {
    (case.gap.count > 0).then_some(number)
}

fn numbers(body: &mut String, cases: &[Case]) {
    let columns: [Column; 10] = [
        ("gap p50, µs", |case| of_gaps(case, case.gap.p50_us)),
        ("p99, µs", |case| of_gaps(case, case.gap.p99_us)),
        ("max, µs", |case| of_gaps(case, case.gap.max_us)),
        ("messages", |case| of_gaps(case, case.gap_in_messages)),
        ("hand-overs/s", |case| Some(case.gaps_per_second)),
        ("entries/s", |case| Some(case.entries_per_second)),
        ("mean wait, ms", |case| Some(case.mean_wait_ms)),
        ("longest × mean", |case| Some(case.longest_wait_over_mean)),
        ("entries", |case| Some(case.entries as f64)),
        ("out of order", |case| Some(case.out_of_order as f64)),
    ];
    let heads: String = columns.iter().map(|(name, _)| format!("<th class=\"n\">{name}</th>")).collect();
    put!(
        body,
        "<h2>All numbers</h2>\n<div class=\"scroll\"><table><thead><tr><th>system</th>\
             <th>case</th>{heads}</tr></thead><tbody>"
    );
    for case in cases {
        let shown = |value: Option<f64>| value.map_or("none".to_owned(), tidy);
        let cells: String =
            columns.iter().map(|(_, value)| format!("<td class=\"n\">{}</td>", shown(value(case)))).collect();
        put!(body, "<tr><td>{}</td><td>{}</td>{cells}</tr>", escape(case.system), escape(&setting(case)));
    }
    put!(body, "</tbody></table></div>");
}

fn readings(body: &mut String, report: &Report, command: &str) {
    put!(
        body,
        "<h2>How to read it</h2>\n<p>Clients acquire and release without a pause, and record times by one clock \
             for all processes. A <em>message</em> is half a round trip of 128 bytes over TCP between two processes, \
             measured before every turn, through the relay if there is one. A grant is <em>out of order</em> if it \
             overtook a request that was made more than two messages earlier. Absolute numbers depend on other load of \
             the machine: compare ratios within one run.</p>"
    );
    let mut others: Vec<&Case> = Vec::new();
    for case in report.cases.iter().filter(|case| case.system != "peerlock") {
        if others.iter().all(|other| other.system != case.system) {
            put!(body, "<p class=\"soft\">{}: {}.</p>", escape(case.system), escape(case.what));
            others.push(case);
        }
    }
    html::source(body, command, "bench.json");
}
