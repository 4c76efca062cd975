//! The page: one file without scripts or external resources, fit for printing.

use std::fmt::Write;

use super::draw::height;
use super::promises;
use super::{Provenance, amount, range, with_error};
use crate::figure::{Resolved, Statement};
use crate::plan::{Plan, Results, Verdict};
use crate::plot::{escape, tidy};

const STYLE: &str = include_str!("page.css");

/// Returns the whole page.
pub fn html(plan: &Plan, results: &Results, plots: &[String], provenance: &Provenance) -> String {
    let mut body = String::new();
    let kind = if plan.quick { "quick run: fewer trials and shorter runs than the full one" } else { "full run" };
    push(&mut body, "<h1>Figures, published and measured</h1>");
    push(&mut body, &format!("<p class=\"origin\">peerlock {}, {kind}</p>", escape(&provenance.version)));
    contents(&mut body, plan);
    readings(&mut body, plan);
    summary(&mut body, plan, results);
    for (figure, svg) in plan.figures.iter().zip(plots) {
        section(&mut body, figure, results, svg);
    }
    run(&mut body, plan, results, provenance);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>peerlock: figures, published and measured</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Writes the table of contents.
fn contents(body: &mut String, plan: &Plan) {
    push(body, "<nav><ul>\n<li><a href=\"#reading\">How to read it</a></li>");
    if plan.figures.iter().any(|figure| !figure.numbers.is_empty()) {
        push(body, "<li><a href=\"#numbers\">All published numbers</a></li>");
    }
    for figure in &plan.figures {
        let (id, title) = (escape(&figure.figure.id), escape(&figure.figure.file.title));
        push(body, &format!("<li><a href=\"#{id}\">{title}</a> <span class=\"id\">{id}</span></li>"));
    }
    push(body, "<li><a href=\"#run\">Where it comes from</a></li>\n</ul></nav>");
}

/// Writes the table of all published numbers.
fn summary(body: &mut String, plan: &Plan, results: &Results) {
    let numbers: Vec<_> =
        plan.figures.iter().flat_map(|figure| figure.numbers.iter().map(move |n| (figure, n))).collect();
    if numbers.is_empty() {
        return;
    }
    let verdicts: Vec<Verdict> = numbers.iter().map(|(_, number)| results.judge(number).1).collect();
    let count = |verdict| verdicts.iter().filter(|&&other| other == verdict).count();
    let (unsure, may_differ, by_choice) = (count(Verdict::Unsure), count(Verdict::MayDiffer), count(Verdict::ByChoice));
    let moved = count(Verdict::Moved);
    let mut sentence = format!(
        "Of {} published numbers, {} are reproduced; {} differ, and the reason stands beside them.",
        numbers.len(),
        count(Verdict::Reproduced) + unsure,
        count(Verdict::Differs) + may_differ,
    );
    if by_choice > 0 {
        write!(sentence, " {by_choice} are where the paper has them, but only by a choice of ours.").expect(INFALLIBLE);
    }
    if unsure > 0 {
        write!(sentence, " {unsure} of the reproduced ones have an interval that reaches beyond the range.")
            .expect(INFALLIBLE);
    }
    if may_differ > 0 {
        write!(sentence, " {may_differ} of those that differ have an interval that reaches to what is published.")
            .expect(INFALLIBLE);
    }
    if moved > 0 {
        write!(sentence, " <span class=\"moved\">{moved} left the range in which we say they are.</span>")
            .expect(INFALLIBLE);
    }
    push(body, &format!("<section id=\"numbers\"><h2>All published numbers</h2><p>{sentence}</p><div class=\"wide\">"));
    push(
        body,
        "<table class=\"numbers\"><thead><tr><th>figure</th><th>number</th><th class=\"n\">published</th>\
         <th class=\"n\">measured</th><th>verdict</th></tr></thead><tbody>",
    );
    for (figure, number) in numbers {
        let (measured, verdict) = results.judge(number);
        let id = escape(&figure.figure.id);
        push(
            body,
            &format!(
                "<tr><td><a class=\"id\" href=\"#{id}\">{id}</a></td><td class=\"what\">{}, {}</td>\
                 <td class=\"says\">{}</td><td class=\"got\">{}</td><td>{}</td></tr>",
                escape(&number.published.curve),
                escape(&number.published.what),
                escape(&number.published.says),
                escape(&amount(measured, number.unit())),
                word(verdict),
            ),
        );
    }
    push(body, "</tbody></table></div></section>");
}

fn section(body: &mut String, resolved: &Resolved, results: &Results, svg: &str) {
    let (id, file) = (escape(&resolved.figure.id), &resolved.figure.file);
    push(body, &format!("<section id=\"{id}\">"));
    push(body, &format!("<h2>{} <span class=\"id\">{id}</span></h2>", escape(&file.title)));
    push(body, &format!("<p><span class=\"origin\">{}.</span> {}</p>", escape(&file.origin), escape(&file.shows)));
    if file.promises {
        push(body, &promises::html(resolved, results));
    }
    push(body, &format!("<div class=\"wide\">{svg}</div>"));
    let settings = common(resolved);
    push(body, &format!("<p class=\"small\">{}</p>", escape(&settings)));
    numbers(body, resolved, results);
    values(body, resolved, results);
    push(
        body,
        &format!(
            "<p class=\"small\">Files: <a href=\"{id}.csv\">{id}.csv</a> (every metric of every run), \
             <a href=\"{id}.svg\">{id}.svg</a>, <a href=\"{id}.toml\">{id}.toml</a> (the experiment).</p>"
        ),
    );
    push(body, "</section>");
}

/// Lists the settings that all runs of a figure share.
fn common(resolved: &Resolved) -> String {
    let runs: Vec<_> = resolved.dots.iter().flatten().flatten().map(|dot| dot.point.pairs()).collect();
    let shared = runs.first().into_iter().flatten().filter(|pair| runs.iter().all(|run| run.contains(pair)));
    let shared: Vec<String> = shared.map(|(name, value)| format!("{name} {value}")).collect();
    format!("In all runs: {}.", shared.join(", "))
}

/// Writes the published numbers of one figure, with their reading and reason.
fn numbers(body: &mut String, resolved: &Resolved, results: &Results) {
    if resolved.numbers.is_empty() {
        return;
    }
    push(
        body,
        "<div class=\"wide\"><table class=\"numbers\"><thead><tr><th>number</th><th class=\"n\">published</th>\
         <th class=\"n\">measured</th><th>verdict</th><th>how we read it</th></tr></thead><tbody>",
    );
    for number in &resolved.numbers {
        let (measured, verdict) = results.judge(number);
        let mut reading = format!("Measured: {}.", number.metric.reading);
        if let Some(over) = &number.published.times_less_than {
            write!(reading, " That of {over}, divided by this.").expect(INFALLIBLE);
        }
        if number.bend.is_some() {
            reading.push_str(" Its slope in the second part of the stretch, divided by that in the first.");
        }
        let claim = match number.published.claim {
            Statement::Reproduced => "Claimed",
            Statement::Differs => "Found instead",
            Statement::ByChoice => "Found",
        };
        write!(reading, " {claim}: {}.", range(number.accept, number.unit())).expect(INFALLIBLE);
        if let Some(why) = &number.published.why {
            write!(reading, " {why}").expect(INFALLIBLE);
        }
        push(
            body,
            &format!(
                "<tr><td class=\"what\">{}, {}</td><td class=\"says\">{}</td><td class=\"got\">{}</td><td>{}</td>\
                 <td class=\"reading\">{}</td></tr>",
                escape(&number.published.curve),
                escape(&number.published.what),
                escape(&number.published.says),
                escape(&amount(measured, number.unit())),
                word(verdict),
                escape(&reading),
            ),
        );
    }
    push(body, "</tbody></table></div>");
}

/// Writes the numbers of the plots, collapsed.
fn values(body: &mut String, resolved: &Resolved, results: &Results) {
    let file = &resolved.figure.file;
    for (number, panel) in file.panels.iter().enumerate() {
        let Some(metric) = resolved.metrics[number] else { continue };
        let drawn = || file.curves.iter().zip(&resolved.dots[number]).filter(|(_, dots)| !dots.is_empty());
        let heads: Vec<String> =
            drawn().map(|(curve, _)| format!("<th class=\"n\">{}</th>", escape(&curve.label))).collect();
        push(
            body,
            &format!(
                "<details><summary class=\"small\">{}: {}</summary><div class=\"wide\"><table><thead><tr>\
                 <th class=\"n\">{}</th>{}</tr></thead><tbody>",
                escape(&panel.title),
                escape(&panel.label),
                escape(&file.x.label),
                heads.concat(),
            ),
        );
        for at in 0..drawn().map(|(_, dots)| dots.len()).max().unwrap_or(0) {
            let x = drawn().next().map_or(0.0, |(_, dots)| dots[at].x);
            let x = file.x.names.get(at).cloned().unwrap_or_else(|| tidy(x));
            let cells = drawn().map(|(_, dots)| {
                let value = height(&dots[at], metric, panel, (resolved, number), results);
                format!("<td class=\"n\">{}</td>", value.map_or("–".into(), with_error))
            });
            push(body, &format!("<tr><td class=\"n\">{}</td>{}</tr>", escape(&x), cells.collect::<Vec<_>>().concat()));
        }
        push(body, "</tbody></table></div></details>");
    }
}

/// Writes the introduction.
fn readings(body: &mut String, plan: &Plan) {
    push(body, "<section id=\"reading\"><h2>How to read it</h2>");
    if plan.quick {
        push(
            body,
            "<p>This is a quick run: fewer trials, shorter runs, fewer values. Where a text below speaks of 10 or 100 \
             trials, it is about the full run; the settings under each plot are those of this one.</p>",
        );
    }
    push(
        body,
        "<p><strong>Verdicts.</strong> <em>Reproduced</em>: the measured number lies in the range that the experiment \
         file claims, with all of its interval. <em>Reproduced, not certain</em>: the number does, its interval \
         reaches beyond. <em>Differs</em>: we do not reproduce it; the reason stands beside it, and the range in \
         which our number is instead. <em>Differs, not certain</em>: so it is, but its interval reaches to what is \
         published. <em>By choice</em>: it is where the paper has it, but only because of something that the paper \
         leaves open and we have chosen; the choice stands beside it, and this is no reproduction. <em>Out of \
         range</em>: it is not where we say, and the command ends with an error. A number that is called published \
         but stands in no paper (because the paper has a formula or a picture) says so.</p>\n\
         <p><strong>Intervals.</strong> Trials are independent. Bars in a plot, and what follows a ±, are 95 % \
         confidence intervals over trials: Student's for means, Wilson's for shares of trials, for a ratio both \
         relative errors together, and for the bend of a curve the errors of all three places. A percentile has the \
         interval of what each trial has by itself. What only grows with the number of trials, such as the longest \
         wait of all, has none; nor has a single trial.</p>\n\
         <p><strong>Measuring.</strong> Every number is measured in virtual time by the simulator, which checks at \
         every event that at most as many are inside as there are slots, that fencing numbers rise, that no token is \
         lost, and at the end that everybody was served; a run that breaks a rule makes no report, unless its \
         experiment is there to count violations. A client that leaves at once, as in Sigma's figures 3, 7 and 8, \
         counts as inside until the first word of it arrives anywhere: before that nobody may be let in, since nobody \
         can know. In an open workload the steady state is the time that is measured, and nobody waits for the last to \
         be served. The <em>steady state</em> leaves out each peer's first entries (the warm-up), while the queue \
         builds up, and all that comes after the first peer has finished, while it runs dry. The <em>spread</em> is \
         the longest wait less the mean wait. Shares of entries beside somebody else are those of whole runs, in \
         rounds also of what comes before and after them. Rings in a plot are published numbers. The <em>ideal</em> \
         is no protocol: one line for all slots, kept by somebody who knows everything at once, and one message from \
         who leaves to who is next.</p>\n</section>",
    );
}

/// Writes the provenance: the only part in which two runs with the same seed differ.
fn run(body: &mut String, plan: &Plan, results: &Results, provenance: &Provenance) {
    push(body, "<section id=\"run\"><h2>Where it comes from</h2><table><tbody>");
    let stored = match results.resumed {
        0 => format!("{}", plan.points()),
        stored => format!("{}, of which {stored} were there from an earlier run", plan.points()),
    };
    for (name, value) in [
        ("command", &provenance.command),
        ("seed", &provenance.seed),
        ("version", &provenance.version),
        ("commit", &provenance.commit),
        ("different runs", &stored),
        ("time taken", &provenance.duration),
    ] {
        push(body, &format!("<tr><td>{name}</td><td><code>{}</code></td></tr>", escape(value)));
    }
    push(body, "</tbody></table></section>");
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "<span class=\"reproduced\">reproduced</span>",
        Verdict::Unsure => "<span class=\"reproduced\">reproduced, not certain</span>",
        Verdict::Moved => "<span class=\"moved\">out of range</span>",
        Verdict::Differs => "<span class=\"differs\">differs</span>",
        Verdict::MayDiffer => "<span class=\"differs\">differs, not certain</span>",
        Verdict::ByChoice => "<span class=\"differs\">by choice</span>",
    }
}

const INFALLIBLE: &str = "a string takes whatever is written";

fn push(body: &mut String, line: &str) {
    body.push_str(line);
    body.push('\n');
}
