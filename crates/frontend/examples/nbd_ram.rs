//! Serves a RAM disk over NBD: `nbd_ram SOCKET [BYTES]`. The transport's cost, without a volume's.

use std::sync::Arc;
use vellum_frontend::nbd::{Export, Listen, Options, Server};
use vellum_frontend::testing::RamDisk;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let socket = args.next().ok_or("usage: nbd_ram SOCKET [BYTES]")?;
    let bytes: u64 = args.next().map_or(Ok(1 << 30), |text| text.parse())?;
    let options = Options {
        report: Arc::new(|words| eprintln!("{words}")),
        ..Options::default()
    };
    let server = Server::bind_with(&Listen::Unix(socket.into()), options)?;
    server.add(Export::new(
        "",
        Arc::new(RamDisk::new(bytes / 4096, 8192, 8192)),
    ))?;
    loop {
        std::thread::park();
    }
}
