//! A device, and the memory that is registered with it. As in all of this module, what was made is
//! given back when it is dropped, and holds on to what it was made of.

use std::{
    ffi::{CStr, c_int, c_uint},
    fmt, fs, io,
    mem::zeroed,
    ptr::NonNull,
};

use freshet_base::sync::Arc;

use super::sys::{self, Library};
use crate::{Access, FabricConfig, FabricKind, OpenError, RegionKey, memory::Region};

fn missing(why: String) -> OpenError {
    OpenError::Missing { kind: FabricKind::Verbs, why }
}

pub(super) fn refused(what: &str, source: &io::Error) -> OpenError {
    OpenError::System { kind: FabricKind::Verbs, source: io::Error::new(source.kind(), format!("{what}: {source}")) }
}

/// What a function returned that gives back zero or an error number.
pub(super) fn outcome(number: c_int) -> io::Result<()> {
    match number {
        0 => Ok(()),
        // Some drivers return -1 and set `errno`.
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(number)),
    }
}

pub(super) fn made<T>(what: &str, pointer: *mut T) -> Result<NonNull<T>, OpenError> {
    NonNull::new(pointer).ok_or_else(|| refused(what, &io::Error::last_os_error()))
}

/// An open device, one of its ports, and a protection domain.
pub struct Device {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<sys::Context>,
    pub(super) domain: NonNull<sys::ProtectionDomain>,
    name: String,
    pub(super) attributes: sys::DeviceAttributes,
    pub(super) port_number: u8,
    pub(super) port: sys::PortAttributes,
    pub(super) gid_index: u8,
    gid: [u8; 16],
}

// SAFETY: libibverbs lets any thread use a context and what was made of it; everything that is not
// atomic here stays as it was made.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({} port {})", self.name, self.port_number)
    }
}

/// Opens the device of the name `wanted`, or all of this machine.
fn open(library: &'static Library, wanted: Option<&str>) -> Result<Vec<(String, Opened)>, OpenError> {
    let mut count = 0;
    // SAFETY: it writes the number of entries and returns a list of this many, or null.
    let list = unsafe { (library.get_device_list)(&mut count) };
    let list = NonNull::new(list).ok_or_else(|| {
        missing(format!("the kernel has no RDMA: {}; load ib_uverbs and the driver", io::Error::last_os_error()))
    })?;
    let mut found = Vec::new();
    let mut names = Vec::new();
    let mut problem = None;
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries, none of them null.
        let device = unsafe { *list.as_ptr().add(index) };
        // SAFETY: a device of the list, which is given back only below; its name is a string inside
        // of it.
        let name = unsafe { CStr::from_ptr((library.get_device_name)(device)) }.to_string_lossy().into_owned();
        if wanted.is_none_or(|wanted| wanted == name) {
            // SAFETY: as above; an open context needs the list no more.
            match NonNull::new(unsafe { (library.open_device)(device) }) {
                Some(context) => found.push((name.clone(), Opened { library, context })),
                None => problem = Some(refused(&format!("opening device {name}"), &io::Error::last_os_error())),
            }
        }
        names.push(name);
    }
    // SAFETY: the list is given back once.
    unsafe { (library.free_device_list)(list.as_ptr()) };
    match (found.is_empty(), problem, wanted) {
        (false, _, _) => Ok(found),
        (true, Some(problem), _) => Err(problem),
        (true, None, _) if names.is_empty() => {
            Err(missing("this machine has no RDMA device (see: rdma link); use fabric tcp".into()))
        }
        (true, None, wanted) => {
            let wanted = wanted.unwrap_or_default();
            Err(missing(format!("there is no RDMA device {wanted:?}, but {}", names.join(", "))))
        }
    }
}

impl Device {
    /// The device, port and address that the configuration names, or else the first port that is
    /// up.
    pub fn open(config: &FabricConfig) -> Result<Arc<Self>, OpenError> {
        let library = Library::get().map_err(missing)?;
        let wanted = config.device.as_ref();
        let mut chosen = None;
        let mut seen = Vec::new();
        for (name, device) in open(library, wanted.map(|wanted| &*wanted.0))? {
            if chosen.is_some() {
                break;
            }
            let attributes = device.attributes(&name)?;
            let ports = wanted.map_or(1..=attributes.phys_port_cnt, |wanted| wanted.1..=wanted.1);
            for number in ports {
                let port = device.port(&name, number)?;
                if port.state == sys::PORT_ACTIVE {
                    chosen = Some((device, name, attributes, number, port));
                    break;
                }
                seen.push(format!("port {number} of {name} is down"));
            }
        }
        let Some((device, name, attributes, port_number, port)) = chosen else {
            return Err(missing(format!("no RDMA port is up: {}", seen.join(", "))));
        };
        let gid_index = match wanted {
            Some(wanted) => wanted.2,
            None => best_gid(&name, port_number, port.gid_table_length),
        };
        let mut gid = sys::Gid([0; 16]);
        // SAFETY: an open context, and a place for the address.
        let got =
            unsafe { (library.query_gid)(device.context.as_ptr(), port_number, c_int::from(gid_index), &mut gid) };
        if got != 0 || gid.0 == [0; 16] {
            let why = format!("port {port_number} of {name} has no address (GID) with index {gid_index}");
            return Err(missing(format!("{why}; see /sys/class/infiniband/{name}/ports/{port_number}/gids")));
        }
        // SAFETY: an open context.
        let domain = made("a protection domain", unsafe { (library.alloc_pd)(device.context.as_ptr()) })?;
        let context = device.keep();
        Ok(Arc::new(Self { library, context, domain, name, attributes, port_number, port, gid_index, gid: gid.0 }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }

    pub fn lid(&self) -> u16 {
        self.port.lid
    }

    pub fn mtu(&self) -> u32 {
        self.port.active_mtu
    }

    /// Whether it adds to words.
    pub fn has_atomics(&self) -> bool {
        self.attributes.atomic_cap != 0 && self.attributes.max_qp_rd_atom > 0
    }

    /// A completion's status in words.
    pub fn status(&self, status: c_uint) -> String {
        self.library.status(status)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: made by this library, given back once, and everything made of them is gone: it
        // holds on to this value. If they were refused, the kernel takes them back at the end of
        // the process.
        unsafe {
            (self.library.dealloc_pd)(self.domain.as_ptr());
            (self.library.close_device)(self.context.as_ptr());
        }
    }
}

/// A device that nothing was made of.
struct Opened {
    library: &'static Library,
    context: NonNull<sys::Context>,
}

impl Opened {
    fn attributes(&self, name: &str) -> Result<sys::DeviceAttributes, OpenError> {
        // SAFETY: numbers, for which zero is a value.
        let mut attributes = unsafe { zeroed() };
        // SAFETY: an open context, and a place for the answer.
        outcome(unsafe { (self.library.query_device)(self.context.as_ptr(), &mut attributes) })
            .map_err(|error| refused(&format!("asking device {name}"), &error))?;
        Ok(attributes)
    }

    fn port(&self, name: &str, number: u8) -> Result<sys::PortAttributes, OpenError> {
        // SAFETY: numbers, for which zero is a value.
        let mut port = unsafe { zeroed() };
        // SAFETY: an open context, and a place for the answer.
        outcome(unsafe { (self.library.query_port)(self.context.as_ptr(), number, &mut port) })
            .map_err(|error| refused(&format!("asking port {number} of {name}"), &error))?;
        Ok(port)
    }

    fn keep(self) -> NonNull<sys::Context> {
        std::mem::ManuallyDrop::new(self).context
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by this library, and given back once.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// The address to use where none is configured: over Ethernet, one of version 2 of RoCE that stands
/// for an IPv4 address, if there is one.
fn best_gid(device: &str, port: u8, length: c_int) -> u8 {
    let directory = format!("/sys/class/infiniband/{device}/ports/{port}");
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let rank = |index: &u8| {
        let kind = read(format!("{directory}/gid_attrs/types/{index}"));
        let gid = read(format!("{directory}/gids/{index}"));
        rank_gid(kind.trim(), gid.trim())
    };
    let last = u8::try_from(length.saturating_sub(1)).unwrap_or(u8::MAX);
    // The last of equals is the maximum, and the first is meant.
    (0..=last).rev().max_by_key(rank).unwrap_or(0)
}

fn rank_gid(kind: &str, gid: &str) -> u8 {
    let routable = kind == "RoCE v2";
    match gid {
        "" | "0000:0000:0000:0000:0000:0000:0000:0000" => 0,
        _ if routable && gid.starts_with("0000:0000:0000:0000:0000:ffff:") => 4,
        _ if routable && !gid.starts_with("fe80:") => 3,
        _ if routable => 2,
        _ => 1,
    }
}

/// Memory that the card may reach.
pub struct Memory {
    device: Arc<Device>,
    region: NonNull<sys::MemoryRegion>,
    memory: Region,
}

// SAFETY: the keys in it stay as they were made; the memory is that of a `Region`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Registers `memory`; with `remote`, the other side may write, read and add.
    pub fn new(device: &Arc<Device>, memory: Region, remote: bool) -> Result<Self, OpenError> {
        if memory.method().is_some() {
            // Query Fresh, section 2.3: it may stand in caches of the other side's processors.
            return Err(missing("what a card has written is not durable: use shm or tcp for such memory".into()));
        }
        let words = memory.words();
        let bytes = size_of_val(words);
        let mut access = sys::ACCESS_LOCAL_WRITE;
        if remote {
            access |= sys::ACCESS_REMOTE_WRITE | sys::ACCESS_REMOTE_READ;
            if device.has_atomics() {
                access |= sys::ACCESS_REMOTE_ATOMIC;
            }
        }
        let address = words.as_ptr().cast_mut().cast();
        // SAFETY: the memory is mapped, and stays so until it was given back: this value owns it.
        // It consists of atomics, so that the card may write there while others have references to
        // it.
        let region = unsafe { (device.library.reg_mr)(device.domain.as_ptr(), address, bytes, access) };
        let Some(region) = NonNull::new(region) else {
            let error = io::Error::last_os_error();
            let why = match error.raw_os_error() {
                Some(libc::ENOMEM | libc::EAGAIN) => "; raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)",
                Some(libc::EOPNOTSUPP | libc::EFAULT) => {
                    "; a file on a file system (with DAX, too) cannot be registered: use a device of device DAX, or memory"
                }
                _ => "",
            };
            return Err(missing(format!("{bytes} bytes of memory cannot be registered: {error}{why}")));
        };
        Ok(Self { device: Arc::clone(device), region, memory })
    }

    pub fn region(&self) -> &Region {
        &self.memory
    }

    /// What the other side has to be told of it.
    pub fn offered(&self) -> RegionKey {
        // SAFETY: registered until this value is dropped, and never changed.
        let key = unsafe { self.region.as_ref() }.remote_key;
        let length = size_of_val(self.memory.words()) as u64;
        RegionKey { length, access: Access::Verbs { address: self.address(), key } }
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.memory.words().as_ptr().addr() as u64
    }

    /// The key that this side's own card needs.
    pub fn local_key(&self) -> u32 {
        // SAFETY: registered until this value is dropped, and never changed.
        unsafe { self.region.as_ref() }.local_key
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: given back once, and before the memory. If it were refused, the pages would stay
        // pinned, not be used for something else.
        unsafe { (self.device.library.dereg_mr)(self.region.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_chosen_that_routers_and_ipv4_know() {
        let gids = [
            ("IB/RoCE v1", "fe80:0000:0000:0000:0000:00ff:fe00:0001"),
            ("RoCE v2", "fe80:0000:0000:0000:0000:00ff:fe00:0001"),
            ("RoCE v2", "0000:0000:0000:0000:0000:ffff:0a01:0001"),
            ("RoCE v2", "2001:0db8:0000:0000:0000:0000:0000:0001"),
            ("", ""),
            ("RoCE v2", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ];
        assert_eq!(gids.map(|(kind, gid)| rank_gid(kind, gid)), [1, 2, 4, 3, 0, 0]);
    }
}
