//! libibverbs, as this crate uses it: loaded when it is first asked for, so that a program that
//! knows it starts where none exists.
//!
//! The layouts are those of the library's application binary interface (`IBVERBS_1.1`, rdma-core),
//! which every program compiled against `infiniband/verbs.h` contains: posting and polling are no
//! functions of the library, but of the driver, through the table in [`Context`]. They are those of
//! 64-bit systems; `tests/vm/verbs` compares them with the header of the machine that it runs on.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    mem::{offset_of, size_of},
    sync::OnceLock,
};

/// A pointer that is only handed back.
type Opaque = *mut c_void;

/// `struct ibv_context_ops`: what the driver does itself.
#[repr(C)]
pub struct ContextOps {
    before_poll: [Opaque; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    before_post: [Opaque; 12],
    pub post_send: Option<unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int>,
    after_post: [Opaque; 5],
}

/// `struct ibv_context`, as far as it is used here; never made here.
#[repr(C)]
pub struct Context {
    device: Opaque,
    pub ops: ContextOps,
}

/// `struct ibv_pd`; never made or looked into here.
#[repr(C)]
pub struct ProtectionDomain {
    context: *mut Context,
}

/// `struct ibv_mr`; never made here.
#[repr(C)]
pub struct MemoryRegion {
    context: *mut Context,
    domain: *mut ProtectionDomain,
    address: Opaque,
    length: usize,
    handle: u32,
    pub local_key: u32,
    pub remote_key: u32,
}

/// `struct ibv_comp_channel`; never made here.
#[repr(C)]
pub struct Channel {
    context: *mut Context,
    pub descriptor: c_int,
    references: c_int,
}

/// `struct ibv_cq`, as far as it is used here; never made here.
#[repr(C)]
pub struct CompletionQueue {
    pub context: *mut Context,
}

/// `struct ibv_qp`, as far as it is used here; never made here.
#[repr(C)]
pub struct QueuePair {
    pub context: *mut Context,
    queue_context: Opaque,
    domain: *mut ProtectionDomain,
    send: *mut CompletionQueue,
    receive: *mut CompletionQueue,
    shared: Opaque,
    handle: u32,
    pub number: u32,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttributes {
    firmware: [u8; 64],
    identities: [u64; 2],
    max_mr_size: u64,
    page_size_cap: u64,
    vendor: [u32; 3],
    max_qp: c_int,
    pub max_qp_wr: c_int,
    device_cap_flags: c_uint,
    max_sge: [c_int; 2],
    max_cq: c_int,
    pub max_cqe: c_int,
    max_mr: [c_int; 2],
    pub max_qp_rd_atom: c_int,
    max_rd_atom: [c_int; 4],
    pub atomic_cap: c_int,
    others: [c_int; 14],
    max_pkeys: u16,
    ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PortAttributes {
    pub state: c_uint,
    max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_table_length: c_int,
    capabilities: u32,
    max_message: u32,
    counters: [u32; 2],
    pkeys: u16,
    pub lid: u16,
    sm_lid: u16,
    narrow: [u8; 8],
    pub link_layer: u8,
    flags: u8,
    capabilities2: u16,
    // The header of some releases ends here, that of others has four bytes more.
    reserve: [u32; 4],
}

/// `struct ibv_ah_attr`, with `struct ibv_global_route` in front.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AddressAttributes {
    pub gid: Gid,
    pub flow_label: u32,
    pub gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
    pub rate: u8,
    pub is_global: u8,
    pub port: u8,
}

/// `union ibv_gid`: two big-endian words to the header, hence the alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Gid(pub [u8; 16]);

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Capacity {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub struct QueuePairInit {
    pub queue_context: Opaque,
    pub send: *mut CompletionQueue,
    pub receive: *mut CompletionQueue,
    pub shared: Opaque,
    pub capacity: Capacity,
    pub kind: c_uint,
    pub signal_all: c_int,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QueuePairAttributes {
    pub state: c_uint,
    pub current_state: c_uint,
    pub path_mtu: c_uint,
    pub migration: c_uint,
    pub qkey: u32,
    pub receive_sequence: u32,
    pub send_sequence: u32,
    pub destination: u32,
    pub access: c_uint,
    pub capacity: Capacity,
    pub address: AddressAttributes,
    pub alternative: AddressAttributes,
    pub pkey_index: u16,
    pub alternative_pkey_index: u16,
    pub drained_notify: u8,
    pub draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub alternative_port: u8,
    pub alternative_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    pub address: u64,
    pub length: u32,
    pub key: u32,
}

/// `struct ibv_send_wr`; of its unions, the members for one-sided operations.
#[repr(C)]
pub struct SendRequest {
    pub id: u64,
    pub next: *mut SendRequest,
    pub pieces: *mut Piece,
    pub piece_count: c_int,
    pub operation: c_uint,
    pub flags: c_uint,
    /// In network order.
    pub immediate: u32,
    pub remote: Remote,
    /// What this crate has no use for.
    pub others: [u64; 7],
}

/// The union `wr` of `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Remote {
    pub memory: RemoteMemory,
    pub atomic: RemoteWord,
}

/// Its member `rdma`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemoteMemory {
    pub address: u64,
    pub key: u32,
}

/// Its member `atomic`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RemoteWord {
    pub address: u64,
    pub add: u64,
    pub swap: u64,
    pub key: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct ReceiveRequest {
    pub id: u64,
    pub next: *mut ReceiveRequest,
    pub pieces: *mut Piece,
    pub piece_count: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct WorkCompletion {
    pub id: u64,
    pub status: c_uint,
    pub operation: c_uint,
    pub vendor: u32,
    pub length: u32,
    /// In network order.
    pub immediate: u32,
    pub queue_pair: u32,
    pub source: u32,
    pub flags: c_uint,
    pub pkey_index: u16,
    pub lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
}

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the layouts of libibverbs are written down here for 64-bit systems only");

// What a C compiler says of the header, on 64-bit systems.
const _: () = {
    assert!(offset_of!(Context, ops.poll_cq) == 96);
    assert!(offset_of!(Context, ops.req_notify_cq) == 104);
    assert!(offset_of!(Context, ops.post_send) == 208);
    assert!(offset_of!(Context, ops.post_recv) == 216);
    assert!(offset_of!(MemoryRegion, local_key) == 36);
    assert!(offset_of!(MemoryRegion, remote_key) == 40);
    assert!(offset_of!(Channel, descriptor) == 8);
    assert!(offset_of!(QueuePair, number) == 52);
    assert!(size_of::<DeviceAttributes>() == 232);
    assert!(offset_of!(DeviceAttributes, max_qp_wr) == 112);
    assert!(offset_of!(DeviceAttributes, max_cqe) == 132);
    assert!(offset_of!(DeviceAttributes, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttributes, atomic_cap) == 164);
    assert!(offset_of!(DeviceAttributes, phys_port_cnt) == 227);
    assert!(size_of::<PortAttributes>() >= 52);
    assert!(offset_of!(PortAttributes, lid) == 34);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<AddressAttributes>() == 32);
    assert!(offset_of!(AddressAttributes, lid) == 24);
    assert!(offset_of!(AddressAttributes, port) == 30);
    assert!(size_of::<Capacity>() == 20);
    assert!(size_of::<QueuePairInit>() == 64);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, address) == 56);
    assert!(offset_of!(QueuePairAttributes, timeout) == 130);
    assert!(size_of::<Piece>() == 16);
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, remote) == 40);
    assert!(offset_of!(SendRequest, others) == 72);
    assert!(size_of::<ReceiveRequest>() == 32);
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(offset_of!(WorkCompletion, immediate) == 24);
    assert!(offset_of!(WorkCompletion, flags) == 36);
};

pub const LINK_LAYER_ETHERNET: u8 = 2;
pub const PORT_ACTIVE: c_uint = 4;
pub const RELIABLE_CONNECTED: c_uint = 2;

pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;

pub const STATE_INIT: c_uint = 1;
pub const STATE_READY_TO_RECEIVE: c_uint = 2;
pub const STATE_READY_TO_SEND: c_uint = 3;
pub const STATE_ERROR: c_uint = 6;

pub const SET_STATE: c_int = 1;
pub const SET_ACCESS: c_int = 1 << 3;
pub const SET_PKEY_INDEX: c_int = 1 << 4;
pub const SET_PORT: c_int = 1 << 5;
pub const SET_ADDRESS: c_int = 1 << 7;
pub const SET_PATH_MTU: c_int = 1 << 8;
pub const SET_TIMEOUT: c_int = 1 << 9;
pub const SET_RETRY_COUNT: c_int = 1 << 10;
pub const SET_RNR_RETRY: c_int = 1 << 11;
pub const SET_RECEIVE_SEQUENCE: c_int = 1 << 12;
pub const SET_MAX_RD_ATOMIC: c_int = 1 << 13;
pub const SET_MIN_RNR_TIMER: c_int = 1 << 15;
pub const SET_SEND_SEQUENCE: c_int = 1 << 16;
pub const SET_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const SET_DESTINATION: c_int = 1 << 20;

pub const POST_WRITE: c_uint = 0;
pub const POST_WRITE_WITH_IMM: c_uint = 1;
pub const POST_READ: c_uint = 4;
pub const POST_FETCH_ADD: c_uint = 6;
pub const SIGNALED: c_uint = 1 << 1;

pub const SUCCESS: c_uint = 0;
pub const FLUSHED: c_uint = 5;
pub const COMPLETED_WRITE: c_uint = 1;
pub const COMPLETED_READ: c_uint = 2;
pub const COMPLETED_FETCH_ADD: c_uint = 4;
pub const RECEIVED_WITH_IMM: c_uint = (1 << 7) + 1;
pub const WITH_IMMEDIATE: c_uint = 1 << 1;

macro_rules! library {
    ($($symbol:literal $name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn load() -> Result<Self, String> {
                // SAFETY: a string that ends in a zero; what runs at loading is the library's own
                // initialisation.
                let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if handle.is_null() {
                    return Err(format!("{}; install libibverbs1 and ibverbs-providers, or use fabric tcp", why()));
                }
                let find = |symbol: &CStr| {
                    // SAFETY: the handle is of a library that stays loaded, and the string ends in
                    // a zero.
                    let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
                    if found.is_null() { Err(format!("this libibverbs is none that is known here: {}", why())) } else { Ok(found) }
                };
                Ok(Self {
                    $($name: {
                        let found = find($symbol)?;
                        // SAFETY: the function of this name has this type since the interface
                        // IBVERBS_1.1; data pointers and function pointers have one representation
                        // wherever there is dlsym.
                        unsafe { std::mem::transmute::<Opaque, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)*
                })
            }
        }
    };
}

library! {
    c"ibv_get_device_list" get_device_list: fn(*mut c_int) -> *mut Opaque;
    c"ibv_free_device_list" free_device_list: fn(*mut Opaque);
    c"ibv_get_device_name" get_device_name: fn(Opaque) -> *const c_char;
    c"ibv_open_device" open_device: fn(Opaque) -> *mut Context;
    c"ibv_close_device" close_device: fn(*mut Context) -> c_int;
    c"ibv_query_device" query_device: fn(*mut Context, *mut DeviceAttributes) -> c_int;
    c"ibv_query_port" query_port: fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    c"ibv_query_gid" query_gid: fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    c"ibv_alloc_pd" alloc_pd: fn(*mut Context) -> *mut ProtectionDomain;
    c"ibv_dealloc_pd" dealloc_pd: fn(*mut ProtectionDomain) -> c_int;
    c"ibv_reg_mr" reg_mr: fn(*mut ProtectionDomain, Opaque, usize, c_int) -> *mut MemoryRegion;
    c"ibv_dereg_mr" dereg_mr: fn(*mut MemoryRegion) -> c_int;
    c"ibv_create_comp_channel" create_channel: fn(*mut Context) -> *mut Channel;
    c"ibv_destroy_comp_channel" destroy_channel: fn(*mut Channel) -> c_int;
    c"ibv_create_cq" create_cq: fn(*mut Context, c_int, Opaque, *mut Channel, c_int) -> *mut CompletionQueue;
    c"ibv_destroy_cq" destroy_cq: fn(*mut CompletionQueue) -> c_int;
    c"ibv_get_cq_event" get_cq_event: fn(*mut Channel, *mut *mut CompletionQueue, *mut Opaque) -> c_int;
    c"ibv_ack_cq_events" ack_cq_events: fn(*mut CompletionQueue, c_uint);
    c"ibv_create_qp" create_qp: fn(*mut ProtectionDomain, *mut QueuePairInit) -> *mut QueuePair;
    c"ibv_modify_qp" modify_qp: fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    c"ibv_destroy_qp" destroy_qp: fn(*mut QueuePair) -> c_int;
    c"ibv_wc_status_str" status_text: fn(c_uint) -> *const c_char;
}

/// What the loader says of its last failure.
fn why() -> String {
    // SAFETY: it returns null or a string that is valid until this thread calls the loader again.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "libibverbs cannot be loaded".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Library {
    /// The library; loaded at the first call, for good.
    pub fn get() -> Result<&'static Self, String> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    /// A completion's status in words.
    pub fn status(&self, status: c_uint) -> String {
        // SAFETY: any number is allowed; the result is null or a constant string.
        let text = unsafe { (self.status_text)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: as above.
        format!("{} (status {status})", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }
}
