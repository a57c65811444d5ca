//! What an error tracker stores, made from a seed and the number of the error alone.

use crate::load::random::Dice;
use mongodb::bson::{Bson, DateTime, Document, doc};
use std::time::SystemTime;

/// Apps that report errors.
const APPS: u64 = 10;

/// Every tenth error is a new problem.
const REPEATS: u64 = 10;

/// Words that messages are made of.
const WORDS: u64 = 2000;
const WORDS_OF_A_MESSAGE: usize = 6;

/// Calls in a backtrace.
const FRAMES: u64 = 40;

/// A second for each error, from 2024 on.
const BEGIN_MILLIS: i64 = 1_704_067_200_000;

/// One error that an app reports.
#[derive(Debug)]
pub(super) struct Occurrence {
    number: u64,
    /// From 0.
    problem: u64,
    seed: u64,
}

impl Occurrence {
    /// The error of a number: a new problem, or a repetition of one of an earlier number.
    pub(super) fn of(seed: u64, number: u64) -> Occurrence {
        let newest = number / REPEATS;
        let problem =
            if number.is_multiple_of(REPEATS) { newest } else { Dice::of(seed, number).below(newest + 1) };
        Occurrence { number, problem, seed }
    }

    /// Whether the problem has not been there before.
    pub(super) fn is_new(&self) -> bool {
        self.number.is_multiple_of(REPEATS)
    }

    /// What depends on the problem alone.
    fn dice(&self) -> Dice {
        Dice::of(self.seed.rotate_left(17), self.problem)
    }

    fn app(&self) -> u64 {
        self.problem % APPS
    }

    /// The key that the app shows.
    pub(super) fn api_key(&self) -> String {
        api_key(self.app())
    }

    fn at(&self) -> DateTime {
        DateTime::from_millis(BEGIN_MILLIS + 1000 * (self.number as i64))
    }

    pub(super) fn message(&self) -> String {
        let mut dice = self.dice();
        let words: Vec<String> = (0..WORDS_OF_A_MESSAGE).map(|_| word(&mut dice)).collect();
        format!("undefined method `{}' for {}", words[..2].join("_"), words[2..].join(" "))
    }

    /// The words that a search may ask for.
    pub(super) fn words(&self) -> Vec<String> {
        let mut dice = self.dice();
        (0..WORDS_OF_A_MESSAGE).map(|_| word(&mut dice)).collect()
    }

    pub(super) fn error_class(&self) -> &'static str {
        const CLASSES: [&str; 4] =
            ["NoMethodError", "ArgumentError", "Timeout::Error", "ActiveRecord::RecordNotFound"];
        CLASSES[(self.problem % 4) as usize]
    }

    pub(super) fn place(&self) -> String {
        format!("orders_{}#update", self.problem % 97)
    }

    /// When it happened.
    pub(super) fn time(&self) -> SystemTime {
        self.at().to_system_time()
    }

    pub(super) fn app_name(&self) -> String {
        format!("app-{}", self.app())
    }

    pub(super) fn host(&self) -> String {
        format!("h{}", self.number % 5)
    }

    pub(super) fn agent(&self) -> String {
        format!("a{}", self.number % 7)
    }

    /// What tells the problem from others of its app.
    pub(super) fn fingerprint_text(&self) -> String {
        format!("{:032x}", self.dice().draw())
    }

    /// The filter that finds the problem.
    pub(super) fn fingerprint(&self) -> Document {
        doc! { "app_id": self.app() as i64, "fingerprint": self.fingerprint_text() }
    }

    /// The upsert of the problem.
    pub(super) fn counted(&self) -> Document {
        doc! {
            "$setOnInsert": {
                "app_name": self.app_name(),
                "environment": "production",
                "error_class": self.error_class(),
                "where": self.place(),
                "message": self.message(),
                "words": self.words(),
                "first_notice_at": self.at(),
                "resolved": false,
                "comments_count": 0,
            },
            "$inc": { "notices_count": 1 },
        }
    }

    /// What the problem remembers of its last notice, and how often of whom.
    pub(super) fn cached(&self, notice: &Bson) -> Document {
        let host = format!("hosts.{}", self.host());
        let agent = format!("user_agents.{}", self.agent());
        doc! {
            "$set": { "last_notice_at": self.at(), "last_notice_id": notice, "message": self.message() },
            "$inc": { host: 1, agent: 1 },
        }
    }

    /// The notice, of about 5 KB.
    pub(super) fn notice(&self, problem: &Bson) -> Document {
        let mut dice = Dice::of(self.seed, self.number);
        let frames: Vec<Bson> = (0..FRAMES).map(|frame| Bson::Document(self.frame(frame))).collect();
        doc! {
            "problem_id": problem,
            "error_class": self.error_class(),
            "message": self.message(),
            "created_at": self.at(),
            "framework": "Rails: 7.1.3",
            "backtrace": frames,
            "server_environment": {
                "environment-name": "production",
                "hostname": format!("web-{}", self.number % 5),
                "project-root": "/var/www/orders/current",
            },
            "request": {
                "url": format!("https://shop.example.com/orders/{}", dice.below(1_000_000)),
                "component": "orders",
                "action": "update",
                "params": { "id": dice.below(1_000_000) as i64, "note": dice.words(300) },
                "cgi-data": { "HTTP_USER_AGENT": format!("Browser {}", self.number % 7), "HTTP_COOKIE": dice.letters(200) },
            },
            "user_attributes": { "id": dice.below(50_000) as i64, "email": format!("{}@example.com", dice.letters(12)) },
        }
    }

    fn frame(&self, frame: u64) -> Document {
        doc! {
            "file": format!("[PROJECT_ROOT]/app/models/order_{}.rb", (self.problem + frame) % 211),
            "number": ((self.problem * 7 + frame * 13) % 900) as i64,
            "method": format!("block_in_{}", (self.problem * 3 + frame) % 53),
        }
    }
}

/// The apps.
pub(super) fn apps() -> Vec<Document> {
    let app = |number: u64| {
        doc! { "_id": number as i64, "name": format!("app-{number}"), "api_key": api_key(number), "problem_count": 0 }
    };
    (0..APPS).map(app).collect()
}

/// The keys and names of the apps, by number.
pub(super) fn app_keys() -> impl Iterator<Item = (String, String)> {
    (0..APPS).map(|number| (api_key(number), format!("app-{number}")))
}

fn api_key(app: u64) -> String {
    format!("{:032x}", Dice::of(0, app).draw())
}

/// A word: each of them as often as any other.
pub(super) fn word(dice: &mut Dice) -> String {
    let number = dice.below(WORDS);
    // Letters that the number decides, so that no word is part of another.
    format!("w{}", Dice::of(1, number).letters(7))
}

/// What the application asks with for a term: anywhere in any of five fields, upper or lower case.
pub(super) fn by_regex(term: &str) -> Document {
    let fields = ["app_name", "environment", "error_class", "message", "where"];
    let any: Vec<Document> = fields.map(|field| doc! { field: { "$regex": term, "$options": "i" } }).to_vec();
    doc! { "$or": any }
}
