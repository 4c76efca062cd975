//! The pages of `live --out`.

use peerlock_figures::plot::{escape, tidy};
use peerlock_figures::put;
use peerlock_live::{Comparison, Costs, KillRow, Row, difference};

use crate::html::{self, document, source};

/// A larger difference is highlighted.
const APART: f64 = 0.1;

struct Number {
    name: &'static str,
    what: &'static str,
    of: fn(&Costs) -> Option<f64>,
}

const NUMBERS: [Number; 5] = [
    Number {
        name: "Messages per entry",
        what: "of all types; on overlays every hop",
        of: |costs| Some(costs.messages_per_entry),
    },
    Number { name: "Mean wait", what: "from request to grant, in seconds of the setting", of: |costs| costs.mean_wait },
    Number { name: "Long waits", what: "99th percentile, in seconds of the setting", of: |costs| costs.p99_wait },
    Number {
        name: "Throughput",
        what: "entries per second of the setting, until the last one",
        of: |costs| costs.throughput,
    },
    Number {
        name: "Load of the busiest peer",
        what: "messages that it receives, per entry of any peer",
        of: |costs| costs.busiest,
    },
];

impl Number {
    fn both(&self, both: &Comparison) -> Option<(f64, f64)> {
        (self.of)(&both.simulated).zip((self.of)(&both.real))
    }
}

pub fn comparison(rows: &[Row], processes: usize, command: &str) -> String {
    let mut body = String::new();
    put!(&mut body, "<h1>Simulated and real, side by side</h1>");
    put!(
        &mut body,
        "<p class=\"soft\">peerlock {}: the same settings in virtual time and on real peers, in {processes} \
             processes over TCP.</p>",
        env!("CARGO_PKG_VERSION")
    );
    readings(&mut body);
    for number in &NUMBERS {
        figure(&mut body, number, rows);
    }
    table(&mut body, rows);
    by_type(&mut body, rows);
    source(&mut body, command, "live.json");
    document("simulated and real", &body)
}

fn readings(body: &mut String) {
    put!(
        body,
        "<h2>How to read it</h2>\n<p>The full circle is the result of real peers, the empty one that of the \
             simulator; they overlap where both agree. Differences above 10 % are orange. Both have the setting's \
             latencies; real runs add the time of sockets and processor, which counts more at higher speeds. Closed \
             loops are simulated ten times and run once. Rounds on an overlay have the same requests in both, but each \
             process draws the releases itself.</p>"
    );
}

fn figure(body: &mut String, number: &Number, rows: &[Row]) {
    let mut groups: Vec<(String, Vec<html::Row>)> = Vec::new();
    for row in rows {
        let Some((simulated, real)) = number.both(&row.both) else { continue };
        let is_far = (real - simulated).abs() > APART * simulated;
        let drawn = html::Row {
            name: row.name.clone(),
            class: if is_far { "far" } else { "near" }.into(),
            marks: vec![real, simulated],
            text: difference(simulated, real),
        };
        let heading = format!("{}, speed {}", row.kind, row.speed);
        match groups.iter_mut().find(|(other, _)| *other == heading) {
            Some((_, together)) => together.push(drawn),
            None => groups.push((heading, vec![drawn])),
        }
    }
    html::plot(body, number.name, number.what, &groups);
}

fn table(body: &mut String, rows: &[Row]) {
    let heads: String =
        NUMBERS.iter().map(|number| format!("<th class=\"n\" colspan=\"3\">{}</th>", number.name)).collect();
    let below = "<th class=\"n\">simulated</th><th class=\"n\">real</th><th class=\"n\"></th>".repeat(NUMBERS.len());
    put!(
        body,
        "<h2>All numbers</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>\
             <th class=\"n\" colspan=\"3\">real</th>{heads}</tr><tr><th>protocol</th><th class=\"n\">entries</th>\
             <th class=\"n\">violations</th><th class=\"n\">never served</th>{below}</tr></thead><tbody>"
    );
    for Row { name, both, .. } in rows {
        let Costs { entries, violations, stuck, .. } = both.real;
        let counts: String = [entries, violations, stuck].map(|count| format!("<td class=\"n\">{count}</td>")).concat();
        let cells = NUMBERS.iter().map(|number| match number.both(both) {
            Some((simulated, real)) => cells(simulated, real),
            None => "<td class=\"n\">–</td>".repeat(3),
        });
        put!(body, "<tr><td>{}</td>{counts}{}</tr>", escape(name), cells.collect::<String>());
    }
    put!(body, "</tbody></table></div>");
}

fn cells(simulated: f64, real: f64) -> String {
    let cells = [tidy(simulated), tidy(real), difference(simulated, real)];
    cells.map(|cell| format!("<td class=\"n\">{cell}</td>")).concat()
}

/// Writes all compared numbers of each protocol, collapsed.
fn by_type(body: &mut String, rows: &[Row]) {
    put!(body, "<h2>By message type</h2>");
    for Row { name, command, both, .. } in rows {
        put!(
            body,
            "<details><summary>{}</summary>\n<p class=\"soft\"><code>{}</code></p>\n<div class=\"scroll\"><table>\
                 <thead><tr><th></th><th class=\"n\">simulated</th><th class=\"n\">real</th>\
                 <th class=\"n\">difference</th></tr></thead><tbody>",
            escape(name),
            escape(command)
        );
        for (name, simulated, real) in both.lines() {
            let class = if name.starts_with(' ') { " class=\"part\"" } else { "" };
            let name = escape(name.trim());
            put!(body, "<tr><td{class}>{name}</td>{}</tr>", cells(simulated, real));
        }
        put!(body, "</tbody></table></div></details>");
    }
}

pub fn kills(rows: &[KillRow], command: &str) -> String {
    let mut body = String::new();
    put!(&mut body, "<h1>Killed with SIGKILL</h1>");
    put!(
        &mut body,
        "<p class=\"soft\">peerlock {}: real peers, each in its own process, one of which is killed: entries \
             before and after the kill, and the time until the next one, in time of the setting.</p>\n\
             <div class=\"scroll\"><table><thead><tr><th>protocol</th><th>killed</th><th class=\"n\">before</th>\
             <th class=\"n\">after</th><th class=\"n\">violations</th><th class=\"n\">never served</th>\
             <th class=\"n\">next entry after</th></tr></thead><tbody>",
        env!("CARGO_PKG_VERSION")
    );
    for row in rows {
        let KillRow { name, target, before, after, violations, stuck, .. } = row;
        let goes_on = row.goes_on();
        let counts: String =
            [before, after, violations, stuck].map(|count| format!("<td class=\"n\">{count}</td>")).concat();
        put!(
            &mut body,
            "<tr><td>{}</td><td>{}</td>{counts}<td class=\"n\">{goes_on}</td></tr>",
            escape(name),
            escape(target)
        );
    }
    put!(&mut body, "</tbody></table></div>");
    source(&mut body, command, "live.json");
    document("killed", &body)
}
