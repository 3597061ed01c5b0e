use inboxed::KeyPart;

#[derive(KeyPart)]
struct PriceCents(i64);

fn main() {
    let _ = PriceCents(999);
}
