use inboxed::KeyPart;

#[derive(KeyPart)]
enum Channel {
    Online,
    Shop { number: u32 },
}

fn main() {
    let _ = [Channel::Online, Channel::Shop { number: 1 }];
}
