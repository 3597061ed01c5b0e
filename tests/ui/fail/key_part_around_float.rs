use inboxed::KeyPart;

#[derive(KeyPart)]
struct Price(f64);

fn main() {
    let _ = Price(9.99);
}
