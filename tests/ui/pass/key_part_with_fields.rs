use inboxed::KeyPart;

#[derive(KeyPart)]
enum Channel {
    Online,
    Shop,
}

fn main() {
    let _ = [Channel::Online, Channel::Shop];
}
