//! A headless Chromium, driven over WebDriver.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::http;
use crate::servers::{Endpoint, Kind};

/// How long [`Browser`] waits for what a page should show.
const PATIENCE: Duration = Duration::from_secs(10);
/// The key under which WebDriver hands out a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser window with its own profile, closed when this value is dropped.
///
/// Elements are named by CSS selectors; every method that names one waits up to 10 s for it to appear. The methods
/// block: from asynchronous code call them in `spawn_blocking`.
///
/// ```no_run
/// use chapar_testkit::{Browser, servers};
///
/// let browser = Browser::open(&servers::chromium()?)?;
/// browser.goto("http://127.0.0.1:8080/")?;
/// browser.click("nav a[href='/outbox']")?;
/// browser.wait_for_text("h1", "Outbox")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Browser {
    session: String,
}

/// Why a browser command failed.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// The endpoint is another server.
    #[error("{0} is not a browser; ask for `servers::chromium()`")]
    NotABrowser(Kind),
    /// Chromedriver did not answer.
    #[error("chromedriver does not answer")]
    Unreachable(#[source] std::io::Error),
    /// The error that Chromedriver reported.
    #[error("{code}: {message}")]
    Refused {
        /// The WebDriver error code, such as `no such element`.
        code: String,
        /// The first line of the explanation.
        message: String,
    },
    /// The page did not come to show what was waited for.
    #[error("after {PATIENCE:?} {selector} shows {shown:?} and not {expected:?}")]
    NotShown {
        /// The element.
        selector: String,
        /// What was waited for.
        expected: String,
        /// What it showed last; `None` where there was no such element.
        shown: Option<String>,
    },
}

impl Browser {
    /// Opens a window of 1280 × 800 pixels.
    pub fn open(chromium: &Endpoint) -> Result<Self, BrowserError> {
        if chromium.kind() != Kind::Chromium {
            return Err(BrowserError::NotABrowser(chromium.kind()));
        }
        // No sandbox: it needs rights that containers and root do not have, and only pages of ours are opened.
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--window-size=1280,800",
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
        }}});
        let sessions = format!("{}/session", chromium.url());
        let opened = call("POST", &sessions, Some(&capabilities))?;
        let id = opened["sessionId"].as_str().unwrap_or_default();
        Ok(Self { session: format!("{sessions}/{id}") })
    }

    /// Loads a page and waits until it is loaded.
    pub fn goto(&self, url: &str) -> Result<(), BrowserError> {
        self.post("url", &json!({"url": url})).map(drop)
    }

    /// The address of the page shown.
    pub fn url(&self) -> Result<String, BrowserError> {
        self.get("url").map(into_text)
    }

    /// The page's title.
    pub fn title(&self) -> Result<String, BrowserError> {
        self.get("title").map(into_text)
    }

    /// The text that an element shows.
    pub fn text(&self, selector: &str) -> Result<String, BrowserError> {
        let element = self.element(selector)?;
        self.get(&format!("element/{element}/text")).map(into_text)
    }

    /// Waits until the element's text contains `expected`.
    pub fn wait_for_text(&self, selector: &str, expected: &str) -> Result<(), BrowserError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // One script, because an element may be replaced between finding and reading it.
            let script = "const e = document.querySelector(arguments[0]); return e && e.innerText;";
            let shown = self.run(script, &json!([selector]))?.as_str().map(str::to_owned);
            if shown.as_ref().is_some_and(|shown| shown.contains(expected)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let (selector, expected) = (selector.to_owned(), expected.to_owned());
                return Err(BrowserError::NotShown { selector, expected, shown });
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// Clicks the middle of an element as a user would; something that covers it is an error.
    pub fn click(&self, selector: &str) -> Result<(), BrowserError> {
        let element = self.element(selector)?;
        self.post(&format!("element/{element}/click"), &json!({})).map(drop)
    }

    /// Replaces the content of an input with `text`, typed key by key.
    pub fn fill(&self, selector: &str, text: &str) -> Result<(), BrowserError> {
        let element = self.element(selector)?;
        self.post(&format!("element/{element}/clear"), &json!({}))?;
        self.post(&format!("element/{element}/value"), &json!({"text": text})).map(drop)
    }

    /// The value of a JavaScript expression.
    pub fn evaluate(&self, expression: &str) -> Result<Value, BrowserError> {
        self.run(&format!("return ({expression});"), &json!([]))
    }

    /// Sets the size of the window in pixels.
    pub fn resize(&self, width: u32, height: u32) -> Result<(), BrowserError> {
        self.post("window/rect", &json!({"width": width, "height": height})).map(drop)
    }

    /// The visible part of the page as a PNG file.
    pub fn screenshot(&self) -> Result<Vec<u8>, BrowserError> {
        let encoded = self.get("screenshot").map(into_text)?;
        base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|error| {
            BrowserError::Refused { code: "invalid screenshot".into(), message: error.to_string() }
        })
    }

    fn run(&self, script: &str, arguments: &Value) -> Result<Value, BrowserError> {
        self.post("execute/sync", &json!({"script": script, "args": arguments}))
    }

    fn element(&self, selector: &str) -> Result<String, BrowserError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.post("element", &json!({"using": "css selector", "value": selector})) {
                Ok(found) => return Ok(found[ELEMENT].as_str().unwrap_or_default().to_owned()),
                Err(BrowserError::Refused { code, .. })
                    if code == "no such element" && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(25));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn get(&self, path: &str) -> Result<Value, BrowserError> {
        call("GET", &format!("{}/{path}", self.session), None)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, BrowserError> {
        call("POST", &format!("{}/{path}", self.session), Some(body))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = call("DELETE", &self.session, None);
    }
}

fn call(method: &str, url: &str, body: Option<&Value>) -> Result<Value, BrowserError> {
    let answer = http(method, url, body).map_err(BrowserError::Unreachable)?;
    let value = answer.json()["value"].take();
    if answer.status == 200 {
        return Ok(value);
    }
    let message = value["message"].as_str().unwrap_or_default();
    Err(BrowserError::Refused {
        code: value["error"].as_str().unwrap_or("unknown error").to_owned(),
        message: message.lines().next().unwrap_or_default().to_owned(),
    })
}

fn into_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
