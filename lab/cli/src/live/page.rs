//! What `live --out` writes: both worlds beside each other, or what kills did.

use peerlock_figures::plot::{escape, tidy};
use peerlock_live::{Comparison, Costs, KillRow, Row, difference};

use crate::html::{self, document, put, source};

/// What differs by more than this is to be explained.
const APART: f64 = 0.1;

/// A number that both worlds have: what it is called, what it means, and where it comes from.
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
    Number { name: "Mean wait", what: "seconds of the setting, from asking to entering", of: |costs| costs.mean_wait },
    Number { name: "Long waits", what: "the 99th percentile, seconds of the setting", of: |costs| costs.p99_wait },
    Number {
        name: "Throughput",
        what: "entries in a second of the setting, until the last",
        of: |costs| costs.throughput,
    },
    Number {
        name: "Load of the busiest peer",
        what: "messages that it gets for each entry anywhere",
        of: |costs| costs.busiest,
    },
];

impl Number {
    fn both(&self, both: &Comparison) -> Option<(f64, f64)> {
        (self.of)(&both.simulated).zip((self.of)(&both.real))
    }
}

/// The page of protocols in both worlds.
pub fn comparison(rows: &[Row], processes: usize, command: &str) -> String {
    let mut body = String::new();
    put(&mut body, format_args!("<h1>Simulated and real, side by side</h1>"));
    put(
        &mut body,
        format_args!(
            "<p class=\"soft\">peerlock {}: the same settings in virtual time and by real peers, in {processes} \
             processes over TCP.</p>",
            env!("CARGO_PKG_VERSION")
        ),
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
    put(
        body,
        format_args!(
            "<h2>How to read it</h2>\n<p>The full circle is what real peers did, the empty one what the simulator \
             says; where only one is seen they agree. Orange is what differs by more than 10 %. Latencies are the \
             setting's in both worlds, and what sockets and processor take comes on top in one of them: the faster a \
             setting is played, the more it weighs. A closed loop among peers or with replicas is simulated ten times \
             and played once; rounds on an overlay are the same rounds in both worlds, but processes draw each for \
             themselves who leaves when.</p>"
        ),
    );
}

/// A row for each protocol, those of a kind together.
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
        let heading = format!("{}, {} times as fast", row.kind, row.speed);
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
    put(
        body,
        format_args!(
            "<h2>All numbers</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>\
             <th class=\"n\" colspan=\"3\">real</th>{heads}</tr><tr><th>protocol</th><th class=\"n\">entries</th>\
             <th class=\"n\">violations</th><th class=\"n\">never served</th>{below}</tr></thead><tbody>"
        ),
    );
    for Row { name, both, .. } in rows {
        let Costs { entries, violations, stuck, .. } = both.real;
        let counts: String = [entries, violations, stuck].map(|count| format!("<td class=\"n\">{count}</td>")).concat();
        let cells = NUMBERS.iter().map(|number| match number.both(both) {
            Some((simulated, real)) => cells(simulated, real),
            None => "<td class=\"n\">–</td>".repeat(3),
        });
        put(body, format_args!("<tr><td>{}</td>{counts}{}</tr>", escape(name), cells.collect::<String>()));
    }
    put(body, format_args!("</tbody></table></div>"));
}

fn cells(simulated: f64, real: f64) -> String {
    let cells = [tidy(simulated), tidy(real), difference(simulated, real)];
    cells.map(|cell| format!("<td class=\"n\">{cell}</td>")).concat()
}

/// Everything that was compared, one protocol after the other, to be unfolded.
fn by_type(body: &mut String, rows: &[Row]) {
    put(body, format_args!("<h2>By type of message</h2>"));
    for Row { name, command, both, .. } in rows {
        put(
            body,
            format_args!(
                "<details><summary>{}</summary>\n<p class=\"soft\"><code>{}</code></p>\n<div class=\"scroll\"><table>\
                 <thead><tr><th></th><th class=\"n\">simulated</th><th class=\"n\">real</th>\
                 <th class=\"n\">difference</th></tr></thead><tbody>",
                escape(name),
                escape(command)
            ),
        );
        for (what, simulated, real) in both.lines() {
            let class = if what.starts_with(' ') { " class=\"part\"" } else { "" };
            let what = escape(what.trim());
            put(body, format_args!("<tr><td{class}>{what}</td>{}</tr>", cells(simulated, real)));
        }
        put(body, format_args!("</tbody></table></div></details>"));
    }
}

/// The page of what kills did: a table.
pub fn kills(rows: &[KillRow], command: &str) -> String {
    let mut body = String::new();
    put(&mut body, format_args!("<h1>Killed with SIGKILL</h1>"));
    put(
        &mut body,
        format_args!(
            "<p class=\"soft\">peerlock {}: real peers, each in a process of its own, one of which is killed. Entries \
             before and after that, and how long it was until somebody was let in, by the setting's time.</p>\n\
             <div class=\"scroll\"><table><thead><tr><th>protocol</th><th>killed</th><th class=\"n\">before</th>\
             <th class=\"n\">after</th><th class=\"n\">violations</th><th class=\"n\">never served</th>\
             <th class=\"n\">goes on in</th></tr></thead><tbody>",
            env!("CARGO_PKG_VERSION")
        ),
    );
    for row in rows {
        let KillRow { name, target, before, after, violations, stuck, .. } = row;
        let goes_on = row.goes_on();
        let counts: String =
            [before, after, violations, stuck].map(|count| format!("<td class=\"n\">{count}</td>")).concat();
        put(
            &mut body,
            format_args!(
                "<tr><td>{}</td><td>{}</td>{counts}<td class=\"n\">{goes_on}</td></tr>",
                escape(name),
                escape(target)
            ),
        );
    }
    put(&mut body, format_args!("</tbody></table></div>"));
    source(&mut body, command, "live.json");
    document("killed", &body)
}
