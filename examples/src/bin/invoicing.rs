//! Two services on CloudEvents. Invoicing issues invoices; the ledger books each of them once, in
//! the order of its tenant. A message of another shape goes to the dead letters.
#![allow(clippy::print_stdout, reason = "a program prints")]

use std::time::Duration;

use chapar::prelude::*;

#[derive(Event, Serialize, Deserialize)]
#[event("invoicing.invoice.created", id = invoice_id, intent = "{invoice_id}:created")]
#[serde(rename_all = "camelCase")]
struct InvoiceCreated {
    invoice_id: String,
    cents: i64,
}

/// The same event from a program that was not updated: its shape is another one.
#[derive(Event, Serialize)]
#[event("invoicing.invoice.created", id = number)]
struct OldInvoiceCreated {
    number: String,
}

const TABLES: &str = "
    create table invoices (tenant text not null, id text not null, cents bigint not null);
    create table ledger (tenant text not null, entry bigint not null, invoice text not null,
        cents bigint not null)";

/// The invoice and its event commit together, or not at all.
async fn issue(chapar: &Chapar, tenant: &Tenant, id: &str, cents: i64) -> Handled {
    let work = async |cx: &mut Cx| {
        let insert = "insert into invoices (tenant, id, cents) values (:tenant, $1, $2)";
        cx.execute(insert, params![id, cents]).await?;
        cx.emit(InvoiceCreated { invoice_id: id.to_owned(), cents }).await
    };
    chapar.command(tenant).run(work).await
}

/// The entry and the claim of the event commit together: no event is booked twice.
async fn book(created: InvoiceCreated, cx: &mut Cx) -> Handled {
    let insert = "insert into ledger (tenant, entry, invoice, cents) \
        select :tenant, count(*) + 1, $1, $2 from ledger where tenant = :tenant";
    cx.execute(insert, params![created.invoice_id, created.cents]).await?;
    applied()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let store = url("CHAPAR_STORE", "sqlite::memory:"); // or postgres://localhost/invoicing
    let transport = url("CHAPAR_TRANSPORT", "sql:"); // or nats://, kafka://, pubsub://project
    let running = App::connect(store, transport)
        .profile(Profile::named("invoicing").ordered_by("{tenant}")?)
        .migrate([Migration::new(1, "invoicing", TABLES).protect(["invoices", "ledger"])])
        .service(Service::new("invoicing"))
        .service(Service::new("ledger").consumer(Consumer::new("invoices").on(book)))
        .start()
        .await?;

    let invoicing = running.chapar("invoicing");
    let (acme, zenith) = ("acme".parse()?, "zenith".parse()?);
    for (id, cents) in [("inv-1", 4200), ("inv-2", 1300), ("inv-3", 99)] {
        issue(&invoicing, &acme, id, cents).await?;
    }
    let outdated = async |cx: &mut Cx| cx.emit(OldInvoiceCreated { number: "9".into() }).await;
    invoicing.command(&zenith).run(outdated).await?;

    let ledger = running.metrics().consumer("ledger.invoices");
    while ledger.applied() < 3 || ledger.dead_letters() < 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let booked = "select invoice from ledger where tenant = :tenant order by entry";
    let read = async |cx: &mut Cx| cx.fetch_all::<String>(booked, params![]).await;
    println!("booked: {}", invoicing.command(&acme).run(read).await?.join(", "));
    println!("in the dead letters: {}", ledger.dead_letters());
    running.stop(Duration::from_secs(10)).await;
    Ok(())
}
