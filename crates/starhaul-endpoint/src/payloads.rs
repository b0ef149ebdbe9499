//! The datagrams that the kernel joined into one message, taken apart for the stack, which decrypts each in place.

use bytes::BytesMut;
use starhaul_net::Lent;

/// Most bytes of copied datagrams that share a buffer: a byte kept of one keeps the memory of all.
const RUN_BYTES: usize = 12 << 10;
/// The first byte of packets with a long header has this bit (RFC 9000 §17.2). What these bring may be kept, and anybody can send them.
const LONG_HEADER: u8 = 0x80;

/// The datagrams of a message, in their order: packets of established connections in the memory into which they were received, or, where
/// the buffer lends none, a few in a buffer, which costs less than a buffer for each; all others alone.
pub(crate) struct Payloads<'m> {
    message: Lent<'m>,
    run: BytesMut,
}

impl<'m> Payloads<'m> {
    pub(crate) fn of(message: Lent<'m>) -> Self {
        Self {
            message,
            run: BytesMut::new(),
        }
    }

    /// Bytes of the datagrams that share the next buffer; zero if the next one has a long header.
    fn next_run(&self) -> usize {
        let stride = self.message.stride.max(1);
        let most = match self.message.is_lendable() {
            // They share the memory of the whole message in any case.
            true => 1,
            false => (RUN_BYTES / stride).max(1),
        };
        let datagrams = self.message.contents().chunks(stride).take(most);
        let is_short = |datagram: &&[u8]| {
            let first = datagram.first();
            first.is_some_and(|first| first & LONG_HEADER == 0)
        };
        datagrams.take_while(is_short).map(<[u8]>::len).sum()
    }
}

impl Iterator for Payloads<'_> {
    type Item = BytesMut;

    fn next(&mut self) -> Option<BytesMut> {
        let stride = self.message.stride.max(1);
        if self.run.is_empty() {
            if self.message.contents().is_empty() {
                return None;
            }
            self.run = match self.next_run() {
                0 => self.message.copy(stride),
                run => self.message.take(run),
            };
        }
        Some(match self.run.len() > stride {
            true => self.run.split_to(stride),
            false => std::mem::take(&mut self.run),
        })
    }
}

#[cfg(test)]
mod tests {
    use starhaul_net::{BindOptions, Poller, RecvBuffer, Transmit, UdpSocket};

    use super::*;

    /// Sends datagrams of one length but for the last, and takes them apart as they arrive.
    fn received(datagrams: &[Vec<u8>], stride: usize) -> Vec<BytesMut> {
        received_into(&mut RecvBuffer::new(), datagrams, stride)
    }

    fn received_into(
        buffer: &mut RecvBuffer,
        datagrams: &[Vec<u8>],
        stride: usize,
    ) -> Vec<BytesMut> {
        let bind = || UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let (sender, receiver) = (bind(), bind());
        let contents = datagrams.concat();
        let sent = sender.try_send(&Transmit {
            to: receiver.local_addr(),
            from: None,
            ecn: 0,
            contents: &contents,
            segment_size: stride,
        });
        assert_eq!(sent.unwrap(), contents.len());
        let (mut poller, mut all) = (Poller::new().unwrap(), Vec::new());
        while all.len() < datagrams.len() {
            poller.wait(&[(&receiver, false)], None).unwrap();
            while receiver.try_recv(buffer).unwrap() {
                all.extend(buffer.take_messages().flat_map(Payloads::of));
            }
        }
        all
    }

    #[test]
    fn each_datagram_comes_out_whole_and_can_be_written_without_harm_to_the_next() {
        // Of which the third, the eleventh and the last two have long headers.
        let first_byte = |number: u8| match number {
            2 | 10 | 38 | 39 => 0xc0 | number,
            _ => 0x40 | (number & 0x3f),
        };
        for stride in [3_usize, 100, 1452, 20_000] {
            let count = if stride > 10_000 { 3 } else { 40 };
            let datagram = |number: u8| {
                let length = match number == count - 1 {
                    true => stride.div_ceil(2),
                    false => stride,
                };
                let mut datagram = vec![number; length];
                datagram[0] = first_byte(number);
                datagram
            };
            let datagrams: Vec<_> = (0..count).map(datagram).collect();
            let mut taken = received(&datagrams, stride);
            for payload in &mut taken {
                let was = payload.to_vec();
                payload.fill(0xff);
                assert!(payload.iter().all(|byte| *byte == 0xff));
                payload.copy_from_slice(&was);
            }
            let taken: Vec<Vec<u8>> = taken.iter().map(|payload| payload.to_vec()).collect();
            assert!(taken == datagrams, "of {stride} bytes");
        }
    }

    #[test]
    fn what_is_kept_of_many_messages_keeps_little_besides_and_of_a_long_header_nothing() {
        let datagrams: Vec<Vec<u8>> = (0..40)
            .map(|number| match number % 20 {
                0 => vec![0xc0; 1452],
                _ => vec![0x40; 1452],
            })
            .collect();
        let mut buffer = RecvBuffer::new();
        let mut kept = Vec::new();
        for _ in 0..20 {
            kept.extend(received_into(&mut buffer, &datagrams, 1452));
        }
        drop(buffer);
        assert_eq!(kept.len(), 20 * datagrams.len());
        // What the last datagram of a memory can have without allocating is that memory: the others are dropped by then.
        let mut memory = 0;
        for mut payload in kept {
            let has_long_header = payload[0] == 0xc0;
            payload.clear();
            assert!(!has_long_header || !payload.try_reclaim(2 * 1452));
            memory += usize::from(payload.try_reclaim(RUN_BYTES + 1));
        }
        // Each is the memory of a message, of which the buffer lends some at a time.
        assert!(memory <= 16, "{memory} messages are kept");
    }
}
