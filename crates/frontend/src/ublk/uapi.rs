//! The kernel's side of ublk, as include/uapi/linux/ublk_cmd.h has it: structures, commands, offsets.
//!
//! Only what we use: commands in ioctl encoding, and data by user copy. Linux has both since 6.5.

/// Commands to `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOp {
    /// Describes a device.
    GetDevInfo,
    /// Makes a device's character node.
    AddDev,
    /// Removes a device, and waits until its last user has closed it.
    DelDev,
    /// Makes its block node.
    StartDev,
    /// Removes its block node.
    StopDev,
    /// Sets its limits.
    SetParams,
    /// Reports what this kernel's ublk can do.
    GetFeatures,
    /// Removes a device without waiting.
    DelDevAsync,
}

impl ControlOp {
    /// The command's number, encoded like an ioctl.
    pub const fn code(self) -> u32 {
        let size = size_of::<ControlCommand>();
        match self {
            Self::GetDevInfo => code(READ, 0x02, size),
            Self::AddDev => code(READ | WRITE, 0x04, size),
            Self::DelDev => code(READ | WRITE, 0x05, size),
            Self::StartDev => code(READ | WRITE, 0x06, size),
            Self::StopDev => code(READ | WRITE, 0x07, size),
            Self::SetParams => code(READ | WRITE, 0x08, size),
            Self::GetFeatures => code(READ, 0x13, size),
            Self::DelDevAsync => code(READ, 0x14, size),
        }
    }

    /// Its name in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GetDevInfo => "ask about",
            Self::AddDev => "add",
            Self::DelDev | Self::DelDevAsync => "delete",
            Self::StartDev => "start",
            Self::StopDev => "stop",
            Self::SetParams => "set the limits of",
            Self::GetFeatures => "ask for the features of",
        }
    }
}

/// Waits for a request of one tag.
pub const FETCH: u32 = code(READ | WRITE, 0x20, size_of::<IoCommand>());
/// Ends a tag's request, and waits for the next one.
pub const COMMIT_AND_FETCH: u32 = code(READ | WRITE, 0x21, size_of::<IoCommand>());

const WRITE: u32 = 1;
const READ: u32 = 2;

/// `_IOC` of include/uapi/asm-generic/ioctl.h.
const fn code(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

/// Data is copied by reading and writing the character device.
pub const F_USER_COPY: u64 = 1 << 7;
/// Commands are encoded like ioctls.
pub const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;

/// A device without a block node: not started, stopped, or its server died.
pub const STATE_DEAD: u16 = 0;

/// The device number or queue number that means none.
pub const NO_DEVICE: u32 = u32::MAX;
const NO_QUEUE: u16 = u16::MAX;

/// `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ControlCommand {
    /// The device.
    pub device: u32,
    queue: u16,
    /// Bytes at `address`.
    pub len: u16,
    /// The memory that the command reads or fills.
    pub address: u64,
    /// An additional argument.
    pub data: u64,
    path_len: u16,
    pad: u16,
    reserved: u32,
}

impl ControlCommand {
    /// A command to a device without arguments.
    pub const fn new(device: u32) -> Self {
        Self {
            device,
            queue: NO_QUEUE,
            len: 0,
            address: 0,
            data: 0,
            path_len: 0,
            pad: 0,
            reserved: 0,
        }
    }

    /// Its bytes in a submission entry.
    pub fn encode(&self) -> [u8; 80] {
        let mut out = [0; 80];
        out[0..4].copy_from_slice(&self.device.to_ne_bytes());
        out[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        out[6..8].copy_from_slice(&self.len.to_ne_bytes());
        out[8..16].copy_from_slice(&self.address.to_ne_bytes());
        out[16..24].copy_from_slice(&self.data.to_ne_bytes());
        out
    }
}

/// `struct ublksrv_io_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoCommand {
    /// The queue.
    pub queue: u16,
    /// The tag of the request.
    pub tag: u16,
    /// The result of the request: bytes, or minus an errno.
    pub result: i32,
    /// Not used with user copy.
    address: u64,
}

impl IoCommand {
    /// Ends a tag's request, or first fetches it (the result is then ignored).
    pub const fn new(queue: u16, tag: u16, result: i32) -> Self {
        Self {
            queue,
            tag,
            result,
            address: 0,
        }
    }

    /// Its bytes in a submission entry.
    pub fn encode(&self) -> [u8; 80] {
        let mut out = [0; 80];
        out[0..2].copy_from_slice(&self.queue.to_ne_bytes());
        out[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        out[4..8].copy_from_slice(&self.result.to_ne_bytes());
        out[8..16].copy_from_slice(&self.address.to_ne_bytes());
        out
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceInfo {
    /// The number of queues.
    pub queues: u16,
    /// Requests in flight per queue.
    pub depth: u16,
    /// Its state; see [`STATE_DEAD`].
    pub state: u16,
    /// Padding.
    pub pad0: u16,
    /// The longest request.
    pub io_bytes_max: u32,
    /// Its number.
    pub device: u32,
    /// The process that serves it.
    pub pid: i32,
    /// Padding.
    pub pad1: u32,
    /// The ublk features that it uses.
    pub flags: u64,
    /// The server's data, stored and ignored by the kernel.
    pub mark: u64,
    /// User and group of devices of unprivileged users; set by the kernel.
    pub owner: [u32; 2],
    /// Reserved.
    pub reserved: [u64; 2],
}

/// `struct ublk_params`, as far as we set it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    /// The length of this structure in bytes.
    pub len: u32,
    /// The parts that are set.
    pub types: u32,
    /// Parameters of every device.
    pub basic: Basic,
    /// Discard and write-zeroes.
    pub discard: Discard,
}

/// `Params::basic` is set.
pub const PARAM_BASIC: u32 = 1 << 0;
/// `Params::discard` is set.
pub const PARAM_DISCARD: u32 = 1 << 1;

/// The kernel refuses writes.
pub const ATTR_READ_ONLY: u32 = 1 << 0;
/// The device has a cache to flush.
pub const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
/// The device supports FUA.
pub const ATTR_FUA: u32 = 1 << 3;

/// `struct ublk_param_basic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Basic {
    /// Attributes.
    pub attributes: u32,
    /// Powers of two, in bytes: the addressable unit,
    pub logical_shift: u8,
    /// the unit written without being read first,
    pub physical_shift: u8,
    /// the best request size,
    pub io_opt_shift: u8,
    /// and the smallest good one.
    pub io_min_shift: u8,
    /// The longest read or write.
    pub sectors_max: u32,
    /// A boundary that no request may cross; none.
    pub chunk_sectors: u32,
    /// Its size.
    pub sectors: u64,
    virt_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard {
    /// The offset of the first whole block.
    pub alignment: u32,
    /// The unit that a discard can free.
    pub granularity: u32,
    /// The longest discard.
    pub discard_sectors_max: u32,
    /// The longest write of zeros.
    pub zeroes_sectors_max: u32,
    /// The most ranges in one discard.
    pub segments_max: u16,
    /// Reserved.
    pub reserved: u16,
}

/// `struct ublksrv_io_desc`: a request of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    /// The operation in the low byte, and flags.
    pub op_flags: u32,
    /// The length.
    pub sectors: u32,
    /// The start.
    pub start_sector: u64,
    /// Not used with user copy.
    pub address: u64,
}

/// The values of a descriptor's low byte, and the flags above it.
pub mod op {
    /// Read.
    pub const READ: u32 = 0;
    /// Write.
    pub const WRITE: u32 = 1;
    /// Flush.
    pub const FLUSH: u32 = 2;
    /// Discard.
    pub const DISCARD: u32 = 3;
    /// Write zeros.
    pub const WRITE_ZEROES: u32 = 5;
    /// The mask of the operation.
    pub const MASK: u32 = 0xff;
    /// Must be durable before it ends.
    pub const FUA: u32 = 1 << 13;
}

/// Descriptors that the kernel reserves for each queue.
const DEPTH_MAX: usize = 4096;

/// The offset of a queue's descriptors in the character device's mapping. Each queue's begin on a page of the machine.
pub const fn descriptors_offset(queue: u16, page: usize) -> usize {
    queue as usize * (DEPTH_MAX * size_of::<Descriptor>()).next_multiple_of(page)
}

/// The offset of a request's data in the character device.
pub const fn data_offset(queue: u16, tag: u16) -> u64 {
    const BASE: u64 = 0x8000_0000;
    const DATA_BITS: u32 = 25;
    const TAG_BITS: u32 = 16;
    BASE + ((queue as u64) << (DATA_BITS + TAG_BITS)) + ((tag as u64) << DATA_BITS)
}

const _: () = {
    assert!(size_of::<ControlCommand>() == 32);
    assert!(size_of::<IoCommand>() == 16);
    assert!(size_of::<DeviceInfo>() == 64);
    assert!(size_of::<Basic>() == 32);
    assert!(size_of::<Discard>() == 20);
    assert!(std::mem::offset_of!(Params, discard) == 40);
    assert!(size_of::<Descriptor>() == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        // As a C program prints them, from `_IOWR('u', 4, struct ublksrv_ctrl_cmd)` and so on.
        assert_eq!(ControlOp::AddDev.code(), 0xc020_7504);
        assert_eq!(ControlOp::GetDevInfo.code(), 0x8020_7502);
        assert_eq!(ControlOp::GetFeatures.code(), 0x8020_7513);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(data_offset(0, 1), 0x8000_0000 + (1 << 25));
        assert_eq!(data_offset(1, 0), 0x8000_0000 + (1 << 41));
        assert_eq!(descriptors_offset(1, 4096), 98_304);
        assert_eq!(descriptors_offset(1, 65_536), 131_072);
    }

    #[test]
    fn commands_are_laid_out_as_the_kernel_reads_them() {
        let mut command = ControlCommand::new(7);
        (command.len, command.address, command.data) = (64, 0x1122, 9);
        let bytes = command.encode();
        assert_eq!(bytes[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(bytes[8..16], 0x1122_u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 9_u64.to_ne_bytes());
        assert!(bytes[24..].iter().all(|&b| b == 0));
        let bytes = IoCommand::new(1, 2, -5).encode();
        assert_eq!(bytes[..4], [1, 0, 2, 0]);
        assert_eq!(bytes[4..8], (-5_i32).to_ne_bytes());
    }
}
