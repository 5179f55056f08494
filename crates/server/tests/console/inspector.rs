//! A window whose own log can be read, and that can be told to be dark.

use base64::Engine as _;
use chapar_testkit::http;
use chapar_testkit::servers::Endpoint;
use serde_json::{Value, json};

pub(crate) struct Inspector(String);

impl Inspector {
    pub(crate) fn open(chromium: &Endpoint) -> Self {
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            ]},
        }}});
        let sessions = format!("{}/session", chromium.url());
        let opened = call("POST", &sessions, Some(&capabilities));
        Inspector(format!("{sessions}/{}", opened["sessionId"].as_str().unwrap()))
    }

    pub(crate) fn goto(&self, url: &str) {
        self.post("url", &json!({"url": url}));
    }

    /// What the browser has logged: errors of scripts, of loading and of the content policy.
    pub(crate) fn log(&self) -> Value {
        self.post("se/log", &json!({"type": "browser"}))
    }

    pub(crate) fn scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// The whole page at a width, as a PNG file.
    pub(crate) fn picture(&self, width: u32) -> Vec<u8> {
        let size = |height: u64| json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size(800));
        let height = json!({"script": "return document.body.scrollHeight;", "args": []});
        let height = self.post("execute/sync", &height).as_u64().unwrap();
        self.devtools("Emulation.setDeviceMetricsOverride", size(height.max(600)));
        let encoded = call("GET", &format!("{}/screenshot", self.0), None);
        let encoded = encoded.as_str().unwrap();
        base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()
    }

    /// Whether the page is wider than its window.
    pub(crate) fn overflows(&self) -> bool {
        let script = "return document.documentElement.scrollWidth > innerWidth;";
        self.post("execute/sync", &json!({"script": script, "args": []})) == true
    }

    fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        call("POST", &format!("{}/{path}", self.0), Some(body))
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        let _ = http("DELETE", &self.0, None);
    }
}

fn call(method: &str, url: &str, body: Option<&Value>) -> Value {
    let answer = http(method, url, body).unwrap();
    assert_eq!(answer.status, 200, "{method} {url}: {}", answer.text());
    answer.json()["value"].take()
}
