use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use chapar::ops::{DueTimer, HistoryEntry, SagaCard, SagaHistory, saga_history};
use jiff::Timestamp;

use crate::console::{Console, Facts};
use crate::problem::{Problem, Wants, page};
use crate::pulse::SECONDS;
use crate::show::{Rate, Wait, label};
use crate::snapshot::{ConsumerLine, LetterLine, SagaLine, Snapshot, StateLine};

/// The page with the current state.
pub(crate) async fn home(State(console): State<Console>) -> Response {
    let now = console.live().snapshot().await;
    let plot = Plot::new(&now);
    let store = console.chapar().store().url();
    let blank = Blank::default();
    fresh(page(&HomePage { facts: console.facts(), store, now, plot, blank }))
}

/// The page with the history of one saga.
pub(crate) async fn saga(
    State(console): State<Console>,
    wants: Wants,
    Path((saga, key)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let store = console.chapar().store();
    let found = saga_history(store, &saga, &key).await.map_err(wants.store_failed())?;
    let Some(SagaHistory { card, timers, history }) = found else {
        return Err(wants.problem(StatusCode::NOT_FOUND, "There is no saga of this key."));
    };
    let now = Timestamp::now();
    let line = SagaLine::new(&card, now);
    let timers = timers.into_iter().map(|timer| TimerLine::new(timer, now)).collect();
    let steps = history.into_iter().map(|entry| Step::new(entry, card.started_at)).collect();
    Ok(fresh(page(&SagaPage { running: &console.facts().running, card, line, timers, steps })))
}

fn fresh(page: Response) -> Response {
    ([(CACHE_CONTROL, "no-store")], page).into_response()
}

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage<'a> {
    facts: &'a Facts,
    store: &'a str,
    now: Snapshot,
    plot: Plot,
    blank: Blank,
}

/// Empty rows that the script copies, so that the markup of a row exists once.
#[derive(Default)]
struct Blank {
    consumer: ConsumerLine,
    state: StateLine,
    letter: LetterLine,
    saga: SagaLine,
}

#[derive(Template)]
#[template(path = "saga.html")]
struct SagaPage<'a> {
    running: &'a str,
    card: SagaCard,
    line: SagaLine,
    timers: Vec<TimerLine>,
    steps: Vec<Step>,
}

struct TimerLine {
    label: String,
    due_at: Timestamp,
    due_in: Wait,
}

struct Step {
    label: String,
    /// None where the state stayed the same.
    from: Option<String>,
    at: Timestamp,
    clock: String,
    since_start: Wait,
    cause: String,
    note: String,
    event_id: Option<String>,
}

impl TimerLine {
    fn new(timer: DueTimer, now: Timestamp) -> Self {
        let due_in = Wait(timer.due_at.duration_since(now).as_secs_f64().max(0.0));
        TimerLine { label: label(&timer.name), due_at: timer.due_at, due_in }
    }
}

impl Step {
    fn new(entry: HistoryEntry, started_at: Timestamp) -> Self {
        let from = entry.from_state.filter(|from| *from != entry.to_state);
        let since_start = entry.at.duration_since(started_at).as_secs_f64().max(0.0);
        Step {
            label: label(&entry.to_state),
            from: from.map(|from| label(&from)),
            at: entry.at,
            clock: entry.at.strftime("%H:%M:%S%.3f").to_string(),
            since_start: Wait(since_start),
            cause: entry.cause,
            note: entry.note,
            event_id: entry.event_id,
        }
    }
}

/// The chart as paths in a box of 119 × 100. The script draws it in the same way.
struct Plot {
    published: String,
    applied: String,
    area: String,
    top: Rate,
}

impl Plot {
    fn new(now: &Snapshot) -> Self {
        let (published, applied) = (&now.chart.published, &now.chart.applied);
        let most = published.iter().chain(applied).copied().fold(0.0, f64::max);
        let top = round_up(most);
        let line = |rates: &[f64]| {
            let first = SECONDS - rates.len().min(SECONDS);
            let points = rates
                .iter()
                .enumerate()
                .map(|(i, rate)| format!("{} {:.2}", first + i, 100.0 - rate / top * 100.0));
            points.collect::<Vec<_>>().join("L")
        };
        let path = |rates: &[f64]| match rates.is_empty() {
            true => String::new(),
            false => format!("M{}", line(rates)),
        };
        let area = match applied.is_empty() {
            true => String::new(),
            false => {
                let first = SECONDS - applied.len().min(SECONDS);
                format!("M{first} 100L{}L{} 100Z", line(applied), SECONDS - 1)
            }
        };
        Plot { published: path(published), applied: path(applied), area, top: Rate(top) }
    }
}

/// The next of 10, 20, 50, 100, 200, …, so that the scale does not change every second.
fn round_up(most: f64) -> f64 {
    let mut top = 10.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if top >= most || top > 1e12 {
            break;
        }
        top *= factor;
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_of_the_chart_is_a_round_number() {
        let tops = [0.0, 10.0, 11.0, 21.0, 51.0, 4321.0].map(round_up);
        assert_eq!(tops, [10.0, 10.0, 20.0, 50.0, 100.0, 5000.0]);
    }
}
