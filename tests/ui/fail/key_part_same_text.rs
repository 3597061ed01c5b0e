use inboxed::KeyPart;

#[derive(KeyPart)]
enum Channel {
    Online,
    #[key_part(rename = "Online")]
    App,
}

fn main() {
    let _ = [Channel::Online, Channel::App];
}
